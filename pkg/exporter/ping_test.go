package exporter

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"warpgauge/internal/testkit"
)

// TestPing covers the command of helm test: it waits until a device is up, and reports the last error on a timeout.
func TestPing(t *testing.T) {
	const page = "# TYPE warpgauge_build_info gauge\nwarpgauge_build_info{version=\"1\"} 1\n# TYPE warpgauge_device_state gauge\n"
	up := `warpgauge_device_state{collector="nvml",device="GPU-a",gpu="0",state="up"} 1` + "\n"
	problem := "# TYPE warpgauge_collector_problem gauge\n" + `warpgauge_collector_problem{collector="nvml",cause="not_loaded"} 1` + "\n"
	for _, c := range []struct {
		name, health string
		metrics      func(question int32) string
		code         int
		want         string
	}{
		{"works", "OK", func(int32) string { return page + up }, 0, "/health answers; /metrics has 2 families, 1 devices are up"},
		{"works after a while", "OK", func(n int32) string { return page + strings.Repeat(up, int(min(n-1, 1))) }, 0, "1 devices are up"},
		{"no device", "OK", func(int32) string { return page + problem }, 1, "after 1s: exporter is running but no device is up: nvml not_loaded"},
		{"another program", "OK", func(int32) string { return "up 1\n" }, 1, "another program than warpgauge answers"},
		{"unhealthy", "", func(int32) string { return page + up }, 1, "ask for /health: the answer is 503 Service Unavailable no list"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/metrics":
					_, _ = w.Write([]byte(c.metrics(asked.Add(1))))
				case c.health == "":
					http.Error(w, "no list", http.StatusServiceUnavailable)
				default:
					_, _ = w.Write([]byte(c.health))
				}
			}))
			defer s.Close()
			timeout := map[int]string{0: "30s", 1: "1s"}[c.code]
			code, out := run(t, "ping", "--url="+s.URL, "--timeout="+timeout)
			testkit.ErrorIf(t, code != c.code || !strings.Contains(out, c.want), "exit code %d, %q; want %d, %q", code, out, c.code, c.want)
		})
	}
	for url, want := range map[string]string{"http://127.0.0.1:1": "nothing answers (no pod or process there", "localhost:9400": "write http://HOST:PORT"} {
		code, out := run(t, "ping", "--url="+url, "--timeout=1s")
		testkit.ErrorIf(t, code != 1 || !strings.Contains(out, want), "%s: exit code %d, %q; want %q", url, code, out, want)
	}
}
