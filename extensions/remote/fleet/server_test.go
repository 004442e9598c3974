package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-telemetry/opamp-go/client"
	"github.com/open-telemetry/opamp-go/client/types"
	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"warpgauge/extensions/remote/opamp"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a server on loopback.
type served struct {
	*Server
	t               *testing.T
	agentsAt, askAt string
	directory       string
}

const allAtOnce = "version: 1\ncohorts:\n- name: all\n  list: a.csv\n  rollout: {stages: [{percent: 100}]}\n"

// serveFleet starts a server with the tokens for agents and operators; an empty token disables the check.
func serveFleet(t *testing.T, agentToken, token string) *served {
	t.Helper()
	s := &served{t: t, directory: writeDirectory(t, map[string]string{FleetFile: allAtOnce, "a.csv": listA})}
	registry := prometheus.NewRegistry()
	s.Server = New(Options{
		Directory: s.directory, ReloadInterval: 100 * time.Millisecond, State: file.Private{Path: filepath.Join(t.TempDir(), "state"), Of: "the state"},
		MaxAgents: 100, Registry: registry, Log: zap.NewNop(), Version: "test",
	})
	endpoint := func(token string) *Endpoint {
		path := ""
		if token != "" {
			path = filepath.Join(t.TempDir(), "token")
			must(t, os.WriteFile(path, []byte("\n"+token+"\nanother\n"), 0o600))
		}
		login, err := NewLogin(path)
		must(t, err)
		l := testkit.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		return &Endpoint{Listener: l, Login: login, Serve: (*http.Server).Serve}
	}
	a, o := endpoint(agentToken), endpoint(token)
	s.agentsAt, s.askAt = a.Listener.Addr().String(), o.Listener.Addr().String()
	testkit.Start(t, func(ctx context.Context) error { return s.Run(ctx, a, o) })
	return s
}

func (s *served) request(method, path, token string) answered {
	s.t.Helper()
	return s.send(method, s.askAt+path, token, nil, nil)
}

// answered is a server's answer.
type answered struct {
	text string
	code int
}

func (s *served) send(method, to, token string, body []byte, header http.Header) answered {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+to, bytes.NewReader(body))
	must(s.t, err)
	maps.Copy(r.Header, header)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	c := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Do(r)
	must(s.t, err)
	defer response.Body.Close()
	text := testkit.Get(io.ReadAll(response.Body))(s.t)
	return answered{string(text), response.StatusCode}
}

// TestForeignClient: opamp-go's client reports, gets a list and acknowledges it.
func TestForeignClient(t *testing.T) {
	s := serveFleet(t, "secret", "")
	c := client.NewHTTP(nil)
	must(t, c.SetAgentDescription(&protobufs.AgentDescription{
		IdentifyingAttributes:    []*protobufs.KeyValue{keyValue("service.version", "9")},
		NonIdentifyingAttributes: []*protobufs.KeyValue{keyValue("host.name", "host-1"), keyValue(opamp.LabelPrefix+"rack", "r1")},
	}))
	changes := 0
	nudge := func() { // the client polls every 30 s and after each change
		changes++
		must(t, c.SetHealth(&protobufs.ComponentHealth{Healthy: true, Status: fmt.Sprint(changes), ComponentHealthMap: map[string]*protobufs.ComponentHealth{
			opamp.HealthGates:   {Healthy: true, ComponentHealthMap: map[string]*protobufs.ComponentHealth{opamp.GateSeries: {Healthy: true, Status: "12"}}},
			opamp.HealthDevices: {ComponentHealthMap: map[string]*protobufs.ComponentHealth{"GPU-1": {LastError: "stalled"}}},
		}}))
	}
	nudge()
	must(t, c.Start(t.Context(), types.StartSettings{
		OpAMPServerURL: "http://" + s.agentsAt + OpAMPPath, Header: http.Header{"Authorization": {"Bearer secret"}}, InstanceUid: types.InstanceUid{15: 1},
		Capabilities: protobufs.AgentCapabilities_AgentCapabilities_ReportsStatus | protobufs.AgentCapabilities_AgentCapabilities_AcceptsRemoteConfig |
			protobufs.AgentCapabilities_AgentCapabilities_ReportsRemoteConfig | protobufs.AgentCapabilities_AgentCapabilities_ReportsHealth,
		Callbacks: types.Callbacks{OnMessage: func(_ context.Context, m *types.MessageData) {
			if m.RemoteConfig == nil {
				return
			}
			status := &protobufs.RemoteConfigStatus{LastRemoteConfigHash: m.RemoteConfig.ConfigHash, Status: failed, ErrorMessage: "line 1: not here"}
			if file := m.RemoteConfig.Config.ConfigMap[opamp.ConfigName]; string(file.GetBody()) == listA && file.GetContentType() == "text/csv" {
				status = &protobufs.RemoteConfigStatus{LastRemoteConfigHash: m.RemoteConfig.ConfigHash, Status: applied}
			}
			if err := c.SetRemoteConfigStatus(status); err != nil {
				t.Error(err)
			}
		}},
	}))
	t.Cleanup(func() { must(t, c.Stop(context.Background())) })
	await := func(what string, want func(*AgentState, *CohortState) bool) {
		t.Helper()
		eventually.OK(t, what, func() error {
			nudge()
			var a Agents
			var f Fleet
			agents, fleet := s.request(http.MethodGet, "/api/v1/agents?cohort=all", "").text, s.request(http.MethodGet, "/api/v1/fleet", "").text
			err := errors.Join(json.Unmarshal([]byte(agents), &a), json.Unmarshal([]byte(fleet), &f))
			if err == nil && (len(a.Agents) != 1 || len(f.Cohorts) != 1 || !want(&a.Agents[0], &f.Cohorts[0])) {
				err = errors.New(agents + fleet)
			}
			return err
		})
	}
	await("list A is stable", func(a *AgentState, c *CohortState) bool {
		return c.Stable == hashOf(listA) && a.Condition == Current && a.Answered == c.Stable && a.Host == "host-1" && a.Version == "9" && a.Labels["rack"] == "r1" &&
			a.Numbers[series] == 12 && len(a.Troubles) == 1
	})
	must(t, os.WriteFile(filepath.Join(s.directory, "a.csv"), []byte(listB), 0o600))
	await("list B is refused", func(a *AgentState, c *CohortState) bool {
		return c.Rejected == hashOf(listB) && c.Rollout.State == Stopped && strings.Contains(c.Rollout.Reason, "line 1: not here") && a.Condition == Current && a.Refused == c.Rejected
	})
	metrics := s.request(http.MethodGet, "/metrics", "").text
	for _, want := range []string{
		`warpgauge_fleet_agents{cohort="all",condition="current"} 1`, `warpgauge_fleet_agents{cohort="all",condition="refused"} 0`,
		`warpgauge_fleet_rollout_state{cohort="all",state="stopped"} 1`, `warpgauge_fleet_directory_ok 1`, `warpgauge_fleet_state_ok 1`,
		`warpgauge_fleet_rollouts_total{cohort="all",result="done"} 1`, fmt.Sprintf(`warpgauge_fleet_list_info{cohort="all",hash=%q,role="stable"} 1`, hashOf(listA)),
	} {
		testkit.ErrorIf(t, !strings.Contains(metrics, want), "the metrics lack %s", want)
	}
}

// TestDocumentedMetrics compares the metrics table in docs/fleet.md with the metrics that the source names.
func TestDocumentedMetrics(t *testing.T) {
	names := func(file, pattern string) (out []string) {
		text := testkit.Get(os.ReadFile(file))(t)
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			out = append(out, m[1])
		}
		slices.Sort(out)
		return out
	}
	for kind, made := range map[string]string{"gauge": `= describeMetric\("(\w+)"`, "counter": ` newCounter\("(\w+)"`} {
		want := names("metrics.go", made)
		got := names("../../../docs/fleet.md", "(?m)^\\| `"+namePrefix+"(\\w+)` \\| "+kind+" ")
		testkit.ErrorIf(t, len(want) < 4 || !slices.Equal(got, want), "docs/fleet.md has the %ss %q, the server %q", kind, got, want)
	}
}

func TestLogins(t *testing.T) {
	s := serveFleet(t, "agents' own", "operators' own")
	for _, token := range []string{"", "x", "agents' own", "operators' ow"} {
		for _, path := range []string{"/api/v1/fleet", "/api/v1/agents", "/metrics"} {
			testkit.Equal(t, fmt.Sprintf("%s with token %q", path, token), http.StatusUnauthorized, s.request(http.MethodGet, path, token).code)
		}
		testkit.Equal(t, fmt.Sprintf("pause with token %q", token), http.StatusUnauthorized, s.request(http.MethodPost, "/api/v1/cohorts/all/pause", token).code)
	}
	testkit.Equal(t, "with the second token of the file", http.StatusOK, s.request(http.MethodGet, "/api/v1/fleet", "another").code)
	testkit.Equal(t, "/healthz", http.StatusOK, s.request(http.MethodGet, "/healthz", "").code)
	crossSite := http.Header{"Sec-Fetch-Site": {"cross-site"}}
	answer := s.send(http.MethodPost, s.askAt+"/api/v1/cohorts/all/pause", "operators' own", nil, crossSite)
	testkit.Equal(t, "from another site's page", http.StatusForbidden, answer.code)
	for _, token := range []string{"", "operators' own"} {
		testkit.Equal(t, fmt.Sprintf("an agent with token %q", token), http.StatusUnauthorized, s.post(nil, token))
	}
	testkit.Equal(t, "an unknown cohort", http.StatusConflict, s.request(http.MethodPost, "/api/v1/cohorts/none/pause", "another").code)
}

// post sends bytes as an agent.
func (s *served) post(body []byte, token string) int {
	s.t.Helper()
	return s.send(http.MethodPost, s.agentsAt+OpAMPPath, token, body, nil).code
}

// TestHostileMessages: the server refuses messages that are invalid or too large, without reading them into memory.
func TestHostileMessages(t *testing.T) {
	s := serveFleet(t, "", "")
	for name, body := range map[string][]byte{"garbage": []byte("garbage"), "large": make([]byte, maxMessage+1), "half": {0x0a, 16, 1}} {
		testkit.Equal(t, name, http.StatusBadRequest, s.post(body, ""))
	}
	testkit.Equal(t, "an empty message", http.StatusOK, s.post(nil, "")) // an OpAMP error response
	testkit.Equal(t, "refused messages that are counted", 4.0, testutil.ToFloat64(s.totals.refused.WithLabelValues(refusedMessage)))
	if slow := s.agents(nil); slow.WriteTimeout < messageWithin || slow.IdleTimeout < messageWithin {
		t.Errorf("an agent may take %v to read and %v for nothing; 0 is for ever", slow.WriteTimeout, slow.IdleTimeout)
	}
}

// TestSlowBodies: agents that send no body keep no place from agents with another credential, or address if they share it.
func TestSlowBodies(t *testing.T) {
	s, busy := serveFleet(t, "secret\nanother\nshared many", ""), 0
	for _, c := range []struct {
		token, other string
		networks     int
		served       int
	}{{"secret", "another", 1, maxOfOne}, {"many", "many", 1, maxOfMany}, {"many", "another", 15, maxHTTPRequests/2 - maxOfMany}} {
		for i := range maxHTTPRequests {
			from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, byte(c.networks), 0, byte(i%c.networks+2))}}
			c2 := testkit.Get(from.DialContext(t.Context(), "tcp", s.agentsAt))(t)
			defer c2.Close()
			fmt.Fprintf(c2, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 400000\r\n\r\n", OpAMPPath, c.token)
		}
		busy += maxHTTPRequests - c.served
		eventually.True(t, "refused", func() bool { return int(testutil.ToFloat64(s.totals.refused.WithLabelValues(refusedBusy))) == busy })
		testkit.Equal(t, "the other's report", http.StatusOK, s.post(nil, c.other))
	}
}

// TestEndpointEnds: at the end, requests have some time to finish. A listener's failure is an error.
func TestEndpointEnds(t *testing.T) {
	for lasts, answers := range map[time.Duration]bool{time.Second: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			l := bufconn.Listen(1 << 10)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				cancel()
				time.Sleep(lasts)
			})}
			go func() { ended <- (&Endpoint{Serve: (*http.Server).Serve}).serve(ctx, l, srv) }()
			c := testkit.Get(l.DialContext(t.Context()))(t)
			io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			if text, _ := io.ReadAll(c); (len(text) > 0) != answers {
				t.Errorf("the answer of a request that lasts %v is %q", lasts, text)
			}
			must(t, <-ended)
			time.Sleep(lasts) // the handler ends
			if err := (&Endpoint{Serve: (*http.Server).Serve}).serve(t.Context(), l, &http.Server{}); err == nil {
				t.Error("a closed listener serves")
			}
		})
	}
}

// TestTokenRotation: tokens change without a restart, and an unreadable file keeps the previous ones.
func TestTokenRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte("old"), 0o600))
	l := testkit.Get(NewLogin(path))(t)
	check := func(text, allowed string) {
		t.Helper()
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if text == "gone" {
			must(t, os.Remove(path))
		}
		for _, token := range []string{"", "old", "new"} {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			l.read = time.Time{}
			if _, got := l.who(r); got != (token != "" && strings.Contains(allowed, token)) {
				t.Errorf("file %q, token %q: allowed %v", text, token, got)
			}
		}
	}
	check("old\n\nnew\n", "old new")
	check("new", "new")
	check("", "new")
	check("gone", "new")
}

// TestWho: the credential is that of the token; else of the certificate or user that the listener has checked.
func TestWho(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(path, []byte("own\nshared many\n"), 0o600))
	l := testkit.Get(NewLogin(path))(t)
	asked := 0
	l.Review = func(_ context.Context, token string) (string, error) {
		asked++
		if token != "pod's" {
			return "", errors.New("unknown")
		}
		return "node a", nil
	}
	f := func(l *Login, change func(*http.Request), want credential, allowed bool) {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		change(r)
		got, ok := l.who(r)
		testkit.Equal(t, "allowed", allowed, ok)
		testkit.Equal(t, "credential", fmt.Sprint(want), fmt.Sprint(got))
	}
	bearer := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	f(l, bearer("own"), credential{"token 5b3975651c3cab92", false}, true)
	f(l, bearer("many"), credential{"token 1137b15c7797aa84", true}, true)
	f(l, bearer("shared many"), credential{}, false)
	f(l, bearer("pod's"), credential{"node a", false}, true)
	f(l, bearer("other"), credential{}, false)
	f(l, func(r *http.Request) { r.SetBasicAuth("u", "own") }, credential{}, false)
	f(nil, func(r *http.Request) { r.SetBasicAuth("u", "p") }, credential{"user u", true}, true)
	f(nil, func(*http.Request) {}, credential{"", true}, true)
	f(nil, func(r *http.Request) {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: "node-7"}}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}
	}, credential{"certificate CN=node-7", false}, true)
	testkit.Equal(t, "questions to the API server", 3, asked)
}

// FuzzMessages: whatever agents send, the core answers, keeps its bounds and offers only lists that it has.
func FuzzMessages(f *testing.F) {
	hash := newList("", []byte(listA)).Hash
	seed := testkit.Get(proto.Marshal(&protobufs.AgentToServer{
		InstanceUid: bytes.Repeat([]byte{1}, 16), Capabilities: takesLists,
		AgentDescription:   &protobufs.AgentDescription{IdentifyingAttributes: []*protobufs.KeyValue{keyValue("host.name", "a"), keyValue(opamp.LabelPrefix+"rack", "r1")}},
		RemoteConfigStatus: &protobufs.RemoteConfigStatus{LastRemoteConfigHash: []byte(hash), Status: applied},
		Health: &protobufs.ComponentHealth{ComponentHealthMap: map[string]*protobufs.ComponentHealth{
			opamp.HealthGates: {ComponentHealthMap: map[string]*protobufs.ComponentHealth{opamp.GateStalled: {Status: "1"}}}, opamp.HealthList: {LastError: "x"},
		}},
		EffectiveConfig: &protobufs.EffectiveConfig{ConfigMap: &protobufs.AgentConfigMap{ConfigMap: map[string]*protobufs.AgentConfigFile{"": {Body: []byte(listB)}}}},
	}))(f)
	f.Add(seed, seed[:20])
	f.Add([]byte{}, seed)
	totals := newTotals(prometheus.NewRegistry())
	f.Fuzz(func(t *testing.T, a, b []byte) {
		now := time.Now()
		plan := &Plan{Hash: "x", Cohorts: []*Cohort{{Name: "all", List: newList("a", []byte(listA)), Policy: Policy{Stages: []Stage{{Percent: 100}}, Timeout: time.Minute}}}}
		c := newCore(Options{Log: zap.NewNop(), MaxAgents: 1}, totals, nil, newSaved(), now)
		c.lists[hash], c.cohorts["all"] = plan.Cohorts[0].List, &status{Name: "all", Stable: hash}
		c.plan = plan
		for _, body := range [][]byte{a, b, a} {
			var m protobufs.AgentToServer
			if proto.Unmarshal(body, &m) != nil || newReport(&m) == nil {
				continue
			}
			if out := c.report(newReport(&m), credential{shared: true}, now); out.RemoteConfig != nil && string(out.RemoteConfig.Config.ConfigMap[opamp.ConfigName].Body) != listA {
				t.Errorf("offer %v", out.RemoteConfig)
			}
			c.fleet(now)
			c.find("", "", now)
			testkit.ErrorIf(t, len(c.agents) > 1, "%d agents are kept", len(c.agents))
		}
	})
}

// FuzzState: decode returns a state or an error, and decodes its own encoding again.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"format":2,"cohorts":{"a":{"name":"a","rollout":{"id":1,"stage":0}}},"members":{"a":{"01000000-0000-0000-0000-000000000007":{"before":{"series":1}}}}}`))
	f.Add([]byte(`{"lists":{"00":{"hash":"00"}}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		state, again := newSaved(), newSaved()
		if state.decode(append([]byte(checksum(content)+"\n"), content...)) != nil {
			return
		}
		text, err := state.encode()
		if err = errors.Join(err, again.decode(text)); err != nil || len(again.cohorts) != len(state.cohorts) || len(again.lists) != len(state.lists) {
			t.Errorf("%+v is read again as %+v: %v", state, again, err)
		}
	})
}
