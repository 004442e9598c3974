package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

const (
	listA = "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"
	listB = listA + "DCGM_FI_DEV_POWER_USAGE, gauge, p\n"
	listC = listA + "DCGM_FI_DEV_SM_CLOCK, gauge, c\n"
)

// bench is a Manager over a node that the test holds in its hands.
type bench struct {
	*Manager
	t       *testing.T
	mu      sync.Mutex   // of what follows
	service []string     // what was applied: names of the fields, "local"
	last    string       // hash of the last one
	fail    error        // of the next applications
	m       Measured     // what Measure returns
	step    atomic.Int64 // of the wall clock
}

var usual = Guard{Bytes: 1 << 20, Fields: 500, Series: 1000, Interval: 100 * time.Millisecond, Cost: 0.5}

// gpus is a View of so many GPUs that serve a list.
func gpus(n int, csv string) *view.View {
	list, _, _ := field.Parse(strings.NewReader(csv), field.ParseOptions{})
	s := &view.Source{Fields: list}
	for i := range n {
		s.Devices = append(s.Devices, collector.Device{ID: fmt.Sprint("GPU-", i), Level: field.GPU})
		for _, r := range list.Readings() {
			s.Columns = append(s.Columns, collector.Column{Device: i, Field: r.Desc.ID})
		}
	}
	return &view.View{Sources: []*view.Source{s}}
}

func parseCSV(o *Offer) (field.List, []Refusal, error) {
	list, problems, err := field.Parse(strings.NewReader(string(o.Content)), field.ParseOptions{})
	var out []Refusal
	for _, p := range problems {
		if p.Severity == field.Error {
			out = append(out, Refusal{p.Line, p.Message})
		}
	}
	return list, out, err
}

func newBench(t *testing.T, change ...func(*Options)) *bench {
	b := &bench{t: t}
	now := gpus(8, listA)
	local, _, _ := parseCSV(&Offer{Content: []byte(listA)})
	o := Options{
		Origin: "https://lists", Guard: usual, Logger: zap.NewNop(), Event: func(string, bool) {}, Parse: parseCSV,
		View:    func() *view.View { return now },
		Measure: func() Measured { b.mu.Lock(); defer b.mu.Unlock(); return b.m },
		Local:   func() (string, field.List) { return "local", local },
		Apply: func(_ context.Context, l *List) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.fail != nil {
				return b.fail
			}
			name, hash := "local", ""
			if l != nil {
				name, hash = l.Revision, l.Hash
			}
			if hash == "" || hash != b.last {
				b.service = append(b.service, name)
			}
			b.last = hash
			return nil
		},
	}
	for _, c := range change {
		c(&o)
	}
	b.Manager = New(o)
	b.wall = func() time.Time { return time.Now().Add(time.Duration(b.step.Load())).Round(0) }
	return b
}

func in(dir string) func(*Options) { return func(o *Options) { o.Directory = dir } }

// private is a directory as Private wants it.
func private(t *testing.T) string {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bench) deliver(name, content string) *Outcome {
	return b.Deliver(b.t.Context(), &Offer{Origin: "https://lists", Revision: name, Content: []byte(content)})
}

// want delivers a list and checks what became of it and what was applied so far.
func (b *bench) want(name, content string, status Status, condition, service string) *Outcome {
	b.t.Helper()
	out := b.deliver(name, content)
	if out.Status != status || b.State().Condition() != condition || (out.Err != nil) != (status == Failed) {
		b.t.Errorf("%s is %s and %s (%v; %v), want %s and %s", name, out.Status, b.State().Condition(), out.Err, b.State().Text, status, condition)
	}
	b.wantService(service)
	return out
}

func (b *bench) wantService(want string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := strings.Join(b.service, " "); got != want {
		b.t.Errorf("applied %q, want %q", got, want)
	}
}

// set changes the node while Run runs.
func (b *bench) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// run starts Run, which ends with the test.
func (b *bench) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = b.Run(ctx); close(done) }()
	b.t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
}

func TestDeliver(t *testing.T) {
	b := newBench(t)
	if s := b.State(); s.Condition() != StateWaiting || b.InService() != nil {
		t.Errorf("at first the state is %+v", s)
	}
	out := b.want("b", listB, Applied, StateApplied, "b")
	if out.Running != hashOf([]byte(listB)) || out.Tried != out.Running || !out.Until.IsZero() {
		t.Errorf("outcome = %+v", out)
	}
	b.want("b2", listB, Unchanged, StateApplied, "b")
	if l := b.InService(); l.Revision != "b2" || l.Origin != "https://lists" {
		t.Errorf("in service is %q of %q, want the revision that the server says now", l.Revision, l.Origin)
	}
	out = b.want("bad", listB+"DCGM_FI_DEV_FB_USED, gouge, x\nDCGM_FI_PROF_SM_ACTIVE, gauge, x\n", Failed, StateRefused, "b")
	if len(out.Refused) != 1 || out.Refused[0].Line != 3 || out.Running != hashOf([]byte(listB)) || out.Tried == out.Running {
		t.Errorf("outcome of a bad list = %+v, want line 3, and both hashes", out)
	}
	b.want("empty", "", Failed, StateRefused, "b")
	b.want("comments", "# nothing\n", Failed, StateRefused, "b")
	b.want("garbage", "\x00\xff\x01", Failed, StateRefused, "b")
	b.want("html", "<html><body>log in</body></html>", Failed, StateRefused, "b")
	b.want("b2", listB, Unchanged, StateApplied, "b")
	b.fail = errors.New("the collector hangs")
	if out := b.want("c", listC, Failed, StateFailed, "b"); !strings.Contains(out.Err.Error(), "hangs") || out.Running != hashOf([]byte(listB)) {
		t.Errorf("outcome = %+v", out)
	}
	b.fail = nil
	if out := b.want("c", listC, Failed, StateFailed, "b"); !strings.Contains(out.Err.Error(), "tried again after 1m") {
		t.Errorf("outcome = %+v", out)
	}
	b.want("c", listC+"# once more\n", Applied, StateApplied, "b c")
	b.Unreachable(errors.New("no route"))
	if s := b.State(); s.Condition() != StateUnreachable || s.Down != "no route" || s.Status != StateApplied {
		t.Errorf("state = %+v", s)
	}
	b.Answered()
	if c := b.State().Condition(); c != StateApplied {
		t.Errorf("after an answer the state is %s", c)
	}
}

// The node's own list can have what the guard takes from no server. A server that ends a trial
// of another list offers it, and it returns.
func TestOwnListReturns(t *testing.T) {
	own, _, _ := parseCSV(&Offer{Content: []byte(listA + "DCGM_FI_PROF_SM_ACTIVE, gauge, s\n")})
	dir := private(t)
	written := "# as people write it\n" + string(field.Format(own))
	b := newBench(t, in(dir), func(o *Options) { o.Local = func() (string, field.List) { return hashOf([]byte(written)), own } })
	content := string(field.Format(own))
	b.want("a server that begins with it", written, Applied, StateApplied, "")
	b.want("b", listB, Applied, StateApplied, "b")
	b.want("own", content, Applied, StateApplied, "b local")
	if b.InService() != nil {
		t.Error("a list of the server is in service")
	}
	b.want("c", content+"DCGM_FI_PROF_DRAM_ACTIVE, gauge, d\n", Failed, StateRefused, "b local")
	if l := newBench(t, in(dir)).Start(); l != nil {
		t.Errorf("list %s was kept", l.Hash)
	}
}

func TestDeliverThatEndsWaitsForNothing(t *testing.T) {
	b := newBench(t)
	b.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if out := b.Deliver(ctx, &Offer{Content: []byte(listB)}); out.Status != Failed || !errors.Is(out.Err, context.Canceled) {
		t.Errorf("outcome = %+v", out)
	}
}

func TestReportChangesNothing(t *testing.T) {
	dir := private(t)
	b := newBench(t, in(dir), func(o *Options) { o.Report = true })
	b.want("b", listB, Reported, StateReported, "")
	if text := b.State().Text; !strings.Contains(text, "adds DCGM_FI_DEV_POWER_USAGE") || !strings.Contains(text, "removes nothing") || !strings.Contains(text, "16 series") {
		t.Errorf("text = %q", text)
	}
	b.want("bad", listB+"x\n", Failed, StateRefused, "")
	if files, _ := os.ReadDir(dir); len(files) > 0 || b.InService() != nil {
		t.Errorf("files %v, in service %v; want nothing", files, b.InService())
	}
}

func TestGuardLooksAgainInService(t *testing.T) {
	b := newBench(t)
	b.want("b", listB, Applied, StateApplied, "b")
	b.m.Series = 1001 // sharing, further labels: what only the page shows
	out := b.want("c", listC, Failed, StateRefused, "b c b")
	if !strings.Contains(out.Err.Error(), "1001 series") || b.InService().Revision != "b" {
		t.Errorf("outcome = %+v, in service %q", out, b.InService().Revision)
	}
	b.want("c", listC, Failed, StateRefused, "b c b") // it is known
}

// TestListThatFailsIsTriedSeldom: each try ends the sessions that there are.
func TestListThatFailsIsTriedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := 0
		b := newBench(t, func(o *Options) {
			o.Apply = func(context.Context, *List) error { tried++; return errors.New("no") }
		})
		for range 6 * 60 * 2 {
			b.deliver("b", listB)
			time.Sleep(30 * time.Second)
		}
		if tried < 8 || tried > 12 {
			t.Errorf("tried %d times in 6 hours", tried)
		}
	})
}

func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 3 * mostChanges {
			b.deliver("x", []string{listB, listC}[i%2])
			time.Sleep(time.Second)
		}
		if len(b.service) != mostChanges || b.State().Status != StateFailed && b.State().Status != StateApplied {
			t.Errorf("%d changes, state %+v, want %d", len(b.service), b.State(), mostChanges)
		}
		if out := b.deliver("b", listB); out.Status != Failed || !strings.Contains(out.Err.Error(), "10 times in 10m") {
			t.Errorf("outcome = %+v", out)
		}
		time.Sleep(changesIn)
		if out := b.deliver("b", listB); out.Status != Applied {
			t.Errorf("after the time: %+v", out)
		}
	})
}

func TestCostOverBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		b.want("b", listB, Applied, StateApplied, "b")
		b.set(func() { b.m.Spent = map[string]time.Duration{"GPU-0": 5 * time.Second} }) // of 30
		time.Sleep(trialStep + time.Second)
		synctest.Wait()
		b.wantService("b")
		b.set(func() { b.m = Measured{} })
		b.want("c", listC, Applied, StateApplied, "b c")
		b.set(func() {
			b.m.Spent = map[string]time.Duration{"GPU-0": 10 * time.Second, "GPU-1": 8 * time.Second}
			b.m.Calls = map[string]time.Duration{"nvmlSlow": 17 * time.Second, "nvmlFast": time.Second}
		})
		time.Sleep(trialStep + time.Second)
		synctest.Wait()
		b.wantService("b c b")
		s := b.State()
		if s.Status != StateRefused || !strings.Contains(s.Text, "0.600 seconds") || !strings.Contains(s.Text, "nvmlSlow 0.567") || len(s.Refused) != 1 {
			t.Errorf("state = %+v", s)
		}
		b.want("c", listC, Failed, StateRefused, "b c b") // it is known
		b.want("b", listB, Unchanged, StateApplied, "b c b")
		b.set(func() { b.m.Spent = map[string]time.Duration{"GPU-0": time.Hour} }) // later a GPU hangs, which is not the list's fault
		time.Sleep(time.Hour)
		synctest.Wait()
		b.wantService("b c b")
	})
}

func TestKept(t *testing.T) {
	dir := private(t)
	b := newBench(t, in(dir))
	if b.Start() != nil {
		t.Error("something is kept in an empty directory")
	}
	b.want("b", listB, Applied, StateApplied, "b")

	again := newBench(t, in(dir))
	l := again.Start()
	if l == nil || l.Revision != "b" || len(l.Fields.Fields) != 2 || again.State().Condition() != StateApplied {
		t.Fatalf("after a restart the list is %+v", l)
	}
	again.want("b", listB, Unchanged, StateApplied, "")

	if l := newBench(t, in(dir), func(o *Options) { o.Origin = "https://other" }).Start(); l != nil {
		t.Error("a list of another server is used")
	}
	if l := newBench(t, in(dir), func(o *Options) { o.Guard.Fields = 1 }).Start(); l != nil {
		t.Error("a list is used that the guard refuses now")
	}
	if l := newBench(t, in(dir), func(o *Options) { o.Report = true }).Start(); l != nil {
		t.Error("report uses the kept list")
	}
	if newBench(t).Start() != nil {
		t.Error("without a directory something is kept")
	}

	path := filepath.Join(dir, keptName)
	whole, err := os.ReadFile(path)
	must(t, err)
	for name, text := range map[string][]byte{
		"truncated": whole[:len(whole)-7], "empty": {}, "damaged": []byte(strings.Replace(string(whole), "Lasting", "Lastinh", 1)),
		"none of ours": []byte("hello\nworld\n"), "no JSON": []byte(hashOf([]byte("{")) + "\n{"),
	} {
		must(t, os.WriteFile(path, text, 0o600))
		b := newBench(t, in(dir))
		if b.Start() != nil || b.State().Unkept == "" {
			t.Errorf("a file that is %s is used: %+v", name, b.State())
		}
		b.want("c", listC, Applied, StateApplied, "c") // and is replaced
		if l := newBench(t, in(dir)).Start(); l == nil || l.Revision != "c" {
			t.Errorf("after a file that was %s: %+v", name, l)
		}
	}
}

func TestDiskFull(t *testing.T) {
	b := newBench(t)
	b.save = func(*kept) error { return syscall.ENOSPC }
	b.want("b", listB, Applied, StateApplied, "b")
	if s := b.State(); !strings.Contains(s.Unkept, "no space") {
		t.Errorf("state = %+v", s)
	}
	b.save = func(*kept) error { return nil }
	b.want("c", listC, Applied, StateApplied, "b c")
	if s := b.State(); s.Unkept != "" {
		t.Errorf("state = %+v", s)
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	b = newBench(t, in(file))
	if b.Start(); b.State().Unkept == "" {
		t.Error("a directory that is none is not reported")
	}
	b.want("b", listB, Applied, StateApplied, "b")
}

func TestInstanceID(t *testing.T) {
	dir := private(t)
	id := InstanceID(t.Context(), dir, "n1")
	if len(id) != 36 || id[14] != '8' || InstanceID(t.Context(), dir, "renamed") != id || InstanceID(t.Context(), "", "n1") != id || InstanceID(t.Context(), "", "n2") == id {
		t.Errorf("instance id %q is not stable", id)
	}
}
