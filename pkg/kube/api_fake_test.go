package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/client-go/rest"
)

// apiServer speaks as much of the Kubernetes API as a Client asks for, over pipes,
// so that it can be in a bubble of synctest. It keeps a log of events as etcd does.
type apiServer struct {
	t      *testing.T
	http   *http.Server
	accept chan net.Conn
	closed chan struct{}

	mu       sync.Mutex
	down     bool // refuses connections
	versions []string
	objects  map[string]map[string]object // by resource, then namespace/name
	log      []apiEvent
	changed  chan struct{}
	forgot   int  // events up to this version are compacted away
	old      bool // ignores limits of lists that it has in memory, as before 1.34
	// first looks at each request before the server does; true: it has answered.
	first    func(w http.ResponseWriter, r *http.Request) bool
	epoch    int // of first: watches from before end
	requests []string
}

type object = map[string]any

type apiEvent struct {
	version  int
	resource string
	Type     string `json:"type"`
	Object   object `json:"object"`
}

func newFakeAPI(t *testing.T) *apiServer {
	s := &apiServer{t: t, accept: make(chan net.Conn), closed: make(chan struct{}), changed: make(chan struct{}),
		versions: []string{"v1", "v1beta2", "v1beta1"}, objects: map[string]map[string]object{"pods": {}, "resourceslices": {}}}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve)}
	go s.http.Serve(pipes{s})
	t.Cleanup(func() { s.http.Close() })
	return s
}

// pipes is the listener of an apiServer.
type pipes struct{ *apiServer }

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	close(p.closed)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (s *apiServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: refused()}
	}
	ours, theirs := net.Pipe()
	select {
	case s.accept <- theirs:
		return ours, nil
	case <-s.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *apiServer) config() (*rest.Config, error) {
	return &rest.Config{Host: "http://api.test", Dial: s.dial}, nil
}

// setDown ends all watches; while down, there are no connections.
func (s *apiServer) setDown(down bool) {
	s.mu.Lock()
	s.down = down
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

func (s *apiServer) answerFirst(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first = f
	s.epoch++
	close(s.changed)
	s.changed = make(chan struct{})
}

// put adds or changes an object and tells watchers.
func (s *apiServer) put(resource string, o object) {
	s.change(resource, o, false)
}

func (s *apiServer) remove(resource string, o object) {
	s.change(resource, o, true)
}

func (s *apiServer) change(resource string, o object, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := o["metadata"].(object)
	key := fmt.Sprint(m["namespace"], "/", m["name"])
	_, known := s.objects[resource][key]
	version := s.version() + 1
	o = clone(o)
	o["metadata"].(object)["resourceVersion"] = strconv.Itoa(version)
	e := apiEvent{version: version, resource: resource, Type: "ADDED", Object: o}
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
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *apiServer) version() int { return 100 + len(s.log) }

// compact forgets all events, so that a watch from before gets 410.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgot = s.version()
}

// asked returns the requests since it was called last.
func (s *apiServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests
	s.requests = nil
	return r
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
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
	case r.URL.Path == "/apis/resource.k8s.io" && len(versions) > 0:
		group := object{"kind": "APIGroup", "apiVersion": "v1", "name": "resource.k8s.io"}
		list := []any{}
		for _, v := range versions {
			list = append(list, object{"groupVersion": "resource.k8s.io/" + v, "version": v})
		}
		group["versions"] = list
		reply(w, http.StatusOK, group)
	case len(parts) == 4 && parts[1] == "resource.k8s.io" && parts[3] == "resourceslices" && slices.Contains(versions, parts[2]):
		s.resource(w, r, "resourceslices")
	default:
		refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	}
}

func (s *apiServer) resource(w http.ResponseWriter, r *http.Request, resource string) {
	q := r.URL.Query()
	if q.Get("fieldSelector") != "spec.nodeName=node-1" {
		s.t.Errorf("%s: field selector %q: not of this node only", r.URL, q.Get("fieldSelector"))
	}
	if resource == "pods" && !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		s.t.Errorf("%s accepts %q: more than metadata", r.URL, r.Header.Get("Accept"))
	}
	if q.Get("sendInitialEvents") != "" {
		refuse(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		return
	}
	if q.Get("watch") != "" {
		s.watch(w, r, resource)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Get("continue") != "" && (q.Get("resourceVersion") != "" || q.Get("resourceVersionMatch") != "") {
		refuse(w, http.StatusBadRequest, "BadRequest", "resourceVersion and resourceVersionMatch are forbidden with continue")
		return
	}
	keys := slices.Sorted(maps.Keys(s.objects[resource]))
	m := object{"resourceVersion": strconv.Itoa(s.version())}
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 && (q.Get("resourceVersion") != "0" || !s.old) {
		from, _ := strconv.Atoi(q.Get("continue"))
		if keys = keys[from:]; len(keys) > limit {
			keys, m["continue"] = keys[:limit], strconv.Itoa(from+limit)
		}
	}
	items := []any{}
	for _, key := range keys {
		items = append(items, s.objects[resource][key])
	}
	reply(w, http.StatusOK, object{"kind": kinds[resource] + "List", "apiVersion": groups[resource], "metadata": m, "items": items})
}

var (
	kinds  = map[string]string{"pods": "PartialObjectMetadata", "resourceslices": "ResourceSlice"}
	groups = map[string]string{"pods": "meta.k8s.io/v1", "resourceslices": "resource.k8s.io/v1"}
)

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource string) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		s.t.Errorf("%s: watch without a version to start from", r.URL)
	}
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		s.t.Errorf("%s: watch without an end", r.URL)
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
		var due []apiEvent
		for _, e := range s.log {
			if e.version > from && e.resource == resource {
				due = append(due, e)
			}
		}
		if from < s.forgot {
			due = []apiEvent{{Type: "ERROR", Object: object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
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
			out.Encode(e)
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
			out.Encode(apiEvent{Type: "BOOKMARK", Object: object{"kind": kinds[resource], "apiVersion": groups[resource],
				"metadata": object{"resourceVersion": strconv.Itoa(from), "creationTimestamp": nil}}})
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func reply(w http.ResponseWriter, code int, o object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(o)
}

func refuse(w http.ResponseWriter, code int, reason, message string) {
	reply(w, code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

func clone(o object) object {
	text, _ := json.Marshal(o)
	var c object
	json.Unmarshal(text, &c)
	return c
}

func podObject(namespace, name, uid string, labels object) object {
	return object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
		"metadata": object{"namespace": namespace, "name": name, "uid": uid, "labels": labels}}
}

// sliceObject is one of version v1; devices are attributes by name.
func sliceObject(name, driver, pool string, generation, count int, devices ...object) object {
	list := []any{}
	for _, d := range devices {
		list = append(list, d)
	}
	return object{"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1", "metadata": object{"name": name},
		"spec": object{"driver": driver, "nodeName": "node-1", "devices": list,
			"pool": object{"name": pool, "generation": generation, "resourceSliceCount": count}}}
}

func gpuObject(name, uuid string) object {
	return object{"name": name, "attributes": object{"type": object{"string": "gpu"}, "uuid": object{"string": uuid}}}
}

// running is an APIServer that runs, and what it reported.
type running struct {
	*APIServer
	health *Health
	logs   *observer.ObservedLogs
	stop   context.CancelFunc
	ended  chan struct{}
}

// startAPI runs an APIServer for one of the lists.
func startAPI(t *testing.T, s *APIServer, logs *observer.ObservedLogs) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{APIServer: s, health: NewHealth("none", nil), logs: logs, stop: stop, ended: make(chan struct{})}
	if len(s.Health) > 0 {
		r.health = s.Health[0]
	}
	go func() {
		defer close(r.ended)
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	return r
}

// newAPI returns an APIServer with a log, for the config of a server.
func newAPI(o APIOptions, config func() (*rest.Config, error)) (*APIServer, *observer.ObservedLogs) {
	core, logs := observer.New(zap.DebugLevel)
	o.Log = zap.New(core)
	s := NewAPIServer(o)
	s.config = config
	return s, logs
}

// said returns the messages since it was called last.
func (r *running) said() []string {
	var all []string
	for _, e := range r.logs.TakeAll() {
		all = append(all, e.Message)
	}
	return all
}

// lastError is the text of the last error that was logged.
func (r *running) lastError() string {
	text := ""
	for _, e := range r.logs.TakeAll() {
		if err, ok := e.ContextMap()["error"].(string); ok {
			text = err
		}
	}
	return text
}
