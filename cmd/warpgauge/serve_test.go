package main

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"warpgauge/pkg/exporter"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// served is an exporter that runs in this process.
type served struct {
	t    *testing.T
	url  string
	log  *programtest.Output
	stop context.CancelFunc
	code chan int
}

var addressInLog = regexp.MustCompile(`serving (http://127\.0\.0\.1:\d+)/metrics`)

// startServe runs the program until stop, and checks at the end of the test that
// it ended well and left no goroutine behind.
func startServe(t *testing.T, env environment, args ...string) *served {
	t.Helper()
	before := goleak.IgnoreCurrent()
	ctx, stop := context.WithCancel(context.Background())
	s := &served{t: t, log: &programtest.Output{}, stop: stop, code: make(chan int, 1)}
	if _, ok := env["WARPGAUGE_EXPORTER_METRICS"]; !ok {
		env = maps.Clone(env)
		if env == nil {
			env = environment{}
		}
		env["WARPGAUGE_EXPORTER_METRICS"] = "full" // tests look at what is there for experts
	}
	go func() {
		args = append([]string{"warpgauge", "-a", "127.0.0.1:0"}, simulated(args...)...)
		s.code <- run(ctx, args, exporter.Streams{Out: s.log, Err: s.log}, env.list())
	}()
	t.Cleanup(func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
		s.wantExit(0)
		goleak.VerifyNone(t, before)
		if t.Failed() {
			t.Logf("log:\n%s", s.log)
		}
	})
	eventually.True(t, "the address in the log", func() bool {
		if m := addressInLog.FindStringSubmatch(s.log.String()); m != nil {
			s.url = m[1]
		}
		if len(s.code) > 0 {
			t.Fatalf("ended before it served:\n%s", s.log)
		}
		return s.url != ""
	})
	return s
}

func (s *served) wantExit(code int) {
	s.t.Helper()
	select {
	case got := <-s.code:
		if s.code <- got; got != code {
			s.t.Errorf("exit code %d, want %d", got, code)
		}
	case <-time.After(eventually.Patience):
		s.t.Fatalf("still running %v after it was stopped; log:\n%s", eventually.Patience, s.log)
	}
}

func (s *served) do(method, path string) (status int, header http.Header, body string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	must(s.t, err)
	resp, err := http.DefaultClient.Do(req)
	must(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(s.t, err)
	return resp.StatusCode, resp.Header, string(text)
}

func (s *served) page() string {
	s.t.Helper()
	status, _, body := s.do(http.MethodGet, "/metrics")
	if status != http.StatusOK {
		s.t.Fatalf("GET /metrics: %d: %s", status, body)
	}
	return body
}

func (s *served) awaitOnPage(text string) {
	s.t.Helper()
	eventually.True(s.t, text+" on the page", func() bool { return strings.Contains(s.page(), text) })
}

func TestServe(t *testing.T) {
	s := startServe(t, environment{"NODE_NAME": "n1"}, "-c", "50")
	s.awaitOnPage("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"")
	page := s.page()
	for _, want := range []string{`hostname="n1"`, "warpgauge_build_info{", "warpgauge_config_last_reload_successful 1", `(simulated)`} {
		if !strings.Contains(page, want) {
			t.Errorf("page lacks %s", want)
		}
	}
	eventually.True(t, "ready", func() bool { status, _, _ := s.do(http.MethodGet, "/readyz"); return status == http.StatusOK })
	status, header, body := s.do(http.MethodGet, "/health")
	if status != http.StatusOK || body != "OK" || header.Get("X-Registry-Available") != "true" || header.Get("X-Reload-In-Progress") != "" {
		t.Errorf("GET /health: %d %q %v", status, body, header)
	}
	for path, want := range map[string]int{"/livez": 200, "/": 200, "/debug/pprof/": 404, "/metrics/": 404} {
		if status, _, _ := s.do(http.MethodGet, path); status != want {
			t.Errorf("GET %s: %d, want %d", path, status, want)
		}
	}
	if status, _, _ := s.do(http.MethodPost, "/-/reload"); status != http.StatusForbidden {
		t.Errorf("POST /-/reload without --enable-reload-endpoint: %d, want 403", status)
	}
	if log := s.log.String(); !strings.Contains(log, "simulated GPUs") || !strings.Contains(log, "built-in default-counters.csv") {
		t.Errorf("the log must say that GPUs are simulated, and which list is in use")
	}
}

// TestLeanSet holds docs/scale.md and --help to their number. Every vendor's collector is
// enabled, as it is by default, and finds nothing here.
func TestLeanSet(t *testing.T) {
	own := func(page string) (n int) {
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "warpgauge_") || strings.HasPrefix(line, "process_") || strings.HasPrefix(line, "go_") {
				n++
			}
		}
		return n
	}
	for set, c := range map[string]struct{ least, most int }{"none": {0, 0}, "lean": {33, 48}, "full": {100, 1000}} {
		e := startServe(t, environment{"WARPGAUGE_EXPORTER_METRICS": set}, "--enable-only=fake,dcgm,nvml,rocm", "-c", "100")
		e.awaitOnPage("DCGM_FI_DEV_GPU_TEMP{")
		want := `warpgauge_sample_age_seconds{collector="fake",device=`
		if set != "none" {
			e.awaitOnPage(want)
			e.awaitOnPage(`warpgauge_list_info{hash="`)
			e.awaitOnPage(`warpgauge_device_health{action="none",`)
		}
		if n := own(e.page()); n < c.least || n > c.most {
			t.Errorf("%d samples of its own on the page of 8 GPUs with --exporter-metrics=%s, want %d to %d:\n%s", n, set, c.least, c.most, e.page())
		}
		e.stop()
	}
}

func TestServeFlagsReachTheirPart(t *testing.T) {
	s := startServe(t, environment{"DCGM_EXPORTER_CONTAINER_LABELS": "true"}, "-c", "50", "--enable-pprof", "--log-format=json", "--enable-exporter-metrics=false", "--isolation=process", "--watch-max-keep-samples=3")
	if status, _, _ := s.do(http.MethodGet, "/debug/pprof/"); status != http.StatusOK {
		t.Errorf("GET /debug/pprof/ with --enable-pprof: %d, want 200", status)
	}
	s.awaitOnPage("DCGM_FI_DEV_GPU_TEMP")
	if strings.Contains(s.page(), "warpgauge_") {
		t.Error("own metrics on the page in spite of --enable-exporter-metrics=false")
	}
	log := s.log.String()
	for _, want := range []string{`"msg":"--container-labels has no effect: `, `"source":"environment"`, `--watch-max-keep-samples has no effect: `} {
		if strings.Count(log, want) != 1 {
			t.Errorf("the log has %d lines with %s, want 1", strings.Count(log, want), want)
		}
	}
}

// Each way to reload ends with the new list in service.
func TestServeReloads(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "counters.csv")
	lists := []struct{ csv, marker string }{
		{csvA + "DCGM_FI_DEV_SM_CLOCK, gauge, c\n", "\nDCGM_FI_DEV_SM_CLOCK{"},
		{csvA + "DCGM_FI_DEV_MEM_CLOCK, gauge, c\n", "\nDCGM_FI_DEV_MEM_CLOCK{"},
	}
	writeFile(t, path, lists[0].csv)
	s := startServe(t, nil, "-c", "50", "-f", path, "--enable-reload-endpoint")
	s.awaitOnPage(lists[0].marker)

	replace := func(csv string) { // whole, so that no reload reads half of it
		writeFile(t, path+".new", csv)
		must(t, os.Rename(path+".new", path))
	}
	for i, how := range []struct {
		name string
		do   func(csv string)
	}{
		{"file change", replace},
		{"SIGHUP", func(csv string) { replace(csv); must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP)) }},
		{"POST", func(csv string) {
			replace(csv)
			if status, _, body := s.do(http.MethodPost, "/-/reload"); status != http.StatusOK {
				t.Errorf("POST /-/reload: %d: %s", status, body)
			}
		}},
	} {
		next, last := lists[(i+1)%2], lists[i%2]
		how.do(next.csv)
		s.awaitOnPage(next.marker)
		if strings.Contains(s.page(), last.marker) {
			t.Errorf("after %s the old list is still on the page", how.name)
		}
	}
	s.awaitOnPage("warpgauge_config_last_reload_successful 1")

	replace("DCGM_FI_DEV_GPU_TEMP, gouge, x\n")
	if status, _, body := s.do(http.MethodPost, "/-/reload"); status != http.StatusInternalServerError || !strings.Contains(body, path+":1:") || !strings.Contains(body, "gouge") {
		t.Errorf("POST /-/reload of a bad file: %d %q, want 500 and the bad line", status, body)
	}
	s.awaitOnPage("warpgauge_config_last_reload_successful 0")
	if !strings.Contains(s.page(), lists[1].marker) {
		t.Error("a bad file has pushed the good list out of service")
	}
}

func TestServeNothingEnabled(t *testing.T) {
	s := startServe(t, nil, "--enable-only=nvml", "--enable-nvml=false")
	if !strings.Contains(s.page(), "warpgauge_build_info") {
		t.Error("the page must be served although there is no collector")
	}
	if status, _, body := s.do(http.MethodGet, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "no collector is enabled") {
		t.Errorf("GET /readyz: %d %q", status, body)
	}
}

// A library call that hangs for ever does not keep the process.
func TestServeStopsWhileAGPUHangs(t *testing.T) {
	spec := tempFile(t, "spec.yaml", "faults:\n- {kind: hang, device: 3}\n")
	log := &programtest.Output{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	code := make(chan int, 1)
	go func() {
		args := append([]string{"warpgauge", "-a", "127.0.0.1:0"}, simulated("-c", "50", "--sample-deadline=100ms", "--fake-spec="+spec)...)
		code <- run(ctx, args, exporter.Streams{Out: log, Err: log}, nil)
	}()
	eventually.True(t, "the hang in the log", func() bool { return strings.Contains(log.String(), "hung_call") })
	stop()
	select {
	case got := <-code:
		if got != 0 || !strings.Contains(log.String(), "abandoned") {
			t.Errorf("exit code %d, want 0 and a line that names what was abandoned:\n%s", got, log)
		}
	case <-time.After(eventually.Patience):
		t.Fatalf("a hung GPU keeps the process:\n%s", log)
	}
}

func TestServePortTaken(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	execute(t, nil, simulated("-a", l.Addr().String())...).want(t, 1, "listen on "+l.Addr().String(), "in use", "--address")
}
