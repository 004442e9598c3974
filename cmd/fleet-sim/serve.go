package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// target is an entry of Prometheus' file_sd_configs and http_sd_configs.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

const nodePath = "/node/"

// list says where Prometheus finds each node. All are on one port, so each says
// its path and has its own instance.
func (f *fleet) list(address string) []target {
	out := make([]target, len(f.nodes))
	for i, n := range f.nodes {
		out[i] = target{[]string{address}, map[string]string{
			"__metrics_path__": nodePath + n.host + "/metrics",
			"instance":         n.host,
			"profile":          n.profile,
			"simulated":        "true",
		}}
	}
	return out
}

// writeTargets replaces the file at once: Prometheus reads it whenever it changes.
func (f *fleet) writeTargets(path, address string) error {
	text, err := json.MarshalIndent(f.list(address), "", " ")
	if err != nil {
		return fmt.Errorf("write --targets-file: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".targets-*")
	if err != nil {
		return fmt.Errorf("write --targets-file: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }() //nolint:gosec // made by us; gone by then where all went well
	_, err = file.Write(append(text, '\n'))
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(file.Name(), 0o644) //nolint:gosec // Prometheus runs as another user
	}
	if err == nil {
		err = os.Rename(file.Name(), path) //nolint:gosec // the flag names the file to write
	}
	if err != nil {
		return fmt.Errorf("write --targets-file: %w", err)
	}
	return nil
}

func (f *fleet) handler(address string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+nodePath, f.serveNode)
	mux.HandleFunc("GET /targets", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(f.list(address)) // the client went away
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = fmt.Fprintf(w, "%d simulated GPU nodes. All numbers are invented.\n\n/targets\n", len(f.nodes)) //nolint:gosec // plain text
		for _, n := range f.nodes {
			_, _ = fmt.Fprintf(w, "%s%s/metrics  %s\n", nodePath, n.host, n.profile) //nolint:gosec // as above
		}
	})
	return mux
}

// serveNode hands the rest of the path to the node's own server.
func (f *fleet) serveNode(w http.ResponseWriter, r *http.Request) {
	host, _, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, nodePath), "/")
	n := f.named[host]
	if n == nil || !ok {
		http.NotFound(w, r)
		return
	}
	http.StripPrefix(nodePath+host, n.handler).ServeHTTP(w, r)
}
