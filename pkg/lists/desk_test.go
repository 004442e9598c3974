package lists

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

var must = testkit.Must

const (
	csvA    = "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"
	csvB    = csvA + "DCGM_FI_DEV_POWER_USAGE, gauge, p\n"
	csvProf = csvA + "DCGM_FI_PROF_SM_ACTIVE, gauge, s\n"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a Desk with a fake file and a fake engine.
type bench struct {
	*Desk
	files   *Files
	file    string // content
	readErr error
	logs    *observer.ObservedLogs
	events  []string // with whether they are bad

	mu       sync.Mutex // timers call it as well
	reload   func(context.Context, field.List) error
	applied  [][]string // names of each list
	released map[string]bool
	refuse   error       // of releases
	serves   atomic.Bool // a collector has the last list although its Reload failed
}

func newBench(initial string, log ...zapcore.Core) *bench {
	core, logs := observer.New(zap.InfoLevel)
	b := &bench{file: initial, logs: logs, released: map[string]bool{}, reload: accept, files: NewFiles(config.Default(), nil, nil, nil)}
	b.Desk = New(b.parse(initial), Options{
		Tick: time.After, Local: held{b.files, b}, Engine: (*engine)(b), Events: b, Usual: 10 * time.Minute, Logger: zap.New(zapcore.NewTee(append(log, core)...)),
	})
	return b
}

// run runs the Desk until stop.
func (b *bench) run(t *testing.T, s Signals) (stop func()) {
	return testkit.Start(t, func(ctx context.Context) error { return b.Run(ctx, s) })
}

func (b *bench) parse(csv string) *Parsed {
	return b.files.Parse(&config.Content{CSV: []byte(csv), Name: "counters.csv"})
}

// held implements Local for a bench.
type held struct {
	*Files
	b *bench
}

func (h held) Read(context.Context) (*config.Content, error) {
	return &config.Content{CSV: []byte(h.b.file), Name: "counters.csv"}, h.b.readErr
}

// Publish implements Events.
func (b *bench) Publish(text string, bad bool) {
	b.events = append(b.events, fmt.Sprint(text, " ", bad))
}

// engine implements Engine for a bench.
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

func (e *engine) Serves() bool { return e.serves.Load() }

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

func accept(context.Context, field.List) error { return nil }
func hang(context.Context, field.List) error   { return errors.New("hangs") }

// reloads sets the engine's reaction to the next lists.
func (b *bench) reloads(f func(context.Context, field.List) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reload = f
}

// wantApplied checks the number of fields of each list applied so far.
func (b *bench) wantApplied(t *testing.T, want ...int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var got []int
	for _, names := range b.applied {
		got = append(got, len(names))
	}
	testkit.Equal(t, "numbers of fields of the applied lists", want, got)
}

// want reloads and checks the result: the error, whether the local list is good, and the counts per result.
func (b *bench) want(t *testing.T, problem string, good bool, successes, unchanged, failed uint64) {
	t.Helper()
	err := b.Reload(t.Context(), "test")
	testkit.ErrorIf(t, (problem == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), problem), "reload = %v, want %q", err, problem)
	b.wantCounts(t, good, successes, unchanged, failed)
}

func (b *bench) wantCounts(t *testing.T, good bool, successes, unchanged, failed uint64) {
	t.Helper()
	if s := b.Status(); s.good != good || s.successes != successes || s.unchanged != unchanged || s.errors != failed || good != (s.LastError == "") || good != s.FailedAt.IsZero() {
		t.Errorf("status = %+v, want good %v, %d successes, %d unchanged, %d errors", s, good, successes, unchanged, failed)
	}
}

// serve proposes a list as a server does.
func (b *bench) serve(t *testing.T, revision, csv string) error {
	t.Helper()
	turn := testkit.Get(b.Begin(t.Context()))(t)
	defer turn.End()
	if csv == "" {
		return turn.Serve(t.Context(), nil)
	}
	p := b.parse(csv)
	return turn.Serve(t.Context(), &List{Origin: "http://lists", Revision: revision, Hash: p.Content.Hash(), Fields: p.Fields})
}

// An unusable file keeps the current list, and each bad line is logged. Restoring the file clears the error.
func TestReload(t *testing.T) {
	b := newBench(csvA)
	b.wantCounts(t, true, 0, 0, 0)
	b.want(t, "", true, 0, 1, 0)
	b.file = csvB
	b.want(t, "", true, 1, 1, 0)
	got := b.Status().Proposals
	testkit.ErrorIf(t, len(got) != 1 || got[0].By != "test" || got[0].What != "reload" || got[0].Answer != Applied, "proposals = %+v", got)
	b.file = csvB + "DCGM_FI_DEV_FB_USED, gouge, x\nDCGM_FI_DEV_FB_FREE, counterr, y\n"
	b.want(t, "counterr", false, 1, 1, 1)
	lines := b.logs.FilterMessageSnippet("unknown type").All()
	if len(lines) != 2 || lines[0].ContextMap()["line"] != int64(3) || lines[1].ContextMap()["line"] != int64(4) {
		t.Errorf("log = %v, want a line each for lines 3 and 4 of the file", b.logs.All())
	}
	b.readErr = os.ErrNotExist
	b.want(t, "not exist", false, 1, 1, 2)
	b.readErr, b.file = nil, "# nothing\n"
	b.want(t, "lists no fields", false, 1, 1, 3) // it would empty the page
	b.file = csvB                                // restored: nothing to apply, but the error ends
	b.want(t, "", true, 1, 2, 3)
	b.wantApplied(t, 2)
}

// Audit S11: log lines about a list had the key "file" twice.
func TestReloadLogsEachKeyOnce(t *testing.T) {
	var out bytes.Buffer
	b := newBench(csvA, zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&out), zap.InfoLevel))
	warned := csvA + "DCGM_FI_DEV_GPU_UTLI, gauge, u\n"
	for _, b.file = range []string{warned, warned, warned + "DCGM_FI_DEV_FB_USED, gouge, x\n", "# nothing\n"} {
		_ = b.Reload(t.Context(), "test") // the result does not matter here
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	testkit.ErrorIf(t, len(lines) < 6, "%d lines, want warnings and errors of each list:\n%s", len(lines), out.String())
	for _, line := range lines {
		var keys map[string]any
		must(t, json.Unmarshal([]byte(line), &keys))
		for key := range keys {
			testkit.Times(t, 1, line, fmt.Sprintf("%q:", key))
		}
		testkit.Has(t, "line", line, `"file":"counters.csv"`)
	}
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
		var all sync.WaitGroup
		reload := func() { must(t, b.Reload(t.Context(), "test")) }
		all.Go(reload)
		synctest.Wait()
		testkit.Equal(t, "a reload is in progress while one is at work", true, b.Changing())
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		testkit.Equal(t, "reload whose context ends before its turn", context.DeadlineExceeded, b.Reload(hurried, "hurried"), cmpopts.EquateErrors())
		all.Go(reload)
		synctest.Wait()
		close(release)
		all.Wait()
		testkit.Equal(t, "a reload is in progress after all have ended", false, b.Changing())
		b.wantCounts(t, true, 1, 1, 0) // the second found the file unchanged
	})
}

// Requests that come before the file is read are merged. A hanging collector does not block reloads for ever.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvA)
		for range 3 {
			b.RequestReload("file change")
		}
		hangups := make(chan os.Signal, 1)
		stop := b.run(t, Signals{Reload: hangups})
		synctest.Wait()
		b.wantCounts(t, true, 0, 1, 0)

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
		time.Sleep(changeTimeout)
		synctest.Wait()
		testkit.Equal(t, "a reload still waits after its time", false, b.Changing())
		b.wantCounts(t, false, 2, 1, 1)
		s := b.Status()
		testkit.Equal(t, "the new list is in service although no collector has it", false, s.InService.Hash == s.Local.Hash)
		b.serves.Store(true) // the call returns
		time.Sleep(endsEvery)
		synctest.Wait()
		b.wantCounts(t, true, 2, 1, 1)
		s = b.Status()
		testkit.Equal(t, "list in service when a collector has it", s.Local.Hash, s.InService.Hash)
		hangups <- os.Interrupt
		synctest.Wait()
		stop() // in the middle of a reload
		b.wantCounts(t, true, 2, 1, 1)
	})
}

// A server's list has precedence, even if it equals the local list, which is still checked, waits, and returns.
func TestServersListWins(t *testing.T) {
	b := newBench(csvA)
	service := func(origin, revision, problem string, answer Answer) {
		t.Helper()
		s := b.Status()
		if s.InService.Origin != origin || s.InService.Revision != revision || !strings.Contains(s.LastError, problem) || len(s.Proposals) > 0 && s.Proposals[0].Answer != answer {
			t.Errorf("status = %+v, want %s %s in service, error %q, answer %s", s, origin, revision, problem, answer)
		}
	}
	const clock = csvA + "DCGM_FI_DEV_SM_CLOCK, gauge, c\n"
	must(t, b.serve(t, "r0", csvA))
	service("http://lists", "r0", "", "")
	must(t, b.serve(t, "r1", clock))
	must(t, b.serve(t, "r2", clock)) // the same list under another name
	service("http://lists", "r2", "", "")
	b.file = csvB
	b.want(t, "waits", true, 1, 0, 0)
	service("http://lists", "r2", "", Waiting)
	b.file = "DCGM_FI_DEV_GPU_TEMP, gouge, t\n"
	b.want(t, "gouge", false, 1, 0, 1)
	must(t, b.serve(t, "r3", clock)) // another revision does not hide the bad local file
	service("http://lists", "r3", "gouge", Failed)
	b.file = csvB
	b.want(t, "waits", true, 1, 1, 1)
	must(t, b.serve(t, "", ""))
	service("counters.csv", "", "", Unchanged)
	b.wantApplied(t, 1, 2, 2)
	testkit.Equal(t, "second field of the local list, which is back", "DCGM_FI_DEV_POWER_USAGE", b.applied[2][1])
	if len(b.events) != 4 || b.events[1] != "field list of http://lists: 2 fields false" || b.events[3] != "field list of counters.csv: 2 fields false" {
		t.Errorf("events = %q", b.events)
	}
}

// The next reload repeats a list that some collectors could not use, although the file is unchanged. A server's list
// that they cannot use is withdrawn everywhere.
func TestHalfASuccess(t *testing.T) {
	b := newBench(csvA)
	b.file = csvB
	b.reloads(hang)
	b.want(t, "hangs", false, 0, 0, 1)
	b.reloads(accept)
	b.want(t, "", true, 1, 0, 1)
	b.wantApplied(t, 2, 2)

	b.reloads(func(_ context.Context, l field.List) error {
		if len(l.Fields) == 1 {
			return errors.New("collector dcgm: no")
		}
		return nil
	})
	err := b.serve(t, "x", csvA)
	testkit.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "dcgm: no") || b.Status().InService.Origin != "counters.csv", "%v; status %+v", err, b.Status())
	b.wantApplied(t, 2, 2, 1, 2)
	b.want(t, "", true, 1, 1, 1) // the counters CSV is good, and in service everywhere

	cannotBeTakenBack := func() {
		b.reloads(hang)
		testkit.Equal(t, "a list that no collector can use is in service", false, b.serve(t, "x", csvA) == nil)
		b.reloads(accept)
	}
	cannotBeTakenBack()
	b.want(t, "", true, 2, 1, 1)
	cannotBeTakenBack()
	must(t, b.serve(t, "y", csvProf)) // in service everywhere
	must(t, b.serve(t, "", ""))
	b.want(t, "", true, 2, 2, 1)
	must(t, b.serve(t, "y", csvProf))
	cannotBeTakenBack()
	b.want(t, "waits", true, 2, 3, 1) // the local list needs no change while a server's list is in service
}

// Metrics of the desk and of a server's list.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvA)
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(b.Desk)
		gather := func() string {
			families := testkit.Get(reg.Gather())(t)
			var out strings.Builder
			for _, f := range families {
				testkit.Get(expfmt.MetricFamilyToText(&out, f))(t)
			}
			return out.String()
		}
		has := func(lines ...string) {
			t.Helper()
			text := gather()
			for _, line := range lines {
				testkit.Has(t, "metrics", text, "\nwarpgauge_"+line+"\n")
			}
		}
		has("config_last_reload_successful 1", `config_reloads_total{result="success"} 0`, "profiling_paused 0", "list_applied_timestamp_seconds 9.466848e+08",
			`list_info{hash="`+b.Status().Local.Hash+`",origin="counters.csv",revision=""} 1`)
		testkit.Lacks(t, "metrics without a server", gather(), "remote", "until")
		b.file = ""
		_ = b.Reload(t.Context(), "test")
		b.SetDelivery(Delivery{Status: Refused, Refused: []Refusal{{Text: "x"}}, Unkept: "full", Since: time.Now()})
		has("config_last_reload_successful 0", `config_reloads_total{result="error"} 1`, `remote_config_status{status="refused"} 1`, "remote_refused_lines 1", "remote_unkept 1")
		turn := testkit.Get(b.Begin(t.Context()))(t)
		must(t, turn.Serve(t.Context(), &List{Hash: "x", Until: time.Now().Add(time.Hour)}))
		turn.End()
		has("list_until_timestamp_seconds 9.466884e+08")
	})
}

// The fields of a server's configuration file have its lines and intervals.
func TestParseDelivered(t *testing.T) {
	f := NewFiles(config.Default(), nil, nil, nil)
	const list = "version: 2\nmetrics:\n  fields:\n  - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: t}\n"
	p := f.ParseDelivered([]byte(list+"collections:\n- {name: all, every: 10s, metrics: {include: ['*']}}\n"), "x", true)
	if p.Err != nil || len(p.Problems) > 0 || len(p.Fields.Fields) != 1 || p.Fields.Fields[0].Interval != 10*time.Second || p.Fields.Fields[0].Line != 4 {
		t.Errorf("%+v", p)
	}
}

// The saved list is in service before the first sample.
func TestRestore(t *testing.T) {
	b := newBench(csvA)
	b.Restore(&List{Origin: "http://lists", Hash: "x", Fields: b.parse(csvB).Fields})
	b.wantApplied(t, 2)
	s := b.Status()
	testkit.ErrorIf(t, s.InService.Origin != "http://lists" || s.Local.Origin != "counters.csv", "status = %+v", s)
	b.want(t, "waits", true, 0, 1, 0)
	b.wantApplied(t, 2)
}

// TestDelivered: the answers to a server's lists are events.
func TestDelivered(t *testing.T) {
	b := newBench(csvA)
	now := time.Now()
	b.SetDelivery(Delivery{Status: Refused, Text: "line 3: no such field", Refused: []Refusal{{4, "x"}}, Since: now})
	b.SetDelivery(Delivery{Status: Refused, Text: "line 3: no such field", Down: "no route", Since: now}) // the answer stays the same
	b.SetDelivery(Delivery{Status: Applied, Since: now.Add(1)})
	want := []string{"list of the server is refused: line 3: no such field; line 4: x true", "list of the server is applied: it is in service false"}
	testkit.Equal(t, "events", want, b.events)
}
