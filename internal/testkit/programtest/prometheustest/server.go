// Package prometheustest runs the installed Prometheus in tests and asks it what it
// has seen.
package prometheustest

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// Find returns the path of the program, for tests that prepare much before they Start
// it: where it is missing they end at once.
func Find(tb testing.TB) string {
	tb.Helper()
	return programtest.Find(tb, "prometheus")
}

// A Server is a Prometheus on loopback with storage of the test's own.
type Server struct {
	URL     string // without a path
	Process *programtest.Process
	API     v1.API
}

// Start runs Prometheus with a configuration, and more flags, until the test ends, and
// returns when it is ready: scrapes begin some 5 s later. Paths in the configuration
// must be absolute.
func Start(tb testing.TB, config string, more ...string) *Server {
	tb.Helper()
	exe, dir := Find(tb), tb.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	s := &Server{}
	s.Process = programtest.Start(tb, exe, append([]string{
		"--config.file=" + file,
		"--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0",
		"--web.console.libraries=" + dir, "--web.console.templates=" + dir,
		"--log.level=warn",
	}, more...), programtest.Options{})
	s.URL = s.Process.AwaitReady(tb, "/-/ready")
	transport := &http.Transport{}
	tb.Cleanup(transport.CloseIdleConnections)
	client, err := api.NewClient(api.Config{
		Address: s.URL,
		Client:  &http.Client{Transport: transport, Timeout: eventually.Patience},
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.API = v1.NewAPI(client)
	return s
}
