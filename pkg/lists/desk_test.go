package lists

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/pkg/config"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
)

const (
	csvA    = "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"
	csvB    = csvA + "DCGM_FI_DEV_POWER_USAGE, gauge, p\n"
	csvProf = csvA + "DCGM_FI_PROF_SM_ACTIVE, gauge, s\n"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bench is a Desk over a file and an engine that the test holds.
type bench struct {
	*Desk
	files   *Files
	file    string // content
	readErr error
	logs    *observer.ObservedLogs
	reg     *prometheus.Registry
	events  *events.Subscription

	mu       sync.Mutex // timers call, too
	reload   func(context.Context, field.List) error
	applied  [][]string // names of each list
	released map[string]bool
	refuse   error // of releases
}

func newBench(initial string) *bench {
	core, logs := observer.New(zap.InfoLevel)
	return newLoggedBench(initial, zap.New(core), logs)
}

func newLoggedBench(initial string, log *zap.Logger, logs *observer.ObservedLogs) *bench {
	b := &bench{
		file: initial, logs: logs, reg: prometheus.NewRegistry(), released: map[string]bool{},
		reload: func(context.Context, field.List) error { return nil },
		files:  NewFiles(config.Default(), nil, nil, nil),
	}
	bus := &events.Bus{}
	b.events = bus.Subscribe(10, events.Reload)
	first := b.files.Parse(&config.Content{CSV: []byte(initial), Name: "counters.csv"})
	b.Desk = New(first, Options{Local: held{b.files, b}, Engine: (*engine)(b), Events: bus, Usual: 10 * time.Minute, Logger: log})
	b.reg.MustRegister(b.Desk)
	return b
}

// held is the Local of a bench.
type held struct {
	*Files
	b *bench
}

func (h held) Read(context.Context) (*config.Content, error) {
	return &config.Content{CSV: []byte(h.b.file), Name: "counters.csv"}, h.b.readErr
}

// published returns the events so far.
func (b *bench) published() (out []string) {
	for len(b.events.C) > 0 {
		e := <-b.events.C
		out = append(out, fmt.Sprint(e.Text, " ", e.Bad))
	}
	return out
}

// engine is the Engine of a bench.
type engine bench

func (e *engine) Reload(ctx context.Context, l field.List) error {
	e.mu.Lock()
	var names []string
	for i := range l.Fields {
		names = append(names, l.Fields[i].Name)
	}
	e.applied = append(e.applied, names)
	reload := e.reload
	e.mu.Unlock()
	return reload(ctx, l)
}

func (e *engine) Release(_ context.Context, name string) error {
	e.set(name, true)
	return e.refuse
}

func (e *engine) Resume(name string) { e.set(name, false) }

func (e *engine) set(name string, released bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.Names() {
		if name == "" || n == name {
			e.released[n] = released
		}
	}
}

func (e *engine) Names() []string { return []string{"dcgm", "nvml"} }

// reloads sets what becomes of the next lists.
func (b *bench) reloads(f func(context.Context, field.List) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reload = f
}

// wantApplied checks how many fields each list had that was applied so far.
func (b *bench) wantApplied(t *testing.T, want ...int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var got []int
	for _, names := range b.applied {
		got = append(got, len(names))
	}
	if !slices.Equal(got, want) {
		t.Errorf("applied lists of %v fields, want %v", got, want)
	}
}

// wantRead checks which fields are read.
func (b *bench) wantRead(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := b.applied[len(b.applied)-1]; !slices.Equal(got, want) {
		t.Errorf("after %v: %q are read, want %q", time.Now().UTC().Format(time.TimeOnly), got, want)
	}
}

// metric returns the value of a metric, of the counter the child with that result.
func (b *bench) metric(t *testing.T, name, result string) float64 {
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
		b.metric(t, "warpgauge_config_last_reload_successful", ""),
		b.metric(t, "warpgauge_config_reloads_total", "success"),
		b.metric(t, "warpgauge_config_reloads_total", "unchanged"),
		b.metric(t, "warpgauge_config_reloads_total", "error"),
	}
	if want := [...]float64{ok, success, unchanged, failed}; got != want {
		t.Errorf("ok, success, unchanged, error = %v, want %v", got, want)
	}
}

// serve proposes a list as a server's.
func (b *bench) serve(t *testing.T, revision, csv string) error {
	t.Helper()
	turn, err := b.Begin(t.Context())
	must(t, err)
	defer turn.End()
	if csv == "" {
		return turn.Serve(t.Context(), nil)
	}
	p := b.files.Parse(&config.Content{CSV: []byte(csv)})
	return turn.Serve(t.Context(), &List{Origin: "http://lists", Revision: revision, Hash: p.Content.Hash(), Fields: p.Fields})
}

func TestReload(t *testing.T) {
	b := newBench(csvA)
	b.want(t, 1, 0, 0, 0)

	must(t, b.Reload(t.Context(), "test"))
	b.want(t, 1, 0, 1, 0)

	b.file = csvB
	must(t, b.Reload(t.Context(), "test"))
	b.want(t, 1, 1, 1, 0)
	b.wantApplied(t, 2)
	if got := b.Status().Proposals; len(got) != 1 || got[0].By != "test" || got[0].What != "reload" || got[0].Answer != Applied {
		t.Errorf("proposals = %+v", got)
	}
}

func TestReloadOfABadFileKeepsTheList(t *testing.T) {
	b := newBench(csvA)
	b.file = csvB + "DCGM_FI_DEV_FB_USED, gouge, x\nDCGM_FI_DEV_FB_FREE, counterr, y\n"
	err := b.Reload(t.Context(), "test")
	if err == nil || !strings.Contains(err.Error(), "gouge") || !strings.Contains(err.Error(), "counterr") {
		t.Errorf("reload = %v, want an error with both bad lines", err)
	}
	b.want(t, 0, 0, 0, 1)
	lines := b.logs.FilterMessageSnippet("unknown type").All()
	if len(lines) != 2 || lines[0].ContextMap()["line"] != int64(3) || lines[1].ContextMap()["line"] != int64(4) {
		t.Errorf("log = %v, want a line each for lines 3 and 4 of the file", b.logs.All())
	}
	if s := b.Status(); s.LastError == "" || s.FailedAt.IsZero() || s.Proposals[0].Answer != Failed {
		t.Errorf("status = %+v", s)
	}

	b.file = csvA // as it was: nothing to apply, but all is well again
	must(t, b.Reload(t.Context(), "test"))
	b.want(t, 1, 0, 1, 1)
	b.wantApplied(t)
	if s := b.Status(); s.LastError != "" || !s.FailedAt.IsZero() {
		t.Errorf("after a good file the status is %+v", s)
	}
}

func TestReloadOfAnUnreadableOrEmptyFileKeepsTheList(t *testing.T) {
	b := newBench(csvA)
	b.readErr = os.ErrNotExist
	if err := b.Reload(t.Context(), "test"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reload = %v, want that the file is not there", err)
	}
	b.readErr = nil
	b.file = "# nothing\n"
	if err := b.Reload(t.Context(), "test"); !errors.Is(err, errEmpty) {
		t.Errorf("reload of a file without fields = %v, want an error: it would empty the page", err)
	}
	b.want(t, 0, 0, 0, 2)
	b.wantApplied(t)
}

// Audit S11: lines about a list had the key "file" twice.
func TestReloadLogsEachKeyOnce(t *testing.T) {
	var out bytes.Buffer
	b := newLoggedBench(csvA, zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&out), zap.InfoLevel)), nil)
	warned := csvA + "DCGM_FI_DEV_GPU_UTLI, gauge, u\n"
	for _, b.file = range []string{warned, warned, warned + "DCGM_FI_DEV_FB_USED, gouge, x\n", "# nothing\n"} {
		_ = b.Reload(t.Context(), "test") // its result is not what is tested
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) < 6 {
		t.Errorf("%d lines, want warnings and errors of each list:\n%s", len(lines), out.String())
	}
	for _, line := range lines {
		var keys map[string]any
		must(t, json.Unmarshal([]byte(line), &keys))
		for key := range maps.Keys(keys) {
			if n := strings.Count(line, fmt.Sprintf("%q:", key)); n != 1 {
				t.Errorf("%s: the key %s is there %d times", line, key, n)
			}
		}
		if !strings.Contains(line, `"file":"counters.csv"`) {
			t.Errorf("%s: no file", line)
		}
	}
}

// A collector that could not use the list is asked again, although the file is the same.
func TestReloadAgainAfterHalfASuccess(t *testing.T) {
	b := newBench(csvA)
	b.file = csvB
	b.reloads(func(context.Context, field.List) error { return errors.New("reopen collector") })
	if err := b.Reload(t.Context(), "test"); err == nil {
		t.Error("reload hides the error of a collector")
	}
	b.want(t, 0, 0, 0, 1)
	b.reloads(func(context.Context, field.List) error { return nil })
	must(t, b.Reload(t.Context(), "test"))
	b.want(t, 1, 1, 0, 1)
	b.wantApplied(t, 2, 2)
}

func TestReloadsComeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvA)
		b.file = csvB
		release := make(chan struct{})
		atWork := 0
		b.reloads(func(context.Context, field.List) error {
			if atWork++; atWork > 1 {
				t.Error("two reloads at a time")
			}
			<-release
			atWork--
			return nil
		})
		first := make(chan error, 1)
		go func() { first <- b.Reload(t.Context(), "first") }()
		synctest.Wait()
		if !b.Changing() {
			t.Error("no reload in progress while one is at work")
		}
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Reload(hurried, "hurried"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("reload = %v, want it to give up when its context ends before its turn", err)
		}
		second := make(chan error, 1)
		go func() { second <- b.Reload(t.Context(), "second") }()
		synctest.Wait()
		close(release)
		must(t, <-first)
		must(t, <-second)
		if b.Changing() {
			t.Error("a reload is in progress after all have ended")
		}
		b.want(t, 1, 1, 1, 0) // the second found the file unchanged
	})
}

// Requests that come before the file is read are one.
func TestRequestsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvA)
		for range 3 {
			b.RequestReload("file change")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx, Signals{}) }()
		synctest.Wait()
		b.want(t, 1, 0, 1, 0)
		cancel()
		must(t, <-done)
	})
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvA)
		hangups := make(chan os.Signal, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx, Signals{Reload: hangups}) }()

		b.file = csvB
		hangups <- os.Interrupt // any value: only SIGHUP is subscribed
		synctest.Wait()
		b.file = csvA
		b.RequestReload("file change")
		synctest.Wait()
		b.wantApplied(t, 2, 1)
		causes := b.logs.FilterMessage("counters reloaded").All()
		if len(causes) != 2 || causes[0].ContextMap()["cause"] != "SIGHUP" || causes[1].ContextMap()["cause"] != "file change" {
			t.Errorf("log = %v, want a reload by SIGHUP and one by file change", b.logs.All())
		}

		b.file = csvB
		b.reloads(func(ctx context.Context, _ field.List) error { <-ctx.Done(); return ctx.Err() })
		hangups <- os.Interrupt
		synctest.Wait()
		time.Sleep(changeTimeout) // a collector that hangs must not block reloads for ever
		synctest.Wait()
		if b.Changing() {
			t.Errorf("a reload still waits after %v", changeTimeout)
		}
		b.want(t, 0, 2, 0, 1)

		hangups <- os.Interrupt
		synctest.Wait()
		cancel() // in the middle of a reload
		must(t, <-done)
		b.want(t, 0, 2, 0, 1)
	})
}

// A server's list wins while it is in service; the local list is checked all the same, waits, and returns.
func TestServersListWins(t *testing.T) {
	b := newBench(csvA)
	const clock = csvA + "DCGM_FI_DEV_SM_CLOCK, gauge, c\n"
	must(t, b.serve(t, "r1", clock))
	in := b.Status().InService
	if in.Origin != "http://lists" || in.Revision != "r1" {
		t.Errorf("in service is %+v", in)
	}
	must(t, b.serve(t, "r2", clock)) // the same under another name
	if again := b.Status().InService; again.Revision != "r2" || again.Hash != in.Hash {
		t.Errorf("in service is %+v", again)
	}
	b.file = csvB
	must(t, b.Reload(t.Context(), "test"))
	b.wantApplied(t, 2)
	s := b.Status()
	if s.InService.Origin != "http://lists" || s.Local.Hash == in.Hash || len(s.Local.Fields.Fields) != 2 || s.Proposals[0].Answer != Waiting {
		t.Errorf("status = %+v", s)
	}
	b.file = "DCGM_FI_DEV_GPU_TEMP, gouge, t\n"
	if err := b.Reload(t.Context(), "test"); err == nil || b.Status().LastError == "" || b.Status().InService.Origin != "http://lists" {
		t.Errorf("a bad local file: %v, %+v", err, b.Status())
	}
	must(t, b.serve(t, "r3", clock))
	if b.Status().LastError == "" {
		t.Error("another revision hides that the local file is bad")
	}
	b.file = csvB
	must(t, b.Reload(t.Context(), "test"))
	if text := b.Status().LastError; text != "" {
		t.Errorf("after a good file the error is still %q", text)
	}
	must(t, b.serve(t, "", ""))
	b.wantApplied(t, 2, 2)
	if s := b.Status(); s.InService.Origin != "counters.csv" || s.InService.Fields.Fields[1].Name != "DCGM_FI_DEV_POWER_USAGE" {
		t.Errorf("the local list is not back: %+v", s.InService)
	}
	if got, want := b.published(), []string{"field list of http://lists: 2 fields false", "field list of counters.csv: 2 fields false"}; len(got) != 3 || got[0] != want[0] || got[2] != want[1] {
		t.Errorf("events = %q", got)
	}
}

// A server's list that one collector cannot use is taken back everywhere.
func TestServersListThatOneCollectorCannotUse(t *testing.T) {
	b := newBench(csvA)
	b.reloads(func(_ context.Context, l field.List) error {
		if len(l.Fields) == 2 {
			return errors.New("collector dcgm: no")
		}
		return nil
	})
	must(t, b.Reload(t.Context(), "test"))
	b.file = csvA + "# now with a comment\n"
	must(t, b.Reload(t.Context(), "test"))
	err := b.serve(t, "x", csvB)
	if err == nil || !strings.Contains(err.Error(), "dcgm: no") || b.Status().InService.Origin != "counters.csv" {
		t.Errorf("%v; status %+v", err, b.Status())
	}
	b.wantApplied(t, 1, 2, 1)
	b.want(t, 1, 1, 1, 0) // the counters CSV is good
}

// A list that could not be put back everywhere is put back by the next reload, although the file is the same.
func TestReloadAfterAListThatCouldNotBeTakenBack(t *testing.T) {
	b := newBench(csvA)
	good := func(context.Context, field.List) error { return nil }
	bad := func(context.Context, field.List) error { return errors.New("hangs") }
	b.file = csvA
	must(t, b.Reload(t.Context(), "test")) // the same file by its name
	b.reloads(bad)
	if b.serve(t, "x", csvB) == nil {
		t.Fatal("a list that no collector can use is in service")
	}
	b.reloads(good)
	must(t, b.Reload(t.Context(), "test"))
	b.want(t, 1, 1, 1, 0)
	b.wantApplied(t, 2, 1, 1)

	// A list of a server that is good is in service everywhere.
	b.reloads(bad)
	_ = b.serve(t, "x", csvB)
	b.reloads(good)
	must(t, b.serve(t, "y", csvProf))
	must(t, b.serve(t, "", ""))
	must(t, b.Reload(t.Context(), "test"))
	b.want(t, 1, 1, 2, 0)

	// While a server's list is in service the local one needs no change.
	must(t, b.serve(t, "y", csvProf))
	b.reloads(bad)
	_ = b.serve(t, "x", csvB)
	b.reloads(good)
	must(t, b.Reload(t.Context(), "test"))
	b.want(t, 1, 1, 3, 0)
}

// A server may deliver the local list: it is the server's from then on.
func TestServerDeliversTheLocalList(t *testing.T) {
	b := newBench(csvA)
	must(t, b.serve(t, "r", csvA))
	if s := b.Status(); s.InService.Origin != "http://lists" || s.InService.Hash != s.Local.Hash {
		t.Errorf("in service is %+v", s.InService)
	}
}

// The metrics of a server's list.
func TestDeliveryMetrics(t *testing.T) {
	b := newBench(csvA)
	count := func(name string) int {
		n, err := testutil.GatherAndCount(b.reg, name)
		must(t, err)
		return n
	}
	if n := count("warpgauge_remote_config_status"); n != 0 {
		t.Errorf("%d series without a server", n)
	}
	b.SetDelivery(Delivery{Status: Refused, Refused: []Refusal{{Text: "x"}}, Unkept: "full", Since: time.Now()})
	if b.metric(t, "warpgauge_remote_config_status", "refused") != 1 || b.metric(t, "warpgauge_remote_refused_lines", "") != 1 || b.metric(t, "warpgauge_remote_unkept", "") != 1 {
		t.Error("metrics of a refused list")
	}
	if n := count("warpgauge_list_until_timestamp_seconds"); n != 0 {
		t.Error("a list without an end has one")
	}
	until := time.Now().Add(time.Hour)
	turn, err := b.Begin(t.Context())
	must(t, err)
	must(t, turn.Serve(t.Context(), &List{Hash: "x", Until: until}))
	turn.End()
	if got := b.metric(t, "warpgauge_list_until_timestamp_seconds", ""); got != float64(until.Unix()) {
		t.Errorf("the list ends at %v, want %v", got, until.Unix())
	}
}

// A configuration file of a server has a list and intervals only; lines are those of the file.
func TestParseDelivered(t *testing.T) {
	f := NewFiles(config.Default(), nil, nil, nil)
	const list = "version: 2\nmetrics:\n  fields:\n  - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: t}\n"
	p := f.ParseDelivered([]byte(list+"collections:\n- {name: all, every: 10s, metrics: {include: ['*']}}\n"), "x", true)
	if p.Err != nil || len(p.Problems) > 0 || len(p.Fields.Fields) != 1 || p.Fields.Fields[0].Interval != 10*time.Second || p.Fields.Fields[0].Line != 4 {
		t.Errorf("%+v", p)
	}
	p = f.ParseDelivered([]byte(list+"server: {maxConcurrentScrapes: 1}\n"), "x", true)
	if len(p.Problems) != 1 || p.Problems[0].Line != 5 || p.Problems[0].Severity != field.Error {
		t.Errorf("settings of a server: %+v", p.Problems)
	}
	if p := f.ParseDelivered([]byte("version: 9\n"), "x", true); p.Err == nil {
		t.Error("a file of an unknown version has a list")
	}
}

// The list that was kept is in service before anything samples.
func TestRestore(t *testing.T) {
	b := newBench(csvA)
	b.Restore(t.Context(), &List{Origin: "http://lists", Hash: "x", Fields: b.files.Parse(&config.Content{CSV: []byte(csvB)}).Fields})
	b.wantApplied(t, 2)
	if s := b.Status(); s.InService.Origin != "http://lists" || s.Local.Origin != "counters.csv" {
		t.Errorf("status = %+v", s)
	}
	must(t, b.Reload(t.Context(), "test"))
	b.wantApplied(t, 2)
}

// TestAnnotations: the list in service, and what was wrong with a later one of a file or a server.
func TestAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvA)
		want := map[string]string{
			"warpgauge/list-hash": b.Status().Local.Hash, "warpgauge/list-origin": "counters.csv", "warpgauge/list-applied": "2000-01-01T00:00:00Z", "warpgauge/list-error": "",
		}
		check := func(problem string) {
			t.Helper()
			want["warpgauge/list-error"] = problem
			if diff := cmp.Diff(want, b.Annotations()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		check("")
		b.file = ""
		_ = b.Reload(t.Context(), "test")
		check(errEmpty.Error())
		b.SetDelivery(Delivery{Status: Refused, Text: "line 3: no such field", Refused: []Refusal{{4, "x"}}, Since: time.Now()})
		check("line 3: no such field")
		b.SetDelivery(Delivery{Status: Refused, Text: "line 3: no such field", Down: "no route", Since: time.Now()}) // no other answer
		check(errEmpty.Error())
		b.SetDelivery(Delivery{Status: Applied, Since: time.Now().Add(1)})
		check(errEmpty.Error())
		got := b.published()
		if want := []string{"list of the server is refused: line 3: no such field; line 4: x true", "list of the server is applied: it is in service false"}; !slices.Equal(got[1:], want) {
			t.Errorf("events = %q, want %q", got[1:], want)
		}
	})
}
