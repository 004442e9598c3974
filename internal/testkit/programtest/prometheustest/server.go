// Package prometheustest runs the installed Prometheus in tests and queries it.
package prometheustest

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// Find returns the program's path. Tests with a long preparation call it first, because it ends the test if the
// program is missing.
func Find(tb testing.TB) string {
	tb.Helper()
	return programtest.Find(tb, "prometheus")
}

// A Server is a Prometheus on loopback with its own storage.
type Server struct {
	URL     string // without a path
	Process *programtest.Process
	API     v1.API
}

// Start runs Prometheus with a configuration, and more flags, until the test ends. It returns when Prometheus is
// ready: scrapes start about 5 s later. Paths in the configuration must be absolute.
func Start(tb testing.TB, config string, more ...string) *Server {
	tb.Helper()
	exe, dir := Find(tb), tb.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	testkit.Must(tb, os.WriteFile(file, []byte(config), 0o600))
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
	testkit.Must(tb, err)
	s.API = v1.NewAPI(client)
	return s
}
