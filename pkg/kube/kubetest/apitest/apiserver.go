// Package apitest is a minimal API server with the pods and ResourceSlices of one node, over HTTP, for tests of whole
// programs.
//
//	api := apitest.Start(t, "node-1")
//	api.Pods(apitest.Pod("ml", "train-0", "uid-1", map[string]string{"app": "train"}))
//	cmd.Env = append(cmd.Env, "KUBECONFIG="+api.Kubeconfig())
//
// Its content must be set before the first request: watches stay silent. Its methods may be called concurrently.
package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// Object is an object of the API as JSON.
type Object map[string]any

// Server is the API server.
type Server struct {
	tb         testing.TB
	node       string
	kubeconfig string

	mu       sync.Mutex
	pods     []Object
	slices   []Object
	versions []string
	refuse   bool
	asked    map[string]int
}

// Start returns an API server without pods and slices that serves resource.k8s.io/v1. It ends with the test.
func Start(tb testing.TB, node string) *Server {
	tb.Helper()
	s := &Server{tb: tb, node: node, versions: []string{"v1"}, asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) {
		s.list(w, r, "meta.k8s.io/v1", "PartialObjectMetadataList", func() []Object { return s.pods })
	})
	mux.HandleFunc("GET /apis/resource.k8s.io", func(w http.ResponseWriter, _ *http.Request) { s.group(w) })
	mux.HandleFunc("GET /apis/resource.k8s.io/{version}/resourceslices", func(w http.ResponseWriter, r *http.Request) {
		version := r.PathValue("version")
		if !s.serves(version) {
			http.NotFound(w, r)
			return
		}
		s.list(w, r, "resource.k8s.io/"+version, "ResourceSliceList", func() []Object { return s.slices })
	})
	server := httptest.NewServer(s.guard(mux))
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

// Kubeconfig returns a kubeconfig file for the server.
func (s *Server) Kubeconfig() string { return s.kubeconfig }

// Pods sets the node's pods.
func (s *Server) Pods(pods ...Object) { s.set(func() { s.pods = pods }) }

// Slices sets the node's ResourceSlices.
func (s *Server) Slices(all ...Object) { s.set(func() { s.slices = all }) }

// Versions sets the served versions of resource.k8s.io, the preferred one first.
func (s *Server) Versions(versions ...string) { s.set(func() { s.versions = versions }) }

// Refuse answers everything with 403, as without a ClusterRole.
func (s *Server) Refuse() { s.set(func() { s.refuse = true }) }

func (s *Server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Requests returns how often a path was requested.
func (s *Server) Requests(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// guard counts requests, and refuses them after Refuse.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked[r.URL.Path]++
		refuse := s.refuse
		s.mu.Unlock()
		if refuse {
			say(w, http.StatusForbidden, Object{
				"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": http.StatusForbidden,
				"message": `User "system:serviceaccount:gpu:exporter" cannot list resource`,
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) serves(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.versions, version)
}

// group answers with the served versions.
func (s *Server) group(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	served := []Object{}
	for _, v := range s.versions {
		served = append(served, Object{"groupVersion": "resource.k8s.io/" + v, "version": v})
	}
	say(w, http.StatusOK, Object{"kind": "APIGroup", "apiVersion": "v1", "name": "resource.k8s.io", "versions": served})
}

// list answers for this node only, and keeps watches open.
func (s *Server) list(w http.ResponseWriter, r *http.Request, version, kind string, of func() []Object) {
	if got, want := r.URL.Query().Get("fieldSelector"), "spec.nodeName="+s.node; got != want {
		s.tb.Errorf("%s is asked with the field selector %q, want %q", r.URL.Path, got, want)
		http.Error(w, "other nodes' objects", http.StatusBadRequest)
		return
	}
	if r.URL.Query().Get("watch") != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	items := of()
	if items == nil {
		items = []Object{}
	}
	say(w, http.StatusOK, Object{"kind": kind, "apiVersion": version, "metadata": Object{"resourceVersion": "7"}, "items": items})
}

func say(w http.ResponseWriter, code int, v Object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // who asked may have gone
}
