package main

import (
	"context"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
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
