package opamp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"google.golang.org/protobuf/proto"

	"warpgauge/extensions/remote/transport"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/lists"
)

// answer returns a handler that sends a message.
func answer(t *testing.T, m *protobufs.ServerToAgent) http.HandlerFunc {
	t.Helper()
	b := testkit.Get(proto.Marshal(m))(t)
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(b)
	}
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// TestFaultsOfTheServer: each fault is reported, slows the polls down and leaves the list in
// service. The server's list is applied after the server recovers.
func TestFaultsOfTheServer(t *testing.T) {
	// The handler reads the body first: the server detects that the client has gone only after that.
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	filled := func(n int) *protobufs.ServerToAgent {
		m := config("many", "file0", "", csv)
		for i := range n {
			m.Config.ConfigMap[fmt.Sprintf("file%d", i)] = &protobufs.AgentConfigFile{}
		}
		return &protobufs.ServerToAgent{RemoteConfig: m}
	}
	var written atomic.Int64
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
		least   time.Duration // minimum time until the second request
	}{
		"hangs": {hang, "has not answered within", 0},
		"hangs in answer": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			hang(w, r)
		}, "read the answer: the server has not answered within", 0},
		"drips": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte{0x0a}); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				time.Sleep(time.Second)
			}
		}, "read the answer: the server has not answered within", 0},
		"10 GB": {func(w http.ResponseWriter, _ *http.Request) {
			n, _ := io.CopyN(w, rand.NewChaCha8([32]byte{1}), 10<<30)
			written.Store(max(written.Load(), n))
		}, "the server's message is too long: more than 4718592 bytes", 0},
		"128 KiB of header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 128<<10)) }, "server response headers exceeded", 0},
		"garbage": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.CopyN(w, rand.NewChaCha8([32]byte{1}), 5000)
		}, "cannot decode the server's OpAMP message", 0},
		"half an answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "500")
			_, _ = w.Write(make([]byte, 9))
		}, "unexpected EOF", 0},
		"text not UTF-8":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0x12, 3, 0x12, 1, 0xff}) }, "invalid UTF-8", 0},
		"many files":       {answer(t, filled(1000)), "the configuration has more than 64 files", 0},
		"too large for it": {status(413), "HTTP status 413", 0},
		"redirect":         {status(307, "Location", "http://evil.example/"), "redirects are not followed", 0},
		"overloaded":       {status(503, "Retry-After", "1200"), "HTTP status 503", 20 * time.Minute},
		"overloaded until": {status(503, "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"), "HTTP status 503", time.Hour},
		"retry nonsense":   {status(503, "Retry-After", "-1e99"), "HTTP status 503", 0},
		"unavailable": {answer(t, &protobufs.ServerToAgent{ErrorResponse: &protobufs.ServerErrorResponse{
			Type:    protobufs.ServerErrorResponseType_ServerErrorResponseType_Unavailable,
			Details: &protobufs.ServerErrorResponse_RetryInfo{RetryInfo: &protobufs.RetryInfo{RetryAfterNanoseconds: 1 << 63}},
		}}), "the server reports an error: Unavailable", time.Hour},
		"bad request": {answer(t, &protobufs.ServerToAgent{ErrorResponse: &protobufs.ServerErrorResponse{
			Type: protobufs.ServerErrorResponseType_ServerErrorResponseType_BadRequest, ErrorMessage: "no \x1b[31m" + strings.Repeat("x", 9999),
		}}), "the server reports an error: BadRequest", 0},
		"error and list": {answer(t, &protobufs.ServerToAgent{ErrorResponse: &protobufs.ServerErrorResponse{ErrorMessage: "oops"}, RemoteConfig: config("r", "", "", csv)}), "the server reports an error: Unknown", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var requests []time.Time
				var sizes []int64
				well := false
				p := &peer{reply: offering(config("good", ConfigName, "text/csv", csv))}
				good, conn := p.handler(t)
				b := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					requests, sizes = append(requests, time.Now()), append(sizes, r.ContentLength)
					h := c.handler
					if well {
						h = good.ServeHTTP
					}
					mu.Unlock()
					h(w, r)
				}), conn, nil)
				hours := 1
				if c.least > 0 {
					hours = 3
				}
				elapse(time.Duration(hours) * time.Hour)
				mu.Lock()
				n := len(requests)
				testkit.Between(t, fmt.Sprintf("requests in %d hours of failure", hours), 3, hours*30, n)
				testkit.Between(t, "time from the first request to the second", max(c.least, interval/2), max(c.least*5/4+time.Second, 2*interval), requests[1].Sub(requests[0]))
				// A server that refuses a message never gets the same one again. After another fault it gets the full state again.
				testkit.Equal(t, fmt.Sprintf("the second message has %d bytes, the first one %d", sizes[1], sizes[0]), name == "too large for it" || name == "bad request", (sizes[1] < sizes[0]/2))
				for i := 1; i < n; i++ {
					testkit.AtMost(t, "time between two requests", transport.MaxRetryAfter*5/4, requests[i].Sub(requests[i-1]))
				}
				well = true
				mu.Unlock()
				failures, _, answers := b.heard()
				if len(b.lists()) != 0 || answers != 0 {
					t.Errorf("lists %q, %d good answers", b.lists(), answers)
				}
				testkit.ErrorIf(t, !strings.Contains(failures[0], c.want) || len(failures[0]) > 500, "the fault is called %.600q, want %q", failures[0], c.want)
				elapse(2*transport.MaxRetryAfter + time.Minute)
				if m, _ := p.view(); m == nil || statusText(m.RemoteConfigStatus) != "good APPLIED" {
					t.Errorf("when the server is well: %v", m)
				}
			})
		})
	}
	testkit.AtMost(t, "bytes of a long answer that were read", minMessage+1<<20, written.Load())
}

// TestFaultsOfOffers: the agent refuses an offer without a usable list and tells the sender why.
func TestFaultsOfOffers(t *testing.T) {
	files := func(hash string, names ...string) *protobufs.AgentRemoteConfig {
		m := map[string]*protobufs.AgentConfigFile{}
		for _, n := range names {
			m[n] = &protobufs.AgentConfigFile{Body: []byte(csv)}
		}
		return &protobufs.AgentRemoteConfig{ConfigHash: []byte(hash), Config: &protobufs.AgentConfigMap{ConfigMap: m}}
	}
	for name, c := range map[string]struct {
		offer *protobufs.AgentRemoteConfig
		want  []string
	}{
		"no hash":       {config("", ConfigName, "", csv), []string{"no config_hash"}},
		"long hash":     {config(strings.Repeat("h", 10000), ConfigName, "", csv), []string{"config_hash has 10000 bytes"}},
		"an empty list": {config("x", ConfigName, "", ""), []string{"list is empty"}},
		"other files":   {files("x", "collector.yaml", "supervisor.yaml"), []string{"other names (2)", `name the field list "field-list", or leave its name empty`}},
		"other content": {config("x", ConfigName, "application/"+strings.Repeat("x", 52), "{}"), []string{"another content type", "text/csv or application/yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{reply: always(&protobufs.ServerToAgent{RemoteConfig: c.offer})}
				b := startPeer(t, p, nil)
				elapse(time.Hour)
				m, n := p.view()
				testkit.Equal(t, "status", protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED, m.RemoteConfigStatus.Status)
				testkit.Has(t, "error message", m.RemoteConfigStatus.ErrorMessage, append(c.want, "the list in service stays, SHA-256 5ca1ab1e")...)
				if failures, refusals, _ := b.heard(); len(b.lists()) != 0 || len(refusals) != 1 || len(failures) != 0 {
					t.Errorf("lists %q, refusals %q, failures %q", b.lists(), refusals, failures)
				}
				testkit.AtMost(t, "messages in an hour", 130, n)
			})
		})
	}
}

func TestListAmongFiles(t *testing.T) {
	const yaml = "# a list\nversion: 2\nfields:\n  - name: DCGM_FI_DEV_GPU_TEMP\n"
	for name, c := range map[string]struct {
		offer *protobufs.AgentRemoteConfig
		yaml  bool
		body  string
	}{
		"by name":         {config("h", ConfigName, "text/csv", csv), false, csv},
		"without a name":  {config("h", "", "text/csv; charset=utf-8", csv), false, csv},
		"YAML":            {config("h", "", "application/yaml", yaml), true, yaml},
		"text/yaml":       {config("h", "", "text/yaml", yaml), true, yaml},
		"YAML by looks":   {config("h", "", "", yaml), true, yaml},
		"CSV by looks":    {config("h", "", "text/plain", "# Format: a, b\n\n"+csv), false, "# Format: a, b\n\n" + csv},
		"withdrawal":      {&protobufs.AgentRemoteConfig{ConfigHash: []byte("h")}, false, ""},
		"colon in a help": {config("h", "", "", "DCGM_FI_DEV_GPU_TEMP, gauge, unit: C"), false, "DCGM_FI_DEV_GPU_TEMP, gauge, unit: C"},
	} {
		o := newOffer(c.offer, "opamp+https://x")
		testkit.ErrorIf(t, o.err != nil || o.list.YAML != c.yaml || string(o.list.Content) != c.body || o.list.Revision != "68", "%s: %v, %+v", name, o.err, o.list)
	}
}

// TestOneHashIsOneList: if two lists come with one config_hash, the first one stays.
func TestOneHashIsOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{reply: func(n int, _ *protobufs.AgentToServer) *protobufs.ServerToAgent {
			if n%2 == 0 {
				return &protobufs.ServerToAgent{RemoteConfig: config("r1", "", "", "other, gauge, x\n")}
			}
			return &protobufs.ServerToAgent{RemoteConfig: config("r1", "", "", csv)}
		}}
		b := startPeer(t, p, nil)
		elapse(4 * interval)
		testkit.Equal(t, "lists, only the first one", []string{csv}, b.lists())
		m, _ := p.view()
		testkit.Has(t, "error message", m.RemoteConfigStatus.ErrorMessage, "config_hash came with another list before")
	})
}

// TestReplayedOfferIsNoChange: an offer that comes with every answer changes the list once; an applied one changes nothing.
func TestReplayedOfferIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{reply: always(&protobufs.ServerToAgent{RemoteConfig: config("r1", "", "", csv)})}
		b := startPeer(t, p, nil)
		elapse(time.Hour)
		testkit.Equal(t, "changes", 1, len(b.lists()))
		if m, n := p.view(); statusText(m.RemoteConfigStatus) != "r1 APPLIED" || n > 130 {
			t.Errorf("%d messages, status %v", n, m.RemoteConfigStatus)
		}
		// A failed list may succeed later.
		b.outcome = func(*lists.Offer) *lists.Outcome {
			return &lists.Outcome{Answer: lists.Failed, Err: errors.New("busy")}
		}
		p.set(always(&protobufs.ServerToAgent{RemoteConfig: config("r2", "", "", csv)}))
		elapse(time.Hour)
		testkit.Between(t, fmt.Sprintf("tries of a list that fails in an hour, about one in %s", retryFailed), 8, 12, len(b.lists())-1)
	})
}

// TestOtherPartsTakeNoMemory: unused parts are not decoded, because a decoded map of small entries is many times larger.
func TestOtherPartsTakeNoMemory(t *testing.T) {
	m := &protobufs.ServerToAgent{PackagesAvailable: &protobufs.PackagesAvailable{Packages: map[string]*protobufs.PackageAvailable{}}}
	for i := range 200_000 {
		m.PackagesAvailable.Packages[fmt.Sprint(i)] = nil
	}
	b, err := proto.Marshal(m)
	must(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, others, err := decode(b)
	runtime.ReadMemStats(&after)
	must(t, err)
	testkit.Equal(t, "other parts", []string{"packages"}, others)
	testkit.AtMost(t, "bytes for a message", uint64(len(b)), after.TotalAlloc-before.TotalAlloc)
}

func FuzzReceive(f *testing.F) {
	for _, m := range []*protobufs.ServerToAgent{
		{},
		{RemoteConfig: config("h", ConfigName, "text/csv", csv), Flags: 1, Capabilities: 7},
		{RemoteConfig: config("h", "x", "", "a: b")},
		{AgentIdentification: &protobufs.AgentIdentification{NewInstanceUid: []byte("0123456789abcdef")}},
		{ErrorResponse: &protobufs.ServerErrorResponse{ErrorMessage: "no", Details: &protobufs.ServerErrorResponse_RetryInfo{RetryInfo: &protobufs.RetryInfo{RetryAfterNanoseconds: 5}}}},
		{Command: &protobufs.ServerToAgentCommand{}, CustomMessage: &protobufs.CustomMessage{Data: []byte("x")}},
	} {
		b := testkit.Get(proto.Marshal(m))(f)
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		a := quietAgent(t)
		for _, b := range [][]byte{first, second} {
			a.receive(b)
			m, _ := a.message()
			testkit.Get(proto.Marshal(m))(t)
			testkit.AtMost(t, "bytes of reason", maxReason+200, len(m.GetRemoteConfigStatus().GetErrorMessage()))
			if a.waiting != nil && (a.waiting.list == nil || !bytes.Contains(slices.Concat(first, []byte{0}, second), a.waiting.list.Content)) {
				t.Fatalf("%+v is to be delivered", a.waiting)
			}
			testkit.AtMost(t, "time until the next message", transport.MaxRetryAfter*6/5, time.Until(a.poll))
		}
	})
}
