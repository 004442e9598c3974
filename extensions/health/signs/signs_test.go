package signs

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"warpgauge/extensions/health"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
)

var midnight = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// rig is a Signs for a node, with a Watch that judges them.
type rig struct {
	*node
	*Signs
	watch        *health.Watch
	holds        map[string]bool // active conditions with their device
	begun, ended []string        // since the last call of since
}

func newRig(ids ...field.ID) *rig {
	if ids == nil {
		ids = all
	}
	r := &rig{node: newNode(midnight, ids...)}
	r.restart()
	return r
}

// restart starts a new process.
func (r *rig) restart() {
	reader := rows.New(&r.board, nil)
	r.Signs = New(reader, r.node)
	r.watch = health.New(health.Options{Rows: reader, Status: r.status, Rules: health.Table(), Derived: r.Signs, Logger: zap.NewNop()})
	r.holds = map[string]bool{}
}

// step makes one tick. No row has the time of its judgement.
func (r *rig) step() {
	r.tick()
	r.watch.Sync(r.node.now.Add(700 * time.Millisecond))
}

// run lets time pass.
func (r *rig) run(d time.Duration) {
	for end := r.node.now.Add(d); r.node.now.Before(end); {
		r.step()
		now := map[string]bool{}
		for _, v := range r.watch.Board().Load().Verdicts {
			for _, c := range v.Conditions {
				now[c.Reason+" "+v.Device.ID] = true
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
}

// since returns the conditions that began and ended since its last call.
func (r *rig) since() (begun, ended []string) {
	begun, ended = r.begun, r.ended
	r.begun, r.ended = nil, nil
	slices.Sort(begun)
	slices.Sort(ended)
	return begun, ended
}

// TestSigns injects each fault into a healthy node. It expects the sign on that device only, and its end after the fault.
func TestSigns(t *testing.T) {
	set := func(id field.ID, v float64) func(*gpu) { return func(g *gpu) { g.values[id] = v } }
	grow := func(id field.ID, perHour float64) func(*gpu) {
		return func(g *gpu) { g.values[id] += perHour * every.Hours() }
	}
	for _, c := range []struct {
		name, sign string
		fault      func(*gpu)
		within     time.Duration
		end        time.Duration // time until the sign ends
	}{
		{"a link that replays", "nvlink_errors", grow(replays, 200), 30 * time.Minute, 2 * time.Hour},
		{"a link that recovers", "nvlink_errors", grow(recoveries, 40), 30 * time.Minute, 2 * time.Hour},
		{"200 CRC errors a second", "nvlink_errors", grow(crc, 200*3600), 32 * time.Minute, 2 * time.Hour},
		{"a bit error rate of 1e-9", "nvlink_errors", set(ber, 1e-9), 2 * time.Minute, 11 * time.Minute},
		{"heat", "throttled", set(field.ClockEventReasons, 1<<6), 16 * time.Minute, 2 * time.Hour},
		{"half the clock", "straggler", set(clock, 850), 30 * time.Minute, 40 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig()
			r.use("train", 0, 1, 2, 3, 4, 5, 6, 7)
			r.run(time.Hour)
			if got, _ := r.since(); len(got) > 0 {
				t.Fatalf("a healthy node has %q", got)
			}
			bad := r.gpus[5]
			healthy := maps.Clone(bad.values)
			r.fault = func(g *gpu) {
				if g == bad {
					c.fault(g)
				}
			}
			r.run(c.within)
			want := []string{c.sign + " " + bad.ID}
			if got, _ := r.since(); !slices.Equal(got, want) {
				t.Fatalf("after %v: %q, want %q", c.within, got, want)
			}
			r.fault, bad.values = nil, healthy
			r.run(c.end)
			if _, got := r.since(); !slices.Equal(got, want) || len(r.holds) > 0 {
				t.Errorf("%v after its end: ended are %q, want %q; %v hold", c.end, got, want, r.holds)
			}
		})
	}
}

// TestEndAfterRestart: a condition from an earlier process ends once its counting period passed
// without errors. The restart alone ends nothing.
func TestEndAfterRestart(t *testing.T) {
	want := map[string]time.Duration{
		"nvlink_errors": time.Hour, "throttled": time.Hour,
		"straggler": 20 * time.Minute,
	}
	r := newRig()
	r.run(time.Minute)
	r.restart()
	for reason := range want {
		for _, ago := range []time.Duration{time.Hour, 0} { // longer than any rule's duration
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
	testkit.Equal(t, "ends, as long after the start", want, got)
}

// TestAllLinks: the counter of all links has the budget of one, so the verdict is the same whatever is listed.
func TestAllLinks(t *testing.T) {
	for _, id := range []field.ID{field.PerLinkReplays, field.NVLinksReplays} {
		d := &device{sampled: time.Now().UnixNano()}
		uses[id](d, 1072, 1000)
		d.links.sum(d.sampled)
		testkit.Equal(t, "errors", 72.0, math.Round(field.LinkErrorsPerHour*d.links.share))
	}
}

// TestCauseOfThrottling: the evidence names the cause that has held clocks down for longest.
func TestCauseOfThrottling(t *testing.T) {
	r := newRig()
	r.run(every) // the first row covers no time
	for reasons, minutes := range map[float64]int{1<<6 | 1<<3: 3, 1<<7 | 1<<3: 5, 1 << 5: 4, 1 << 2: 9} {
		r.gpus[2].values[field.ClockEventReasons] = reasons
		r.run(time.Duration(minutes) * time.Minute)
	}
	testkit.Equal(t, "evidence", "clocks were held down for 720 s of the last hour, longest by heat", r.Evidence("GPU-2", field.ThrottledTime))
}

// TestSignMetric: warpgauge_sign_active shows the signs of boards.
func TestSignMetric(t *testing.T) {
	r := newRig()
	r.run(2 * time.Hour)
	r.fault = func(g *gpu) {
		if g.n == 2 {
			g.values[replays] = 90
		}
	}
	r.run(2 * time.Minute)
	want := `# HELP warpgauge_sign_active 1 while an early sign holds; it is an observation of the rule of that name.
# TYPE warpgauge_sign_active gauge
warpgauge_sign_active{device="GPU-2",gpu="2",sign="nvlink_errors"} 1
`
	testkit.Must(t, testutil.CollectAndCompare(r.watch, strings.NewReader(want), "warpgauge_sign_active"))
	testkit.Equal(t, "evidence", "link 4: 1.5 times the budget of an hour for replays and other errors", r.Evidence("GPU-2", field.LinkBudgetUsed))
	r.close() // removes its devices
	r.run(2 * time.Minute)
	testkit.Equal(t, "the value of a device that is gone is unknown", true, math.IsNaN(r.Value("GPU-2", field.LinkBudgetUsed)))
}

// TestAllocations: the steady state allocates nothing.
func TestAllocations(t *testing.T) {
	r := newRig()
	r.run(30 * time.Minute)
	testkit.Equal(t, "allocations in a tick", 0.0, testing.AllocsPerRun(500, r.step))
}

// TestPeers checks which devices are compared.
func TestPeers(t *testing.T) {
	f := func(name string, users map[string][]int, slow []int, times, share float64, want string, change ...func(*node)) {
		t.Helper()
		r := newRig()
		for _, c := range change {
			c(r.node)
		}
		for _, i := range slow {
			for id, by := range map[field.ID]float64{clock: times, load: share, engine: share} {
				r.gpus[i].values[id] *= by
			}
		}
		for pod, gpus := range users {
			r.use(pod, gpus...)
		}
		r.run(time.Hour)
		begun, _ := r.since()
		testkit.Equal(t, name+": stragglers", want, strings.ReplaceAll(strings.Join(begun, " "), "straggler ", ""))
	}
	f("two owners, one with locked clocks", map[string][]int{"a": {0, 1, 2, 3}, "b": {4, 5, 6, 7}}, []int{4, 5, 6, 7}, 0.5, 1, "")
	f("the same without owners", nil, []int{5, 6, 7}, 0.5, 1, "GPU-5 GPU-6 GPU-7")
	f("one of an owner", map[string][]int{"a": {0, 1, 2, 3}}, []int{2}, 0.5, 1, "GPU-2")
	f("an owner with three", map[string][]int{"a": {0, 1, 2}}, []int{2}, 0.5, 1, "")
	f("one with less to do", map[string][]int{"a": {0, 1, 2, 3}}, []int{2}, 0.5, 0.7, "")
	f("of 20 % less", nil, []int{2}, 0.8, 1, "")
	f("idle GPUs", nil, []int{0, 1, 2, 3, 4, 5}, 0.5, 0.3, "")
	f("divided GPUs", nil, []int{2}, 0.5, 1, "", func(n *node) { n.divided = true; n.open() })
}

// TestCountedOnce: errors in overlapping rows of two sessions count once, errors between the
// sessions count, and a driver that restarts its counter removes nothing.
func TestCountedOnce(t *testing.T) {
	r := newRig()
	errors := func(n float64) {
		for _, g := range r.gpus {
			g.values[replays] += n
		}
	}
	want := func(n float64) {
		t.Helper()
		r.run(every)
		testkit.Equal(t, "errors", n, math.Round(field.LinkErrorsPerHour*r.Value("GPU-3", field.LinkBudgetUsed)))
	}
	errors(50)
	want(0) // from before
	errors(7)
	want(7)
	r.close()
	r.open()
	r.sample(r.gpus[3]) // a time that the previous ring also has
	errors(5)
	want(12)
	r.close()
	errors(-r.gpus[3].values[replays])
	r.run(time.Minute)
	r.open()
	want(12)
	errors(3)
	want(15)
}

// TestReadingsThatDoNotCount: corrected link errors.
func TestReadingsThatDoNotCount(t *testing.T) {
	r := newRig(field.NVLinkErrors)
	r.fault = func(g *gpu) { g.values[field.NVLinkErrors] += 1e5 }
	r.run(time.Hour)
	begun, _ := r.since()
	testkit.Equal(t, "signs", []string(nil), begun)
}

// TestMad: nonsense rows and a changed clock do no lasting harm.
func TestMad(t *testing.T) {
	r := newRig()
	r.run(time.Hour)
	healthy := maps.Clone(r.gpus[1].values)
	for _, id := range all {
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300} {
			r.gpus[1].values[id] = v
			r.run(every)
		}
		r.gpus[1].values = maps.Clone(healthy)
	}
	r.node.now = r.node.now.Add(-48 * time.Hour)
	r.run(time.Hour)
	r.node.now = r.node.now.Add(72 * time.Hour)
	r.run(26 * time.Hour)
	testkit.Equal(t, "signs", map[string]bool{}, r.holds)
	for id := range r.devices {
		if got := r.Value(id, field.ClockLag); len(id) == len("GPU-1") && math.IsNaN(got) {
			t.Errorf("%s is not compared any more", id)
		}
	}
}
