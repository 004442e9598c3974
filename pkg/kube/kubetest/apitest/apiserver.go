// Package apitest is an API server with the pods and ResourceSlices of one node, for tests. It keeps a log of events as
// etcd does, and serves lists and watches.
//
//	api := apitest.Start(t, "node-1")
//	api.Pods(apitest.Pod("ml", "train-0", "uid-1", map[string]string{"app": "train"}))
//	cmd.Env = append(cmd.Env, "KUBECONFIG="+api.Kubeconfig())
//
// Its methods may be called concurrently.
package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"
	"k8s.io/client-go/rest"
)

// Object is an object of the API as JSON.
type Object = map[string]any

// Server is a fake API server.
type Server struct {
	tb         testing.TB
	node       string
	kubeconfig string
	memory     *bufconn.Listener // nil: serves HTTP

	mu       sync.Mutex
	down     bool // refuses connections
	versions []string
	objects  map[string]map[string]Object // by resource, then namespace/name
	log      []event
	changed  chan struct{} // closed and replaced with each change
	forgot   int           // events up to this version are compacted away
	// first sees each request before the server does and returns true if it has answered.
	first    func(w http.ResponseWriter, r *http.Request) bool
	epoch    int // version of first: a watch from an earlier epoch ends
	requests []string
}

type event struct {
	version  int
	resource string
	Type     string `json:"type"`
	Object   Object `json:"object"`
}

func newServer(tb testing.TB, node string) *Server {
	return &Server{
		tb: tb, node: node, changed: make(chan struct{}),
		versions: []string{"v1"}, objects: map[string]map[string]Object{"pods": {}, "resourceslices": {}},
	}
}

// Start returns an API server that serves HTTP until the test ends, for tests of whole programs.
func Start(tb testing.TB, node string) *Server {
	tb.Helper()
	s := newServer(tb, node)
	server := httptest.NewServer(s)
	tb.Cleanup(func() {
		server.CloseClientConnections() // watches do not end by themselves
		server.Close()
	})
	s.kubeconfig = filepath.Join(tb.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
users: [{name: test, user: {}}]
current-context: test
`, server.URL)
	if err := os.WriteFile(s.kubeconfig, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	return s
}

// Pipe returns an API server that serves in memory, so that it can run in a synctest bubble; see Config.
func Pipe(tb testing.TB, node string) *Server {
	s := newServer(tb, node)
	s.memory = bufconn.Listen(1 << 16)
	server := &http.Server{Handler: s} //nolint:gosec // the client is the test
	server.SetKeepAlivesEnabled(false) // bufconn may apply the deadline that ends a request to the next one
	go server.Serve(s.memory)          //nolint:errcheck // it ends with the test
	tb.Cleanup(func() { _ = server.Close() })
	return s
}

// Config returns a client configuration for a Server in memory.
func (s *Server) Config() (*rest.Config, error) {
	return &rest.Config{Host: "http://api.test", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		return s.memory.DialContext(ctx)
	}}, nil
}

// Kubeconfig returns a kubeconfig file for a Server that Start started.
func (s *Server) Kubeconfig() string { return s.kubeconfig }

// set changes the server and wakes up watches.
func (s *Server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// SetDown ends all watches. While the server is down, it refuses connections.
func (s *Server) SetDown(down bool) { s.set(func() { s.down = down }) }

// Versions sets the served versions of resource.k8s.io.
func (s *Server) Versions(versions ...string) { s.set(func() { s.versions = versions }) }

// Compact forgets all events, so that a watch from before gets 410.
func (s *Server) Compact() { s.set(func() { s.forgot = s.version() }) }

// AnswerFirst ends all watches and lets f see each request before the server does. f returns true if it has answered.
func (s *Server) AnswerFirst(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.set(func() { s.first, s.epoch = f, s.epoch+1 })
}

// Pods adds or changes pods.
func (s *Server) Pods(pods ...Object) {
	for _, p := range pods {
		s.change("pods", p, false)
	}
}

// Slices adds or changes ResourceSlices.
func (s *Server) Slices(slices ...Object) {
	for _, o := range slices {
		s.change("resourceslices", o, false)
	}
}

// RemovePod removes a pod.
func (s *Server) RemovePod(p Object) { s.change("pods", p, true) }

// RemoveSlice removes a ResourceSlice.
func (s *Server) RemoveSlice(o Object) { s.change("resourceslices", o, true) }

func (s *Server) change(resource string, o Object, gone bool) {
	s.set(func() {
		o = Clone(o)
		m := o["metadata"].(Object)
		key := fmt.Sprint(m["namespace"], "/", m["name"])
		_, known := s.objects[resource][key]
		e := event{version: s.version() + 1, resource: resource, Type: "ADDED", Object: o}
		m["resourceVersion"] = strconv.Itoa(e.version)
		switch {
		case gone:
			e.Type = "DELETED"
			delete(s.objects[resource], key)
		case known:
			e.Type = "MODIFIED"
			fallthrough
		default:
			s.objects[resource][key] = o
		}
		s.log = append(s.log, e)
	})
}

func (s *Server) version() int { return 100 + len(s.log) }

// Asked returns the requested paths since the last call. Paths of watches begin with "watch ".
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests
	s.requests = nil
	return r
}

// Requests returns how often a path was requested since the last call of Asked.
func (s *Server) Requests(path string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r == path {
			n++
		}
	}
	return n
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	what := r.URL.Path
	if r.URL.Query().Get("watch") != "" {
		what = "watch " + what
	}
	s.requests = append(s.requests, what)
	first, versions, down := s.first, s.versions, s.down
	s.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if first != nil && first(w, r) {
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/api/v1/pods":
		s.resource(w, r, "pods")
	case len(parts) == 4 && parts[1] == "resource.k8s.io" && parts[3] == "resourceslices" && slices.Contains(versions, parts[2]):
		s.resource(w, r, "resourceslices")
	default:
		Refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	}
}

func (s *Server) resource(w http.ResponseWriter, r *http.Request, resource string) {
	q := r.URL.Query()
	selector := "spec.nodeName=" + s.node
	if resource == "pods" {
		selector += ",status.phase!=Succeeded,status.phase!=Failed"
	}
	if got := q.Get("fieldSelector"); got != selector && got != "spec.nodeName="+s.node+",status.phase!=Failed,status.phase!=Succeeded" {
		s.tb.Errorf("%s: field selector %q: not what runs on this node only", r.URL, got)
	}
	if resource == "pods" && !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		s.tb.Errorf("%s accepts %q: more than metadata", r.URL, r.Header.Get("Accept"))
	}
	if q.Get("watch") != "" {
		s.watch(w, r, resource)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(s.objects[resource])) {
		items = append(items, s.objects[resource][key])
	}
	Reply(w, http.StatusOK, Object{"metadata": Object{"resourceVersion": strconv.Itoa(s.version())}, "items": items})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		s.tb.Errorf("%s: watch without a version to start from", r.URL)
	}
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		s.tb.Errorf("%s: watch without an end", r.URL)
	}
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	bookmark := time.NewTicker(time.Minute)
	defer bookmark.Stop()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	out := json.NewEncoder(w)
	s.mu.Lock()
	epoch := s.epoch
	s.mu.Unlock()
	for {
		s.mu.Lock()
		changed, down, over := s.changed, s.down, s.epoch != epoch
		var due []event
		for _, e := range s.log {
			if e.version > from && e.resource == resource {
				due = append(due, e)
			}
		}
		if from < s.forgot {
			due = []event{{Type: "ERROR", Object: Object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
				"reason": "Expired", "message": "too old resource version"}}}
		}
		from = s.version()
		s.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		if over {
			return
		}
		for _, e := range due {
			_ = out.Encode(e)
			if e.Type == "ERROR" {
				return
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-end.C:
			return
		case <-bookmark.C:
			_ = out.Encode(event{Type: "BOOKMARK", Object: Object{
				"metadata": Object{"resourceVersion": strconv.Itoa(from), "creationTimestamp": nil}}})
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// Reply answers with an object.
func Reply(w http.ResponseWriter, code int, o Object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o) // the client may have gone
}

// Refuse answers with a failure.
func Refuse(w http.ResponseWriter, code int, reason, message string) {
	Reply(w, code, Object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

// Clone copies an object through JSON.
func Clone(o Object) Object {
	text, err := json.Marshal(o)
	var c Object
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		panic(err) // the test's own object
	}
	return c
}
