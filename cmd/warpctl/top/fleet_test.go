package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
)

// server serves a node's answers like an exporter.
type server struct {
	*httptest.Server
	connections, requests atomic.Int64
}

func serve(t *testing.T, n *fakeNode) *server {
	t.Helper()
	s := &server{}
	mux := http.NewServeMux()
	fields, _ := n.Fields(t.Context(), nil, names())
	devices, _ := n.Devices(t.Context())
	for path, v := range map[string]any{"devices": devices, "fields": fields, "health": n.health} {
		text := testkit.Get(json.Marshal(v))(t)
		mux.HandleFunc("/api/v1/"+path, func(w http.ResponseWriter, _ *http.Request) {
			s.requests.Add(1)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(text[:1]) // the client may have left
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(text[1:]) // chunked, with an empty last chunk
		})
	}
	s.Server = httptest.NewUnstartedServer(mux)
	s.Config.ConnState = func(_ net.Conn, c http.ConnState) {
		if c == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func target(t *testing.T, url string) Target {
	t.Helper()
	c := testkit.Get(apiv1.NewClient(url, apiv1.ClientOptions{UserAgent: "test"}))(t)
	return Target{Name: c.URL(), Node: c}
}

// TestHundredNodes: a hundred nodes are polled over one connection each.
func TestHundredNodes(t *testing.T) {
	var servers []*server
	var targets []Target
	for i := range 100 {
		n := amd()
		n.devices.Hostname = fmt.Sprintf("node-%02d", i)
		servers = append(servers, serve(t, n))
		targets = append(targets, target(t, servers[i].URL))
	}
	f := newFleet(targets, 200*time.Millisecond)
	stop := testkit.Start(t, func(ctx context.Context) error { f.run(ctx); return nil })
	eventually.True(t, "each node was asked three times", func() bool {
		return !slices.ContainsFunc(f.states(), func(s *state) bool { return s.polls < 3 })
	})
	m := newModel(f)
	press(m, "end")
	shows(t, m, "100 nodes, 100 GPUs", "> node-99")
	stop()
	for i, s := range servers {
		testkit.Equal(t, fmt.Sprintf("connections to node %d for %d requests", i, s.requests.Load()), int64(1), s.connections.Load())
	}
}

// TestSilentNode: a silent node shows since when, has no values, is polled less and less often, and
// delays no other. When it answers again, everything is as before.
func TestSilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := hopper(), &hanging{fakeNode: hopper()}
		f := newFleet([]Target{{"good:9400", good}, {"bad:9400", bad}}, time.Second)
		testkit.Start(t, func(ctx context.Context) error { f.run(ctx); return nil })
		time.Sleep(10*time.Second + 500*time.Millisecond)
		if s := f.states()[1]; s.polls != 11 || s.err != "" {
			t.Fatalf("after 10 s: %d polls, error %q", s.polls, s.err)
		}
		bad.hangs.Store(true)
		began := time.Now()
		time.Sleep(time.Minute)
		s := f.states()
		testkit.ErrorIf(t, s[0].polls != 71 || !s[0].silent.IsZero(), "the other node was asked %d times", s[0].polls)
		testkit.Between(t, "silent since the end of the first wait after it began to hang", 5*time.Second, 6*time.Second, s[1].silent.Sub(began))
		testkit.Has(t, "error", s[1].err, context.DeadlineExceeded.Error())
		testkit.Between(t, "questions in a minute", 4, 8, bad.calls.Load())
		m := newModel(f)
		press(m, "g", "end")
		shows(t, m, "silent       -", "node-7 has not answered since "+s[1].silent.Format(time.TimeOnly))
		bad.hangs.Store(false)
		time.Sleep(15 * time.Second)
		if s := f.states()[1]; !s.silent.IsZero() || s.err != "" {
			t.Errorf("it answers again, but: %q since %v", s.err, s.silent)
		}
	})
}

type hanging struct {
	*fakeNode
	hangs atomic.Bool
	calls atomic.Int64
}

func (h *hanging) Devices(ctx context.Context) (*apiv1.Devices, error) {
	if h.hangs.Load() {
		h.calls.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.fakeNode.Devices(ctx)
}

func TestOnce(t *testing.T) {
	s := serve(t, hopper())
	away := httptest.NewServer(http.NotFoundHandler())
	defer away.Close()
	r := Once(t.Context(), []Target{target(t, s.URL), target(t, away.URL), {Name: "gone:9400", Node: &fakeNode{err: errors.New("no route")}}})
	testkit.FatalIf(t, !r.Silent() || len(r.Nodes) != 3 || len(r.Devices) != 8, "%d nodes, %d devices, silent: %v", len(r.Nodes), len(r.Devices), r.Silent())
	var b strings.Builder
	must(t, r.Table(&b))
	got := strings.ReplaceAll(strings.ReplaceAll(b.String(), away.URL, "AWAY"), strings.Repeat(" ", len(away.URL)-len("AWAY")), "")
	testkit.Outcome{Out: got}.Want(t, 0, "train/llm-0", "59.6/79.6", "AWAY does not answer: exporter at AWAY: it has no JSON API",
		"gone:9400 does not answer: no route\n", "node-7: 3 faulty devices; GPU 3 is failed: rows cannot be remapped; action: replace\n", "node-7 (simulated)\n")
	text := testkit.Get(json.Marshal(r))(t)
	testkit.Outcome{Out: string(text)}.Want(t, 0, `"utilization_percent":97`, `"memory_total_bytes":85520809984`, `"users":["train/llm-0"]`, `"error":"no route"`)
}
