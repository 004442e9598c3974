package signs

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"warpgauge/extensions/health"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/verdict"
)

var midnight = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// rig is Signs on a node, with a Watch that judges them.
type rig struct {
	*node
	*Signs
	watch        *health.Watch
	version      uint64
	started      time.Time // of the process, or of the session
	holds        map[string]bool
	begun, ended []string // conditions, with their device, since the last look
	wrong        []string // verdicts that are not ok
}

func newRig(k kind, seed uint64) *rig {
	r := &rig{node: newNode(k, seed, midnight)}
	r.restart()
	return r
}

// restart is a new process.
func (r *rig) restart() {
	reader := rows.New(&r.board, nil)
	r.Signs = New(reader, r.node)
	r.watch = health.New(health.Options{Rows: reader, Status: r.status, Rules: health.Table(), Derived: r.Signs, Logger: zap.NewNop()})
	r.version, r.started, r.holds = 0, r.node.now, map[string]bool{}
}

// later is how old rows are when they are judged: no row is of the time of its judgement.
const later = 700 * time.Millisecond

func (r *rig) run(d time.Duration) {
	for end := r.node.now.Add(d); r.node.now.Before(end); {
		r.step()
		if s := r.watch.Board().Load(); s.Version != r.version {
			r.version = s.Version
			r.look(s)
		}
	}
}

func (r *rig) step() {
	r.tick()
	r.watch.Sync(r.node.now.Add(later))
}

// look records conditions that begin and end, and verdicts that are not ok. Nothing is known of devices before the
// first values, and while an operator has released the collector.
func (r *rig) look(s *verdict.Snapshot) {
	now := map[string]bool{}
	for _, v := range s.Verdicts {
		released, starting := v.Reason == "released" && r.released, v.Reason == "starting" && r.node.now.Sub(r.started) <= step
		if v.State != verdict.OK && !released && !starting {
			r.wrong = append(r.wrong, fmt.Sprintf("%s %s: %s, %s", r.node.now.Format(time.TimeOnly), v.Device.ID, v.State, v.Reason))
		}
		for _, c := range v.Conditions {
			if c.State != verdict.Unknown && v.Device.Parent == "" {
				now[c.Reason+" "+v.Device.ID] = true
			}
		}
	}
	for name := range now {
		if !r.holds[name] {
			r.begun = append(r.begun, name)
		}
	}
	for name := range r.holds {
		if !now[name] {
			r.ended = append(r.ended, name)
		}
	}
	r.holds = now
}

// since returns what began and ended since the last call.
func (r *rig) since() (begun, ended []string) {
	begun, ended = r.begun, r.ended
	r.begun, r.ended = nil, nil
	slices.Sort(begun)
	slices.Sort(ended)
	return begun, ended
}

// TestSigns injects each fault into a healthy node and wants its sign, of that device alone, and
// its end when the fault is gone.
func TestSigns(t *testing.T) {
	for _, c := range []struct {
		name, sign string
		kind       kind
		fault      func(n *node, g *gpu)
		within     time.Duration
		end        time.Duration // until it is over
	}{
		{"5,000 corrected errors a second", "corrected_errors", h100, func(_ *node, g *gpu) { g.sbe += 5000 * step.Seconds() }, step, 12*time.Hour + time.Minute},
		{"30,000 corrected errors an hour", "corrected_errors", mi300x, func(n *node, g *gpu) { g.sbe += n.happens(30_000) }, 2 * time.Hour, 13 * time.Hour},
		{"a bank without spare rows", "spare_rows_low", a100, func(_ *node, g *gpu) { g.none = 1 }, 2 * time.Minute, 11 * time.Minute},
		{"a link that replays", "nvlink_errors", h100, func(n *node, g *gpu) { g.links[5][2] += n.happens(200) }, 30 * time.Minute, 2 * time.Hour},
		{"a link that recovers", "nvlink_errors", a100, func(n *node, g *gpu) { g.links[3][3] += n.happens(40) }, 30 * time.Minute, 2 * time.Hour},
		{"200 CRC errors a second", "nvlink_errors", h100, func(_ *node, g *gpu) { g.links[0][0] += 200 * step.Seconds() }, 32 * time.Minute, 2 * time.Hour},
		{"a bit error rate of 1e-9", "nvlink_errors", h100, func(_ *node, g *gpu) { g.ber = 1e-9 }, 2 * time.Minute, 11 * time.Minute},
		{"heat", "throttled", h100, func(_ *node, g *gpu) { g.mask = 1 << 6 }, 16 * time.Minute, 2 * time.Hour},
		{"half the clock", "straggler", h100, func(_ *node, g *gpu) { g.clock /= 2 }, 30 * time.Minute, 40 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(c.kind, 7)
			r.shape = training
			r.use("train", 0, 1, 2, 3, 4, 5, 6, 7)
			r.run(time.Hour)
			if got, _ := r.since(); len(got) > 0 {
				t.Fatalf("a healthy node has %q", got)
			}
			bad := r.gpus[5]
			healthy := *bad
			r.fault = func(g *gpu) {
				if g == bad {
					c.fault(r.node, g)
				}
			}
			r.run(c.within)
			want := []string{c.sign + " " + bad.ID}
			if got, _ := r.since(); !slices.Equal(got, want) {
				t.Fatalf("after %v: %q, want %q", c.within, got, want)
			}
			r.fault, bad.none, bad.ber = nil, healthy.none, healthy.ber
			r.run(c.end)
			if _, got := r.since(); !slices.Equal(got, want) || len(r.holds) > 0 {
				t.Errorf("%v after its end: ended are %q, want %q; %v hold", c.end, got, want, r.holds)
			}
			verdicts := 1
			if c.sign == "straggler" { // which is for information
				verdicts = 0
			}
			if ok := func(text string) bool { return strings.HasSuffix(text, bad.ID+": degraded, "+c.sign) }; len(slices.DeleteFunc(slices.Clone(r.wrong), ok)) > 0 || len(slices.Compact(r.wrong)) < verdicts {
				t.Errorf("verdicts %q", r.wrong)
			}
		})
	}
}

// TestEndAfterRestart: what the process before has seen ends although this one never saw it,
// when there was none of it for as long as it counts. A restart alone ends nothing.
func TestEndAfterRestart(t *testing.T) {
	want := map[string]time.Duration{
		"corrected_errors": 12 * time.Hour, "spare_rows_low": 10 * time.Minute, "nvlink_errors": time.Hour, "throttled": time.Hour,
		"straggler": 20 * time.Minute,
	}
	r := newRig(h100, 1)
	r.shape = training
	r.run(time.Minute)
	r.restart()
	for reason := range want {
		for _, ago := range []time.Duration{time.Hour, 0} { // for longer than any rule waits
			r.watch.Observe(health.Observation{Reason: reason, Device: "GPU-2", Time: r.node.now.Add(-ago)})
		}
	}
	got, start := map[string]time.Duration{}, r.node.now
	for r.node.now.Sub(start) < 13*time.Hour {
		r.run(time.Minute)
		_, ended := r.since()
		for _, name := range ended {
			sign, _, _ := strings.Cut(name, " ")
			got[sign] = r.node.now.Sub(start).Round(10 * time.Minute)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ends, as long after the start (-want +got):\n%s", diff)
	}
}

// TestAbsent: a sign of which the readings are missing has no series.
func TestAbsent(t *testing.T) {
	r := newRig(geForce, 3)
	r.run(time.Hour)
	for name, want := range map[string]int{
		"warpgauge_sign_corrected_errors_per_hour": 0, "warpgauge_sign_banks_short_of_spare_rows": 0,
		"warpgauge_sign_link_error_budget_used_ratio": 0, "warpgauge_sign_throttled_seconds": 0, "warpgauge_sign_deviation_ratio": 0,
	} {
		if got := testutil.CollectAndCount(r.Signs, name); got != want {
			t.Errorf("%s of an idle GeForce has %d series, want %d", name, got, want)
		}
	}
	r.close(true) // its devices are gone
	r.run(2 * time.Minute)
	if got := testutil.CollectAndCount(r.Signs); got != 0 {
		t.Errorf("%d series of devices that are gone", got)
	}
}

// TestSeries are those of a node with one fault of each kind.
func TestSeries(t *testing.T) {
	r := newRig(h100, 3)
	r.kind.corrected, r.kind.linkCRC, r.kind.linkReplays = 0, 0, 0
	r.shape = func(*gpu, time.Duration) float64 { return 0.6 }
	r.run(2 * time.Hour)
	r.fault = func(g *gpu) {
		if g.n == 2 {
			g.sbe, g.links[4][2], g.none, g.low = 20_000, 90, 1, 2
		}
	}
	r.run(2 * time.Minute)
	want := `# HELP warpgauge_sign_active 1 while an early sign holds; it is an observation of the rule of that name.
# TYPE warpgauge_sign_active gauge
warpgauge_sign_active{device="GPU-2",gpu="2",sign="corrected_errors"} 1
warpgauge_sign_active{device="GPU-2",gpu="2",sign="nvlink_errors"} 1
warpgauge_sign_active{device="GPU-2",gpu="2",sign="spare_rows_low"} 1
# HELP warpgauge_sign_link_error_budget_used_ratio Errors of a link within the last hour as a share of what is acceptable. Absent without errors.
# TYPE warpgauge_sign_link_error_budget_used_ratio gauge
warpgauge_sign_link_error_budget_used_ratio{device="GPU-2/link4",gpu="2",link="4"} 1.5
`
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(r.Signs, r.watch)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "warpgauge_sign_active", "warpgauge_sign_link_error_budget_used_ratio"); err != nil {
		t.Error(err)
	}
	if got := testutil.CollectAndCount(r.Signs, "warpgauge_sign_deviation_ratio"); got != 3*h100.gpus {
		t.Errorf("%d deviations, want clock, power and activity of each GPU", got)
	}
	if problems, err := testutil.CollectAndLint(r.Signs); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// TestAllocations: the steady state has none.
func TestAllocations(t *testing.T) {
	r := newRig(h100, 1)
	r.shape = training
	r.run(30 * time.Minute)
	if got := testing.AllocsPerRun(500, func() { r.step() }); got != 0 {
		t.Errorf("%v allocations in a tick", got)
	}
}

// TestPeers: who is compared with whom.
func TestPeers(t *testing.T) {
	f := func(name string, k kind, users map[string][]int, slow []int, times, load float64, want string) {
		t.Helper()
		r := newRig(k, 5)
		r.shape = training
		r.fault = func(g *gpu) {
			if slices.Contains(slow, g.n) {
				g.clock, g.load = g.clock*times, g.load*load
			}
		}
		for pod, gpus := range users {
			r.use(pod, gpus...)
		}
		r.run(time.Hour)
		begun, _ := r.since()
		if got := strings.ReplaceAll(strings.Join(begun, " "), "straggler ", ""); got != want {
			t.Errorf("%s: stragglers %q, want %q", name, got, want)
		}
	}
	f("two owners, one with locked clocks", h100, map[string][]int{"a": {0, 1, 2, 3}, "b": {4, 5, 6, 7}}, []int{4, 5, 6, 7}, 0.5, 1, "")
	f("the same without owners", h100, nil, []int{5, 6, 7}, 0.5, 1, "GPU-5 GPU-6 GPU-7")
	f("one of an owner", h100, map[string][]int{"a": {0, 1, 2, 3}}, []int{2}, 0.5, 1, "GPU-2")
	f("an owner with three", h100, map[string][]int{"a": {0, 1, 2}}, []int{2}, 0.5, 1, "")
	f("one with less to do", h100, map[string][]int{"a": {0, 1, 2, 3}}, []int{2}, 0.5, 0.7, "")
	f("of 20 % less", h100, nil, []int{2}, 0.8, 1, "")
	f("divided GPUs", a100, nil, []int{2}, 0.5, 1, "")
}

// TestCountedOnce: what the rings of two sessions have in common counts once, what happened
// between them counts, and a driver that counts from 0 again takes nothing away.
func TestCountedOnce(t *testing.T) {
	r := newRig(h100, 1)
	r.kind.corrected = 0
	errors := func(n float64) {
		for _, g := range r.gpus {
			g.sbe += n
		}
	}
	want := func(n float64) {
		t.Helper()
		r.run(step)
		if got := r.devices["GPU-3"].corrected.total; got != n {
			t.Errorf("%v errors, want %v", got, n)
		}
	}
	errors(50)
	want(0) // of before
	errors(7)
	want(7)
	r.close(false)
	r.open()
	r.sample(r.gpus[3]) // the instant that the former ring has, too
	errors(5)
	want(12)
	r.close(true)
	r.run(time.Minute)
	r.open()
	want(12)
	errors(3)
	want(15)
}

// TestMad: rows of a process gone mad, and a clock that is set, do no lasting harm.
func TestMad(t *testing.T) {
	r := newRig(h100, 1)
	r.shape = training
	r.run(time.Hour)
	for _, id := range []field.ID{100, 150, 155, 203, 310, 389, 1001, 1004, field.ClockEventReasons} {
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300} {
			r.gpus[1].values[id] = v
			r.run(step)
		}
		delete(r.gpus[1].values, id)
	}
	r.node.now = r.node.now.Add(-48 * time.Hour)
	r.run(time.Hour)
	r.node.now = r.node.now.Add(72 * time.Hour)
	r.run(26 * time.Hour)
	if len(r.holds) > 0 {
		t.Errorf("%v hold", r.holds)
	}
	if got := testutil.CollectAndCount(r.Signs, "warpgauge_sign_deviation_ratio"); got != 3*h100.gpus {
		t.Errorf("%d deviations, want those of all GPUs", got)
	}
}

// TestMeans: a mean is of samples that follow each other, however far apart they are taken.
func TestMeans(t *testing.T) {
	for _, interval := range []time.Duration{10 * time.Millisecond, time.Second, 2 * time.Minute} {
		var m means
		at := midnight.UnixNano()
		for d := time.Duration(0); d < time.Hour; d += interval {
			at += int64(interval)
			m.add(meanClock, 1000, at, int64(interval))
		}
		if got := time.Duration(m.last - m.since); got < time.Hour-interval {
			t.Errorf("every %v: the mean is of %v, want an hour", interval, got)
		}
		m.add(meanClock, 2000, at+int64(interval), int64(interval))
		if got := m.value[meanClock]; got <= 1000 || got > 1300 {
			t.Errorf("every %v: one other value makes the mean %v", interval, got)
		}
		m.add(meanClock, 2000, at+int64(time.Hour), int64(interval))
		if got := m.value[meanClock]; got != 2000 {
			t.Errorf("every %v: after a gap the mean is %v, want that of what came since", interval, got)
		}
	}
}
