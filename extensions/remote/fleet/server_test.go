package fleet

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/open-telemetry/opamp-go/client"
	"github.com/open-telemetry/opamp-go/client/types"
	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"warpgauge/extensions/remote/opamp"
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

func serveHTTP(l net.Listener, srv *http.Server) error { return srv.Serve(l) }

// serveFleet starts a server; tokens are those of agents and operators, empty: none.
func serveFleet(t *testing.T, agentToken, token string, agents func(net.Listener, *http.Server) error) *served {
	t.Helper()
	s := &served{t: t, directory: writeDirectory(t, map[string]string{FleetFile: allAtOnce, "a.csv": listA})}
	registry := prometheus.NewRegistry()
	s.Server = New(Options{
		Directory: s.directory, ReloadInterval: 100 * time.Millisecond, State: file.Private{Path: filepath.Join(t.TempDir(), "state"), Of: "the state"},
		MaxAgents: 100, Registry: registry, Log: zap.NewNop(), Version: "test",
	})
	login := func(text string) *Login {
		if text == "" {
			return nil
		}
		path := filepath.Join(t.TempDir(), "token")
		must(t, os.WriteFile(path, []byte("\n"+text+"\nanother\n"), 0o600))
		l, err := NewLogin(path)
		must(t, err)
		return l
	}
	endpoint := func(token string, serve func(net.Listener, *http.Server) error) (*Endpoint, string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		return &Endpoint{Listener: l, Login: login(token), Serve: serve}, l.Addr().String()
	}
	a, agentsAt := endpoint(agentToken, agents)
	o, askAt := endpoint(token, serveHTTP)
	s.agentsAt, s.askAt = agentsAt, askAt
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, a, o) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })
	return s
}

func (s *served) request(method, path, token string) answered {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.askAt+path, http.NoBody)
	must(s.t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return s.send(r)
}

// answered is what a server has answered.
type answered struct {
	text   string
	code   int
	header http.Header
}

func (s *served) send(r *http.Request) answered {
	s.t.Helper()
	c := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Do(r)
	must(s.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(s.t, err)
	return answered{string(body), response.StatusCode, response.Header}
}

func (s *served) agentStates() (out Agents) {
	s.t.Helper()
	body := s.request(http.MethodGet, "/api/v1/agents", "").text
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		s.t.Fatalf("%v: %s", err, body)
	}
	return out
}

// foreign is opamp-go's own client with the callbacks of its example.
type foreign struct {
	client.OpAMPClient
	mu   sync.Mutex
	list string // body of the last one
	kind string
	fail bool
}

func startForeign(t *testing.T, c client.OpAMPClient, url string, uid byte, header http.Header, fail bool) *foreign {
	t.Helper()
	f := &foreign{OpAMPClient: c, fail: fail}
	if err := c.SetAgentDescription(&protobufs.AgentDescription{
		IdentifyingAttributes:    []*protobufs.KeyValue{keyValue("service.name", "x"), keyValue("service.version", "9")},
		NonIdentifyingAttributes: []*protobufs.KeyValue{keyValue("host.name", fmt.Sprintf("host-%d", uid)), keyValue(opamp.LabelPrefix+"rack", "r1")},
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetHealth(&protobufs.ComponentHealth{Healthy: true, ComponentHealthMap: map[string]*protobufs.ComponentHealth{
		opamp.HealthGates:   {Healthy: true, ComponentHealthMap: map[string]*protobufs.ComponentHealth{opamp.GateSeries: {Healthy: true, Status: "12"}}},
		opamp.HealthDevices: {ComponentHealthMap: map[string]*protobufs.ComponentHealth{"GPU-1": {LastError: "stalled"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	err := c.Start(t.Context(), types.StartSettings{
		OpAMPServerURL: url, Header: header, InstanceUid: types.InstanceUid{15: uid},
		Capabilities: protobufs.AgentCapabilities_AgentCapabilities_ReportsStatus | protobufs.AgentCapabilities_AgentCapabilities_AcceptsRemoteConfig |
			protobufs.AgentCapabilities_AgentCapabilities_ReportsRemoteConfig | protobufs.AgentCapabilities_AgentCapabilities_ReportsHealth,
		Callbacks: types.Callbacks{OnMessage: func(_ context.Context, m *types.MessageData) {
			if m.RemoteConfig == nil {
				return
			}
			file := m.RemoteConfig.Config.ConfigMap[opamp.ConfigName]
			f.mu.Lock()
			f.list, f.kind = string(file.GetBody()), file.GetContentType()
			f.mu.Unlock()
			status := &protobufs.RemoteConfigStatus{LastRemoteConfigHash: m.RemoteConfig.ConfigHash, Status: applied}
			if f.fail {
				status.Status, status.ErrorMessage = failed, "line 1: not here"
			}
			if err := c.SetRemoteConfigStatus(status); err != nil {
				t.Error(err)
			}
		}},
	})
	must(t, err)
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *foreign) got() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kind + " " + f.list
}

// opamp-go's own clients report, get a list and say what became of it.
func TestForeignClients(t *testing.T) {
	s := serveFleet(t, "secret", "", serveHTTP)
	header := http.Header{"Authorization": {"Bearer secret"}}
	ws := startForeign(t, client.NewWebSocket(nil), "ws://"+s.agentsAt+OpAMPPath, 1, header, false)
	plain := startForeign(t, client.NewHTTP(nil), "http://"+s.agentsAt+OpAMPPath, 2, header, false)
	changes := 0
	nudge := func() { // the client polls every 30 s, and when there is something new
		changes++
		if err := plain.SetHealth(&protobufs.ComponentHealth{Healthy: true, Status: fmt.Sprint(changes)}); err != nil {
			t.Error(err)
		}
	}
	current := func(list string) {
		t.Helper()
		eventually.OK(t, "both have the list and said so", func() error {
			nudge()
			for _, f := range []*foreign{ws, plain} {
				if f.got() != "text/csv "+list {
					return fmt.Errorf("a client has %q", f.got())
				}
			}
			a := s.agentStates()
			if len(a.Agents) != 2 {
				return fmt.Errorf("%d agents", len(a.Agents))
			}
			for _, state := range a.Agents {
				if state.Condition != Current || state.Answered != hashOf(list) {
					return fmt.Errorf("agent %+v", state)
				}
			}
			return nil
		})
	}
	done := func(list string) {
		t.Helper()
		eventually.OK(t, "the rollout is done", func() error {
			body := s.request(http.MethodGet, "/api/v1/fleet", "").text
			var f Fleet
			if err := json.Unmarshal([]byte(body), &f); err != nil {
				return err
			}
			if f.Cohorts[0].Stable != hashOf(list) {
				return errors.New(body)
			}
			return nil
		})
	}
	current(listA)
	done(listA)
	must(t, os.WriteFile(filepath.Join(s.directory, "a.csv"), []byte(listB), 0o600))
	current(listB)
	a := s.agentStates().Agents
	if !a[0].WebSocket || a[1].WebSocket || a[0].Host != "host-1" || a[0].Version != "9" || a[0].Labels["rack"] != "r1" || a[0].Numbers[series] != 12 || len(a[0].Troubles) != 1 {
		t.Errorf("agents %+v", a)
	}

	done(listB)
	refuses := startForeign(t, client.NewWebSocket(nil), "ws://"+s.agentsAt+OpAMPPath, 3, header, true)
	eventually.OK(t, "the third refuses", func() error {
		for _, state := range s.agentStates().Agents {
			if state.Condition == Refused && state.Error == "line 1: not here" {
				return nil
			}
		}
		return fmt.Errorf("it has %q", refuses.got())
	})
	page := s.request(http.MethodGet, "/", "")
	for _, want := range []string{"line 1: not here", "host-3", "a.csv"} {
		if !strings.Contains(page.text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if policy := page.header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(page.text, "http://") || strings.Contains(page.text, "<script") {
		t.Errorf("policy %q, or the page asks elsewhere", policy)
	}
	metrics := s.request(http.MethodGet, "/metrics", "").text
	for _, want := range []string{
		`warpgauge_fleet_agents{cohort="all",condition="current"} 2`, `warpgauge_fleet_agents{cohort="all",condition="refused"} 1`,
		`warpgauge_fleet_rollout_state{cohort="all",state="done"} 1`, `warpgauge_fleet_directory_ok 1`, `warpgauge_fleet_state_ok 1`,
		`warpgauge_fleet_rollouts_total{cohort="all",result="done"} 2`, fmt.Sprintf(`warpgauge_fleet_list_info{cohort="all",hash=%q,role="stable"} 1`, hashOf(listB)),
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// dial opens a WebSocket as an agent.
func (s *served) dial(scheme string) *websocket.Conn {
	s.t.Helper()
	dialer := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, HandshakeTimeout: 10 * time.Second}
	conn, response, err := dialer.DialContext(s.t.Context(), scheme+"://"+s.agentsAt+OpAMPPath, nil)
	must(s.t, err)
	_ = response.Body.Close()
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// report sends an honest agent's message, and returns the answer.
func (s *served) report(conn *websocket.Conn) *protobufs.ServerToAgent {
	s.t.Helper()
	m, err := proto.Marshal(&protobufs.AgentToServer{InstanceUid: bytes.Repeat([]byte{1}, 16), Capabilities: takesLists, AgentDescription: &protobufs.AgentDescription{}})
	must(s.t, err)
	must(s.t, conn.WriteMessage(websocket.BinaryMessage, append([]byte{0}, m...)))
	return s.read(conn)
}

func (s *served) read(conn *websocket.Conn) *protobufs.ServerToAgent {
	s.t.Helper()
	_, body, err := conn.ReadMessage()
	must(s.t, err)
	answer := &protobufs.ServerToAgent{}
	must(s.t, proto.Unmarshal(body[1:], answer))
	return answer
}

// ended checks that the server ends a WebSocket.
func (s *served) ended(what string, conn *websocket.Conn) {
	s.t.Helper()
	must(s.t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				s.t.Errorf("%s: the server keeps the connection", what)
			}
			return
		}
	}
}

// Limits hold for WebSockets over TLS, too, and a second connection of an agent takes the place of the first.
func TestWebSocketOverTLS(t *testing.T) {
	other := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer other.Close()
	s := serveFleet(t, "", "", func(l net.Listener, srv *http.Server) error {
		return srv.Serve(tls.NewListener(l, &tls.Config{Certificates: other.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}))
	})
	first := s.dial("wss")
	s.report(first)
	second := s.dial("wss")
	s.report(second)
	s.ended("the first connection", first)
	_ = second.WriteMessage(websocket.BinaryMessage, make([]byte, 4*maxBetween)) // the server may close it meanwhile
	s.ended("a message that is too large", second)
}

// The table of metrics in docs/fleet.md has those of a server, no more and no less.
func TestDocumentedMetrics(t *testing.T) {
	page, err := os.ReadFile("../../../docs/fleet.md")
	must(t, err)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(warpgauge_fleet_\\w+)` \\| (gauge|counter) ").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]+" "+m[2]] = true
	}
	s := serveFleet(t, "", "", serveHTTP)
	source, err := os.ReadFile("metrics.go")
	must(t, err)
	s.refuse(refusedLogin)
	s.totals.messages.WithLabelValues("http")
	s.totals.results.WithLabelValues("all", "done")
	eventually.OK(t, "all metrics", func() error {
		metrics := s.request(http.MethodGet, "/metrics", "").text
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (warpgauge_fleet_\w+) (\w+)$`).FindAllStringSubmatch(metrics, -1) {
			if !documented[m[1]+" "+m[2]] {
				t.Errorf("%s %s is not in docs/fleet.md", m[1], m[2])
			}
		}
		if strings.Count(metrics, "# TYPE warpgauge_fleet_") < 12 {
			return errors.New("the directory is not taken yet")
		}
		return nil
	})
	if made := strings.Count(string(source), "= describeMetric(\"") + strings.Count(string(source), " newCounter(\""); made != len(documented) {
		t.Errorf("docs/fleet.md has %d metrics, the server %d", len(documented), made)
	}
}

func TestLogins(t *testing.T) {
	s := serveFleet(t, "agents' own", "operators' own", serveHTTP)
	code := func(method, path, token string) int {
		return s.request(method, path, token).code
	}
	for _, token := range []string{"", "x", "agents' own", "operators' ow"} {
		for _, path := range []string{"/", "/api/v1/fleet", "/api/v1/agents", "/metrics"} {
			if got := code(http.MethodGet, path, token); got != http.StatusUnauthorized {
				t.Errorf("%s with token %q: %d", path, token, got)
			}
		}
		if got := code(http.MethodPost, "/api/v1/cohorts/all/pause", token); got != http.StatusUnauthorized {
			t.Errorf("pause with token %q: %d", token, got)
		}
	}
	if got := code(http.MethodGet, "/api/v1/fleet", "another"); got != http.StatusOK {
		t.Errorf("with the second token of the file: %d", got)
	}
	if got := code(http.MethodGet, "/healthz", ""); got != http.StatusOK {
		t.Errorf("/healthz: %d", got)
	}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.askAt+"/api/v1/cohorts/all/pause", http.NoBody)
	r.SetBasicAuth("me", "operators' own")
	if got := s.send(r).code; got != http.StatusConflict {
		t.Errorf("as a password: %d", got)
	}
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if got := s.send(r).code; got != http.StatusForbidden {
		t.Errorf("from another site's page: %d", got)
	}
	for _, token := range []string{"", "operators' own"} {
		if got := s.post(nil, "", token); got != http.StatusUnauthorized {
			t.Errorf("an agent with token %q: %d", token, got)
		}
	}
	if got := code(http.MethodPost, "/api/v1/cohorts/none/pause", "another"); got != http.StatusConflict {
		t.Errorf("an unknown cohort: %d", got)
	}
}

// post sends bytes as an agent.
func (s *served) post(body []byte, encoding, token string) int {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.agentsAt+OpAMPPath, bytes.NewReader(body))
	must(s.t, err)
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("Content-Encoding", encoding)
	r.Header.Set("Authorization", "Bearer "+token)
	return s.send(r).code
}

// What is no message, or too large, packed or not, is refused without memory for all of it.
func TestHostileMessages(t *testing.T) {
	s := serveFleet(t, "", "", serveHTTP)
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 8 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	must(t, w.Close())
	for name, got := range map[string]int{
		"garbage": s.post([]byte("garbage"), "", ""), "bomb": s.post(bomb.Bytes(), "gzip", ""), "no gzip": s.post([]byte("x"), "gzip", ""),
		"large": s.post(make([]byte, maxMessage+1), "", ""),
	} {
		if got != http.StatusBadRequest {
			t.Errorf("%s: %d", name, got)
		}
	}
	if got := s.post(nil, "", ""); got != http.StatusOK { // an OpAMP error response
		t.Errorf("an empty message: %d", got)
	}

	for kind, message := range map[int]string{websocket.TextMessage: "x", websocket.BinaryMessage: "\x00garbage"} {
		conn := s.dial("ws")
		must(t, conn.WriteMessage(kind, []byte(message)))
		s.ended(message, conn)
	}
	large := s.dial("ws")
	writer, err := large.NextWriter(websocket.BinaryMessage)
	must(t, err)
	sent := 0
	for ; sent < 64; sent++ {
		if _, err := writer.Write(zeros); err != nil {
			break // the server has closed it
		}
	}
	if sent == 64 {
		t.Error("the server took a message of 64 MiB")
	}
	s.ended("large", large)

	// An honest agent is served all the same.
	honest := s.dial("ws")
	answer := s.report(honest)
	eventually.OK(t, "it gets the list", func() error {
		if got := hex.EncodeToString(answer.RemoteConfig.GetConfigHash()); got != hashOf(listA) {
			answer = s.read(honest)
			return fmt.Errorf("hash %q", got)
		}
		return nil
	})
	if got := testutil.ToFloat64(s.totals.refused.WithLabelValues(refusedMessage)); got < 5 {
		t.Errorf("%v refused messages are counted", got)
	}
}

// Tokens change without a restart, and a file that cannot be read leaves those before.
func TestTokenRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if _, err := NewLogin(path); err == nil {
		t.Error("a file that is not there was taken")
	}
	must(t, os.WriteFile(path, []byte("old"), 0o600))
	l, err := NewLogin(path)
	must(t, err)
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
			if got := l.Allows(r); got != (token != "" && strings.Contains(allowed, token)) {
				t.Errorf("file %q, token %q: allowed %v", text, token, got)
			}
		}
	}
	check("old\nnew\n", "old new")
	check("new", "new")
	check("", "new")
	check("gone", "new")
}
