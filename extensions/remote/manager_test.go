package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	listA = "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"
	listB = listA + "DCGM_FI_DEV_POWER_USAGE, gauge, p\n"
	listC = listA + "DCGM_FI_DEV_SM_CLOCK, gauge, c\n"
)

// bench is a Manager with a Desk and a node that the test controls.
type bench struct {
	*Manager
	t       *testing.T
	o       Options
	board   view.Board
	local   string     // content of the local list
	mu      sync.Mutex // guards the following fields
	service []string   // lists put into service: b, c or local
	fail    error      // error of the next reloads
	tried   int        // number of reloads
	series  int
	states  []session.CollectorStatus
	costs   session.Costs
}

var usual = Guard{Limits: Limits{Bytes: 1 << 20, Fields: 500, Series: 1000, Interval: 100 * time.Millisecond, Cost: 0.5, Lost: 0.5}}

// gpus returns a View of n GPUs that serves a list.
func gpus(n int, csv string) *view.View {
	list, _, _ := field.Parse(strings.NewReader(csv), field.ParseOptions{})
	s := &view.Source{Fields: list}
	for i := range n {
		s.Devices = append(s.Devices, collector.Device{ID: fmt.Sprint("GPU-", i), Level: field.GPU})
		for _, r := range list.Readings() {
			s.Columns = append(s.Columns, collector.Column{Device: i, Field: r.Desc.ID})
		}
	}
	s.Ring = ring.Make(16, n, len(s.Columns))
	return &view.View{Sources: []*view.Source{s}}
}

// files returns the parser of an exporter without flags.
func files() *lists.Files { return lists.NewFiles(config.Default(), nil, nil, nil) }

func newBench(t *testing.T, change ...func(*bench)) *bench {
	b := &bench{t: t, local: listA, costs: session.Costs{Collector: "nvml"}}
	b.board.Store(gpus(8, listA))
	b.o = Options{Settings: &Settings{URL: "https://lists", Mode: ModeApply, Limits: usual.Limits}, Engine: b, Page: b, Logger: zap.NewNop()}
	for _, c := range change {
		c(b)
	}
	local := files().Parse(&config.Content{CSV: []byte(b.local), Name: "local"})
	b.o.Desk = lists.New(local, lists.Options{Local: files(), Engine: b, Logger: zap.NewNop()})
	b.Manager = newManager(b.o)
	return b
}

func (b *bench) Board() *view.Board { return &b.board }
func (*bench) Sync(time.Time)       {}

func (b *bench) AwaitOpened(ctx context.Context) {
	for ctx.Err() == nil && !session.Opened(b.Status()) {
		time.Sleep(time.Second)
	}
}

func (b *bench) Series() (n int) {
	b.set(func() { n = b.series })
	return n
}

func (b *bench) Status() (all []session.CollectorStatus) {
	b.set(func() { all = b.states })
	return all
}

func (b *bench) Costs() (all []session.Costs) {
	b.set(func() { all = []session.Costs{b.costs} })
	return all
}

// spend sets the total time of each GPU's calls.
func (b *bench) spend(each ...time.Duration) {
	sources := map[string]session.SourceCost{}
	for i, d := range each {
		sources[fmt.Sprint("GPU-", i)] = session.SourceCost{Time: d}
	}
	b.set(func() { b.costs.Sources = sources })
}

// Reload implements lists.Engine, as the next three do.
func (b *bench) Reload(_ context.Context, l field.List) error {
	name := "local"
	for i := range l.Fields {
		switch l.Fields[i].Name {
		case "DCGM_FI_DEV_POWER_USAGE":
			name = "b"
		case "DCGM_FI_DEV_SM_CLOCK":
			name = "c"
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if name != "local" {
		b.tried++
	}
	if b.fail == nil {
		b.service = append(b.service, name)
	}
	return b.fail
}

func (*bench) Release(context.Context, string) error { return nil }
func (*bench) Resume(string)                         {}
func (*bench) Serves() bool                          { return false }
func (*bench) Names() []string                       { return nil }

// restored returns the list that a start without the server puts into service.
func (b *bench) restored() *List {
	b.restore()
	b.service = nil
	return b.inService.Load()
}

func in(dir string) func(*bench) { return func(b *bench) { b.o.Settings.Directory = dir } }

// private returns a directory with the required permissions.
func private(t *testing.T) string {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	return dir
}

func (b *bench) deliver(name, content string) *lists.Outcome {
	return b.Deliver(b.t.Context(), &lists.Offer{Origin: "https://lists", Revision: name, Content: []byte(content)})
}

// want delivers a list and checks the outcome and the lists put into service so far.
func (b *bench) want(name, content string, answer, condition lists.Answer, service string) *lists.Outcome {
	b.t.Helper()
	out := b.deliver(name, content)
	s := b.state()
	failed := answer.Bad() || answer == lists.Ended
	if out.Answer != answer || s.Condition() != condition || (out.Err != nil) != failed {
		b.t.Errorf("%s is %s and %s (%v; %v), want %s and %s", name, out.Answer, s.Condition(), out.Err, s.Text, answer, condition)
	}
	b.wantService(service)
	return out
}

func (b *bench) wantService(want string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	testkit.Equal(b.t, "applied", want, strings.Join(b.service, " "))
}

// set changes the node while Run is running.
func (b *bench) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// run starts Run until the test ends.
func (b *bench) run() {
	testkit.Start(b.t, b.Run)
	synctest.Wait()
}

func TestDeliver(t *testing.T) {
	b := newBench(t)
	if s := b.state(); s.Condition() != lists.Waiting || b.inService.Load() != nil {
		t.Errorf("at first the state is %+v", s)
	}
	out := b.want("b", listB, lists.Applied, lists.Applied, "b")
	testkit.ErrorIf(t, out.Running != hashOf([]byte(listB)) || out.Tried != out.Running || !out.Until.IsZero(), "outcome = %+v", out)
	b.want("b2", listB, lists.Unchanged, lists.Applied, "b")
	if now := b.o.Desk.Status().InService; now.Revision != "b2" || b.inService.Load().Revision != "b2" || now.Origin != "https://lists" {
		t.Errorf("in service is %+v, want the revision that the server says now", now)
	}
	out = b.want("bad", listB+"DCGM_FI_DEV_FB_USED, gouge, x\nDCGM_FI_PROF_SM_ACTIVE, gauge, x\n", lists.Refused, lists.Refused, "b")
	if len(out.Refused) != 1 || out.Refused[0].Line != 3 || out.Running != hashOf([]byte(listB)) || out.Tried == out.Running {
		t.Errorf("outcome of a bad list = %+v, want line 3, and both hashes", out)
	}
	testkit.Equal(t, "outcome of a list without fields", "the list asks for nothing", b.want("comments", "# nothing\n", lists.Refused, lists.Refused, "b").Err.Error())
	b.want("garbage", "\x00\xff\x01", lists.Refused, lists.Refused, "b")
	b.want("html", "<html><body>log in</body></html>", lists.Refused, lists.Refused, "b")
	b.want("b2", listB, lists.Unchanged, lists.Applied, "b")
	b.fail = errors.New("the collector hangs")
	if out := b.want("c", listC, lists.Failed, lists.Failed, "b"); !strings.Contains(out.Err.Error(), "hangs") || out.Running != hashOf([]byte(listB)) {
		t.Errorf("outcome = %+v", out)
	}
	b.fail = nil
	testkit.Has(t, "outcome", b.want("c", listC, lists.Failed, lists.Failed, "b").Err.Error(), "tried again after 1m")
	b.want("c", listC+"# once more\n", lists.Applied, lists.Applied, "b c")
	b.Unreachable(errors.New("no route"))
	if s := b.state(); s.Condition() != lists.Unreachable || s.Down != "no route" || s.Status != lists.Applied {
		t.Errorf("state = %+v", s)
	}
	b.Answered()
	testkit.Equal(t, "state after an answer", lists.Applied, b.state().Condition())
	turn := testkit.Get(b.o.Desk.Begin(t.Context()))(t)
	defer turn.End()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if out := b.Deliver(ctx, &lists.Offer{Content: []byte(listB)}); out.Answer != lists.Failed || !errors.Is(out.Err, context.Canceled) {
		t.Errorf("outcome = %+v", out)
	}
}

// TestWithdrawal: an offer without content returns the node to its local list, over a restart too.
func TestWithdrawal(t *testing.T) {
	dir := private(t)
	b := newBench(t, in(dir))
	b.want("none", "", lists.Applied, lists.Applied, "")
	b.want("b", listB, lists.Applied, lists.Applied, "b")
	report := newBench(t, in(dir), func(b *bench) { b.o.Settings.Mode = ModeReport })
	report.restored()
	report.want("none", "", lists.Reported, lists.Reported, "")
	if l := newBench(t, in(dir)).restored(); l == nil || l.Revision != "b" {
		t.Errorf("after report the kept list is %v", l)
	}
	b.want("none", "", lists.Applied, lists.Applied, "b local")
	if l := newBench(t, in(dir)).restored(); l != nil || b.inService.Load() != nil {
		t.Errorf("in service %v, kept %v", b.inService.Load(), l)
	}
	out := b.want("other", "DCGM_FI_DEV_SM_CLOCK, gauge, c\n", lists.Refused, lists.Refused, "b local")
	testkit.Has(t, "outcome", out.Err.Error(), "takes away 1 of 1 fields")
}

func TestReportChangesNothing(t *testing.T) {
	dir := private(t)
	b := newBench(t, in(dir), func(b *bench) { b.o.Settings.Mode = ModeReport })
	b.want("b", strings.Replace(listB, "t\n", "temperature\n", 1), lists.Reported, lists.Reported, "")
	testkit.Has(t, "text", b.state().Text, "adds DCGM_FI_DEV_POWER_USAGE; removes nothing; changes DCGM_FI_DEV_GPU_TEMP; up to 16 series")
	b.want("bad", listB+"x\n", lists.Refused, lists.Refused, "")
	if files, _ := os.ReadDir(dir); len(files) > 0 || b.inService.Load() != nil {
		t.Errorf("files %v, in service %v; want nothing", files, b.inService.Load())
	}
}

func TestGuardLooksAgainInService(t *testing.T) {
	b := newBench(t, func(b *bench) { b.series = usual.Series })
	b.want("b", listB, lists.Applied, lists.Applied, "b")
	b.series = 1001 // series of shared GPUs or further labels show only on the page
	out := b.want("c", listC, lists.Refused, lists.Refused, "b c b")
	testkit.ErrorIf(t, !strings.Contains(out.Err.Error(), "1001 series") || b.inService.Load().Revision != "b", "outcome = %+v, in service %q", out, b.inService.Load().Revision)
	b.want("c2", listC+"# once more\n", lists.Refused, lists.Refused, "b c b c b")
	b.want("c", listC, lists.Refused, lists.Refused, "b c b c b") // refused without another try
}

// TestListThatFailsIsTriedSeldom: each try restarts all sessions.
func TestListThatFailsIsTriedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.fail = errors.New("no")
		for range 6 * 60 * 2 {
			b.deliver("b", listB)
			time.Sleep(30 * time.Second)
		}
		testkit.ErrorIf(t, b.tried < 8 || b.tried > 12, "tried %d times in 6 hours", b.tried)
	})
}

func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 3 * maxChanges {
			b.deliver("x", []string{listB, listC}[i%2])
			time.Sleep(time.Second)
		}
		if len(b.service) != maxChanges || b.state().Status != lists.Failed && b.state().Status != lists.Applied {
			t.Errorf("%d changes, state %+v, want %d", len(b.service), b.state(), maxChanges)
		}
		if out := b.deliver("b", listB); out.Answer != lists.Failed || !strings.Contains(out.Err.Error(), "10 times in 10m") {
			t.Errorf("outcome = %+v", out)
		}
		time.Sleep(changesIn)
		testkit.Equal(t, "answer after the time", lists.Applied, b.deliver("b", listB).Answer)
	})
}

func TestCostOverBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		b.want("b", listB, lists.Applied, lists.Applied, "b")
		b.spend(15 * time.Second) // of 30 s: at the limit
		time.Sleep(trialTime + time.Second)
		synctest.Wait()
		b.wantService("b")
		b.spend(time.Hour, time.Hour, time.Hour)
		b.want("c", listC, lists.Applied, lists.Applied, "b c")
		b.spend(time.Hour, time.Hour+10*time.Second, 8*time.Second) // GPU-2 has a new session
		time.Sleep(trialTime + time.Second)
		synctest.Wait()
		b.wantService("b c b")
		s := b.state()
		testkit.ErrorIf(t, s.Status != lists.Refused || !strings.Contains(s.Text, "took 0.600 seconds") || len(s.Refused) != 1, "state = %+v", s)
		b.want("c", listC, lists.Refused, lists.Refused, "b c b") // refused without another try
		b.want("b", listB, lists.Unchanged, lists.Applied, "b c b")
		b.spend(time.Hour) // a GPU hangs later; the list did not cause it
		time.Sleep(time.Hour)
		synctest.Wait()
		b.wantService("b c b")
	})
}

// TestListThatTakesAway: a list takes away at most half of the fields and series in service, unless it is the one before.
func TestListThatTakesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.series = 100
		b.run()
		const wide = listB + "DCGM_FI_DEV_SM_CLOCK, gauge, c\n"
		b.want("wide", wide, lists.Applied, lists.Applied, "c")
		time.Sleep(trialTime + 2*time.Second)
		out := b.want("a", listA, lists.Refused, lists.Refused, "c")
		testkit.Has(t, "outcome", out.Err.Error(), "takes away 2 of 3 fields")
		b.want("b", listB, lists.Applied, lists.Applied, "c b")
		b.set(func() { b.series = 40 })
		time.Sleep(trialTime + 2*time.Second)
		b.wantService("c b c")
		testkit.Has(t, "state", b.state().Text, "takes away 60 of 100 series")
		b.set(func() { b.series = 100 })
		b.want("c", listC, lists.Applied, lists.Applied, "c b c c")
		b.set(func() { b.series = 40 })
		b.want("c2", listC+"# once more\n", lists.Applied, lists.Applied, "c b c c c") //nolint:dupword // two of one kind
		time.Sleep(trialTime + 2*time.Second)
		b.wantService("c b c c c c") //nolint:dupword // the loss of the list before counts

		b = newBench(t)
		b.run()
		b.want("a", listA, lists.Applied, lists.Applied, "local")
		b.want("wide", wide, lists.Applied, lists.Applied, "local c")
		b.set(func() { b.series = 100 })
		b.want("a", listA, lists.Applied, lists.Applied, "local c local")
		b.set(func() { b.series = 10 })
		time.Sleep(trialTime + 2*time.Second)
		b.wantService("local c local")
		b = newBench(t)
		const half = "DCGM_FI_DEV_SM_CLOCK, gauge, c\nDCGM_FI_DEV_FB_USED, gauge, m\n"
		out = b.want("half", half, lists.Refused, lists.Refused, "") // the local list has none of it
		testkit.Has(t, "outcome of the first list", out.Err.Error(), "takes away 1 of 1 fields")
		b.want("four", half+listB, lists.Applied, lists.Applied, "b")
		b.want("half", half, lists.Applied, lists.Applied, "b c")
		b.want("four", half+listB, lists.Applied, lists.Applied, "b c b")
		b.want("b", listB, lists.Applied, lists.Applied, "b c b b")       // half of it
		out = b.want("a", listA, lists.Refused, lists.Refused, "b c b b") // half of that
		testkit.Has(t, "outcome", out.Err.Error(), "takes away 3 of 4 fields")
		time.Sleep(lossesIn + time.Second)
		b.want("a", listA, lists.Applied, lists.Applied, "b c b b local") //nolint:dupword // an hour later
	})
}

func TestKept(t *testing.T) {
	dir := private(t)
	b := newBench(t, in(dir))
	b.want("b", listB, lists.Applied, lists.Applied, "b")

	again := newBench(t, in(dir), func(b *bench) { b.board.Store(&view.View{}) }) // no device is known yet
	l := again.restored()
	if l == nil || l.Revision != "b" || len(l.Fields.Fields) != 2 || again.state().Condition() != lists.Applied {
		t.Fatalf("after a restart the list is %+v", l)
	}
	again.want("b", listB, lists.Unchanged, lists.Applied, "")

	for name, change := range map[string]func(*bench){
		"of another server":      func(b *bench) { b.o.Settings.URL = "https://other" },
		"that the guard refuses": func(b *bench) { b.o.Settings.Limits.Fields = 1 },
		"in report mode":         func(b *bench) { b.o.Settings.Mode = ModeReport },
		"of no directory":        in(""),
		"of an empty directory":  in(private(t)),
	} {
		if l := newBench(t, in(dir), change).restored(); l != nil {
			t.Errorf("the kept list %s is used", name)
		}
	}

	path := filepath.Join(dir, keptName)
	whole := testkit.Get(os.ReadFile(path))(t)
	for name, text := range map[string][]byte{
		"truncated": whole[:len(whole)-7], "empty": {}, "damaged": []byte(strings.Replace(string(whole), "Lasting", "Lastinh", 1)),
		"none of ours": []byte("hello\nworld\n"), "no JSON": []byte(hashOf([]byte("{")) + "\n{"),
	} {
		must(t, os.WriteFile(path, text, 0o600))
		b := newBench(t, in(dir))
		if b.restored() != nil || b.state().Unkept == "" {
			t.Errorf("a file that is %s is used: %+v", name, b.state())
		}
		b.want("c", listC, lists.Applied, lists.Applied, "c") // the file is replaced
		if l := newBench(t, in(dir)).restored(); l == nil || l.Revision != "c" {
			t.Errorf("after a file that was %s: %+v", name, l)
		}
	}
}

// TestListThatCannotBeSaved: it serves, and a later one is saved when the disk works again.
func TestListThatCannotBeSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lists")
	must(t, os.WriteFile(path, nil, 0o600))
	b := newBench(t, in(path))
	if b.restored(); b.state().Unkept == "" {
		t.Error("a directory that is none is not reported")
	}
	b.want("b", listB, lists.Applied, lists.Applied, "b")
	testkit.Has(t, "state", b.state().Unkept, "not a directory")
	must(t, os.Remove(path))
	b.want("c", listC, lists.Applied, lists.Applied, "b c")
	testkit.Equal(t, "unkept", "", b.state().Unkept)
}
