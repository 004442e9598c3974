package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// serve serves until ctx ends. It first prints the address.
func (f *fleet) serve(ctx context.Context, out io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.o.address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	address := listener.Addr().String()
	srv := &http.Server{
		Handler:           f.handler(address),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 5 * time.Minute,
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // scrapes of a simulation need no drain
	defer stop()
	fmt.Fprintf(out, "fleet-sim: %d simulated nodes on http://%[2]s/, for Prometheus' http_sd_configs http://%[2]s/targets\n", len(f.nodes), address) //nolint:errcheck // no remedy for an error
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", address, err)
	}
	return nil
}

// target is an entry of Prometheus' http_sd_configs.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

const nodePath = "/node/"

func (f *fleet) handler(address string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+nodePath, f.serveNode)
	mux.HandleFunc("GET /targets", func(w http.ResponseWriter, _ *http.Request) {
		// All nodes share one port, so each target has its own path and instance.
		var out []target
		for _, n := range f.nodes {
			out = append(out, target{[]string{address}, map[string]string{
				"__metrics_path__": nodePath + n.host + "/metrics",
				"instance":         n.host,
				"profile":          n.profile,
				"simulated":        "true",
			}})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the client went away
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, //nolint:gosec // a number
			"%d simulated GPU nodes. All numbers are invented.\n\n/targets\n", len(f.nodes))
	})
	return mux
}

// serveNode passes the rest of the path to the node's own server.
func (f *fleet) serveNode(w http.ResponseWriter, r *http.Request) {
	host, _, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, nodePath), "/")
	n := f.named[host]
	if n == nil || !ok {
		http.NotFound(w, r)
		return
	}
	http.StripPrefix(nodePath+host, n.handler).ServeHTTP(w, r)
}
