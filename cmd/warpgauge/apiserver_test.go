package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// apiServer is as much of an API server as says which pods and ResourceSlices a
// node has. What it serves is fixed when it starts; watches stay silent.
type apiServer struct {
	kubeconfig string // to be the variable KUBECONFIG
	refuse     bool   // answer 403, as without a ClusterRole

	mu    sync.Mutex
	asked map[string]int // paths
}

// object is one of the API's.
type object map[string]any

// newAPIServer serves pods and slices of the node, in these versions of
// resource.k8s.io.
func newAPIServer(t *testing.T, node string, pods, slices []object, versions ...string) *apiServer {
	t.Helper()
	s := &apiServer{asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pods", s.list("meta.k8s.io/v1", "PartialObjectMetadataList", node, pods))
	mux.HandleFunc("GET /apis/resource.k8s.io", func(w http.ResponseWriter, _ *http.Request) {
		group := object{"kind": "APIGroup", "apiVersion": "v1", "name": "resource.k8s.io"}
		var served []object
		for _, v := range versions {
			served = append(served, object{"groupVersion": "resource.k8s.io/" + v, "version": v})
		}
		group["versions"] = served
		answerJSON(w, http.StatusOK, group)
	})
	for _, v := range versions {
		mux.HandleFunc("GET /apis/resource.k8s.io/"+v+"/resourceslices",
			s.list("resource.k8s.io/"+v, "ResourceSliceList", node, slices))
	}
	server := httptest.NewServer(s.counting(mux))
	t.Cleanup(func() {
		server.CloseClientConnections() // watches do not end by themselves
		server.Close()
	})
	s.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(s.kubeconfig, []byte(fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
users: [{name: test, user: {}}]
current-context: test
`, server.URL)), 0o600))
	return s
}

func (s *apiServer) counting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked[r.URL.Path]++
		s.mu.Unlock()
		if s.refuse {
			answerJSON(w, http.StatusForbidden, object{
				"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
				"message": "User \"system:serviceaccount:gpu:exporter\" cannot list resource",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// requests is how often a path was asked for.
func (s *apiServer) requests(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// list answers lists, of this node only, and keeps watches open.
func (s *apiServer) list(version, kind, node string, items []object) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.URL.Query().Get("fieldSelector"), "spec.nodeName="+node; got != want {
			http.Error(w, fmt.Sprintf("fieldSelector %q, want %q", got, want), http.StatusBadRequest)
			return
		}
		if r.URL.Query().Get("watch") != "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		answerJSON(w, http.StatusOK, object{"kind": kind, "apiVersion": version, "metadata": object{"resourceVersion": "7"}, "items": items})
	}
}

func answerJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// apiPod is a pod's metadata.
func apiPod(namespace, name, uid string, labels map[string]string) object {
	return object{
		"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
		"metadata": object{"namespace": namespace, "name": name, "uid": uid, "labels": labels, "resourceVersion": "7"},
	}
}

// apiSlice is a ResourceSlice of resource.k8s.io/v1 with devices by name, whose
// attributes are texts and numbers.
func apiSlice(driver, pool string, devices map[string]map[string]any) object {
	var list []object
	for name, attributes := range devices {
		typed := object{}
		for key, v := range attributes {
			switch v := v.(type) {
			case string:
				typed[key] = object{"string": v}
			case int:
				typed[key] = object{"int": v}
			}
		}
		list = append(list, object{"name": name, "attributes": typed})
	}
	return object{
		"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1",
		"metadata": object{"name": pool + "-" + strings.ReplaceAll(driver, ".", "-") + "-" + strconv.Itoa(len(devices)), "resourceVersion": "7"},
		"spec": object{
			"driver": driver, "nodeName": pool,
			"pool":    object{"name": pool, "generation": 1, "resourceSliceCount": 1},
			"devices": list,
		},
	}
}
