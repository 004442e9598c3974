package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

const (
	csvA = "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"
	csvB = csvA + "DCGM_FI_DEV_POWER_USAGE, gauge, p\n"
)

// bench is a reloader over a file that the test holds in its hands.
type bench struct {
	*reloader
	file    string // content
	readErr error
	apply   func(context.Context, field.List) error
	applied []int // fields of each list that was applied
	logs    *observer.ObservedLogs
	reg     *prometheus.Registry
}

func newBench(initial string) *bench {
	core, logs := observer.New(zap.InfoLevel)
	b := &bench{file: initial, logs: logs, reg: prometheus.NewRegistry()}
	b.apply = func(context.Context, field.List) error { return nil }
	b.reloader = newReloader(&config.Content{CSV: []byte(initial)}, field.List{}, zap.New(core), time.Now())
	b.metrics.register(b.reg)
	csv := &counters{cfg: config.Default()}
	b.reloader.read = func(context.Context) (*config.Content, error) {
		return &config.Content{CSV: []byte(b.file), Name: "counters.csv"}, b.readErr
	}
	b.reloader.parse = csv.list
	b.reloader.apply = func(ctx context.Context, l field.List) error {
		b.applied = append(b.applied, len(l.Fields))
		return b.apply(ctx, l)
	}
	return b
}

// value returns a metric, of the counter the child with that result.
func (b *bench) value(t *testing.T, name, result string) float64 {
	t.Helper()
	families, err := b.reg.Gather()
	must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name || result != "" && m.GetLabel()[0].GetValue() != result {
				continue
			}
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s %s", name, result)
	return 0
}

func (b *bench) want(t *testing.T, ok, success, unchanged, failed float64) {
	t.Helper()
	got := [...]float64{
		b.value(t, "warpgauge_config_last_reload_successful", ""),
		b.value(t, "warpgauge_config_reloads_total", "success"),
		b.value(t, "warpgauge_config_reloads_total", "unchanged"),
		b.value(t, "warpgauge_config_reloads_total", "error"),
	}
	if want := [...]float64{ok, success, unchanged, failed}; got != want {
		t.Errorf("ok, success, unchanged, error = %v, want %v", got, want)
	}
}

func TestReload(t *testing.T) {
	b := newBench(csvA)
	b.want(t, 1, 0, 0, 0)

	must(t, b.reload(t.Context(), "test"))
	b.want(t, 1, 0, 1, 0)

	b.file = csvB
	must(t, b.reload(t.Context(), "test"))
	b.want(t, 1, 1, 1, 0)
	if len(b.applied) != 1 || b.applied[0] != 2 {
		t.Errorf("applied lists of %v fields, want one of 2", b.applied)
	}
}

func TestReloadOfABadFileKeepsTheList(t *testing.T) {
	b := newBench(csvA)
	b.file = csvB + "DCGM_FI_DEV_FB_USED, gouge, x\nDCGM_FI_DEV_FB_FREE, counterr, y\n"
	err := b.reload(t.Context(), "test")
	if err == nil || !strings.Contains(err.Error(), "gouge") || !strings.Contains(err.Error(), "counterr") {
		t.Errorf("reload = %v, want an error with both bad lines", err)
	}
	b.want(t, 0, 0, 0, 1)
	lines := b.logs.FilterMessageSnippet("unknown type").All()
	if len(lines) != 2 || lines[0].ContextMap()["line"] != int64(3) || lines[1].ContextMap()["line"] != int64(4) {
		t.Errorf("log = %v, want a line each for lines 3 and 4 of the file", b.logs.All())
	}

	b.file = csvA // as it was: nothing to apply, but all is well again
	must(t, b.reload(t.Context(), "test"))
	b.want(t, 1, 0, 1, 1)
	if len(b.applied) != 0 {
		t.Errorf("applied %v, want nothing", b.applied)
	}
}

func TestReloadOfAnUnreadableOrEmptyFileKeepsTheList(t *testing.T) {
	b := newBench(csvA)
	b.readErr = os.ErrNotExist
	if err := b.reload(t.Context(), "test"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reload = %v, want that the file is not there", err)
	}
	b.readErr = nil
	b.file = "# nothing\n"
	if err := b.reload(t.Context(), "test"); !errors.Is(err, errNothingAsked) {
		t.Errorf("reload of a file without fields = %v, want an error: it would empty the page", err)
	}
	b.want(t, 0, 0, 0, 2)
	if len(b.applied) != 0 {
		t.Errorf("applied %v, want nothing", b.applied)
	}
}

// Audit S11: lines about a list had the key "file" twice.
func TestReloadLogsEachKeyOnce(t *testing.T) {
	var out bytes.Buffer
	to := newBacklog(&out)
	b := newBench(csvA)
	b.log = newLogger(&config.Config{Log: config.Log{Format: config.LogJSON}}, to).Named("reload")
	warned := csvA + "DCGM_FI_DEV_GPU_UTLI, gauge, u\n"
	for _, b.file = range []string{warned, warned, warned + "DCGM_FI_DEV_FB_USED, gouge, x\n", "# nothing\n"} {
		_ = b.reload(t.Context(), "test") // its result is not what is tested
	}
	to.flush()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) < 6 {
		t.Errorf("%d lines, want warnings and errors of each list:\n%s", len(lines), out.String())
	}
	for _, line := range lines {
		if err := uniqueKeys(line); err != nil || !strings.Contains(line, `"file":"counters.csv"`) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// A collector that could not take the list is asked again, although the file is
// the same.
func TestReloadAgainAfterHalfASuccess(t *testing.T) {
	b := newBench(csvA)
	b.file = csvB
	b.apply = func(context.Context, field.List) error { return errors.New("reopen collector") }
	if err := b.reload(t.Context(), "test"); err == nil {
		t.Error("reload hides the error of a collector")
	}
	b.want(t, 0, 0, 0, 1)
	b.apply = func(context.Context, field.List) error { return nil }
	must(t, b.reload(t.Context(), "test"))
	b.want(t, 1, 1, 0, 1)
	if len(b.applied) != 2 {
		t.Errorf("applied %d times, want 2", len(b.applied))
	}
}

func TestReloadsComeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvA)
		b.file = csvB
		release := make(chan struct{})
		atWork := 0
		b.apply = func(context.Context, field.List) error {
			if atWork++; atWork > 1 {
				t.Error("two reloads at a time")
			}
			<-release
			atWork--
			return nil
		}
		first := make(chan error, 1)
		go func() { first <- b.reload(t.Context(), "first") }()
		synctest.Wait()
		if !b.inProgress() {
			t.Error("no reload in progress while one is at work")
		}
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.reload(hurried, "hurried"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("reload = %v, want it to give up when its context ends before its turn", err)
		}
		second := make(chan error, 1)
		go func() { second <- b.reload(t.Context(), "second") }()
		synctest.Wait()
		close(release)
		must(t, <-first)
		must(t, <-second)
		if b.inProgress() {
			t.Error("a reload is in progress after all have ended")
		}
		b.want(t, 1, 1, 1, 0) // the second found the file unchanged
	})
}

// Requests that come before the file is read are one.
func TestReloaderMergesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvA)
		for range 3 {
			b.ask("file change")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.run(ctx, nil) }()
		synctest.Wait()
		b.want(t, 1, 0, 1, 0)
		cancel()
		must(t, <-done)
	})
}

func TestReloaderRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvA)
		hangups := make(chan os.Signal, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.run(ctx, hangups) }()

		b.file = csvB
		hangups <- os.Interrupt // any value: only SIGHUP is subscribed
		synctest.Wait()
		b.file = csvA
		b.ask("file change")
		synctest.Wait()
		if len(b.applied) != 2 || b.applied[0] != 2 || b.applied[1] != 1 {
			t.Errorf("applied lists of %v fields, want 2 and then 1", b.applied)
		}
		causes := b.logs.FilterMessage("counters reloaded").All()
		if len(causes) != 2 || causes[0].ContextMap()["cause"] != "SIGHUP" || causes[1].ContextMap()["cause"] != "file change" {
			t.Errorf("log = %v, want a reload by SIGHUP and one by file change", b.logs.All())
		}

		b.file = csvB
		b.apply = func(ctx context.Context, _ field.List) error { <-ctx.Done(); return ctx.Err() }
		hangups <- os.Interrupt
		synctest.Wait()
		time.Sleep(reloadTimeout) // a collector that hangs must not block reloads for ever
		synctest.Wait()
		if b.inProgress() {
			t.Errorf("a reload still waits after %v", reloadTimeout)
		}
		b.want(t, 0, 2, 0, 1)

		hangups <- os.Interrupt
		synctest.Wait()
		cancel() // in the middle of a reload
		must(t, <-done)
		b.want(t, 0, 2, 0, 1)
	})
}

// From the list built in, a default file that appears takes over; a file that
// was in use and vanishes does not give way to another list.
func TestCountersStayWithTheirFile(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/default-counters.csv"
	cfg := config.Default()
	cfg.DefaultFiles = []string{path}
	c := newCounters(&app{}, cfg, "")
	in, err := c.read(t.Context())
	if err != nil || in.Name != "built-in default-counters.csv" {
		t.Fatalf("counters are %v, %v, want the list built in", in, err)
	}
	writeFile(t, path, csvA)
	if in, err := c.read(t.Context()); err != nil || in.Name != path || string(in.CSV) != csvA {
		t.Fatalf("counters are %v, %v, want the file that has appeared", in, err)
	}
	must(t, os.Remove(path))
	if _, err := c.read(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("read = %v, want that the file is gone", err)
	}
}

// A problem of a whole file has no place, and its line of the log no line 0.
func TestPlace(t *testing.T) {
	for want, p := range map[int]field.Problem{0: {}, 1: {Line: 3}, 2: {Line: 3, Column: 1}} {
		if got := place(p); len(got) != want {
			t.Errorf("place(%+v) has %d fields, want %d", p, len(got), want)
		}
	}
}
