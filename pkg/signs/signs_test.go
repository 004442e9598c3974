package signs

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warpgauge/pkg/health"
)

var midnight = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// rig is Signs on a node, and what it has told.
type rig struct {
	*node
	*Signs
	told []health.Observation
}

func newRig(k kind, seed uint64) *rig {
	r := &rig{node: newNode(k, seed, midnight)}
	r.restart()
	return r
}

// restart is a new process.
func (r *rig) restart() {
	r.Signs = New(Options{Board: &r.board, Owners: r.node, Calls: r.callTimes, Observe: func(o health.Observation) { r.told = append(r.told, o) }})
}

func (r *rig) run(d time.Duration) {
	for end := r.node.now.Add(d); r.node.now.Before(end); {
		r.tick()
		r.Sync(r.node.now)
	}
}

// begun are the signs that began to hold since the last call, by device.
func (r *rig) begun() map[string]int {
	out := map[string]int{}
	for _, o := range r.told {
		if !o.Over {
			out[o.Reason+" "+o.Device]++
		}
	}
	r.told = nil
	return out
}

func (r *rig) over() map[string]int {
	out := map[string]int{}
	for _, o := range r.told {
		if o.Over {
			out[o.Reason+" "+o.Device]++
		}
	}
	r.told = nil
	return out
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
		{"5000 corrected errors a second", "corrected_errors", h100, func(_ *node, g *gpu) { g.sbe += 5000 * step.Seconds() }, step, 12*time.Hour + time.Minute},
		{"12 000 corrected errors in a day", "corrected_errors", mi300x, func(n *node, g *gpu) { g.sbe += n.happens(30_000) }, 2 * time.Hour, 13 * time.Hour},
		{"a bank without spare rows", "spare_rows_low", a100, func(_ *node, g *gpu) { g.none = 1 }, 2 * time.Minute, 11 * time.Minute},
		{"a link that replays", "nvlink_errors", h100, func(n *node, g *gpu) { g.links[5][2] += n.happens(200) }, 30 * time.Minute, 2 * time.Hour},
		{"a link that recovers", "nvlink_errors", a100, func(n *node, g *gpu) { g.links[3][3] += n.happens(40) }, 30 * time.Minute, 2 * time.Hour},
		{"200 CRC errors a second", "nvlink_errors", h100, func(_ *node, g *gpu) { g.links[0][0] += 200 * step.Seconds() }, 32 * time.Minute, 2 * time.Hour},
		{"a bit error rate of 1e-9", "nvlink_errors", h100, func(_ *node, g *gpu) { g.ber = 1e-9 }, 2 * time.Minute, 11 * time.Minute},
		{"heat", "throttled", h100, func(_ *node, g *gpu) { g.mask = 1 << 6 }, 16 * time.Minute, 2 * time.Hour},
		{"half the clock", "straggler", h100, func(_ *node, g *gpu) { g.clock /= 2 }, 30 * time.Minute, 40 * time.Minute},
		{"a slow library", "slow_calls", h100, func(_ *node, g *gpu) { g.seconds += 2 }, 5 * time.Minute, 15 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(c.kind, 7)
			r.shape = training
			r.use("train", 0, 1, 2, 3, 4, 5, 6, 7)
			r.run(time.Hour)
			if got := r.begun(); len(got) > 0 {
				t.Fatalf("a healthy node has %v", got)
			}
			bad := r.gpus[5]
			healthy := *bad
			r.fault = func(g *gpu) {
				if g == bad {
					c.fault(r.node, g)
				}
			}
			r.run(c.within)
			if got := r.begun(); len(got) != 1 || got[c.sign+" "+bad.ID] == 0 {
				t.Fatalf("after %v: %v, want %s of %s alone", c.within, got, c.sign, bad.ID)
			}
			r.fault, bad.none, bad.ber = nil, healthy.none, healthy.ber
			r.run(c.end)
			if got := r.over(); len(got) != 1 || got[c.sign+" "+bad.ID] != 1 {
				t.Errorf("%v after its end: over are %v, want %s of %s once", c.end, got, c.sign, bad.ID)
			}
		})
	}
}

// TestEndAfterRestart: what the process before has told ends although this one never saw it.
func TestEndAfterRestart(t *testing.T) {
	r := newRig(h100, 1)
	r.run(time.Minute)
	r.told = nil
	r.restart()
	r.run(12 * time.Minute)
	for _, sign := range []string{"corrected_errors", "spare_rows_low", "nvlink_errors", "throttled"} {
		if got := r.Signs.present[0].ID; r.told == nil || !told(r.told, sign, got) {
			t.Errorf("the end of %s of %s is not told after the start", sign, got)
		}
	}
}

func told(all []health.Observation, sign, device string) bool {
	for _, o := range all {
		if o.Over && o.Reason == sign && o.Device == device {
			return true
		}
	}
	return false
}

// TestAbsent: a sign of which the readings are missing has no series.
func TestAbsent(t *testing.T) {
	r := newRig(geForce, 3)
	r.run(time.Hour)
	for name, want := range map[string]int{
		"warpgauge_sign_active": 0, "warpgauge_sign_corrected_errors_per_hour": 0, "warpgauge_sign_banks_short_of_spare_rows": 0,
		"warpgauge_sign_link_error_budget_used_ratio": 0, "warpgauge_sign_throttled_seconds": 0, "warpgauge_sign_deviation_ratio": 0,
		"warpgauge_sign_call_slowdown_ratio": geForce.gpus,
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
	if err := testutil.CollectAndCompare(r.Signs, strings.NewReader(want), "warpgauge_sign_active", "warpgauge_sign_link_error_budget_used_ratio"); err != nil {
		t.Error(err)
	}
	if got := testutil.CollectAndCount(r.Signs, "warpgauge_sign_deviation_ratio"); got != 3*h100.gpus {
		t.Errorf("%d deviations, want clock, power and activity of each GPU", got)
	}
	if problems, err := testutil.CollectAndLint(r.Signs); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	if err := prometheus.NewPedanticRegistry().Register(r.Signs); err != nil {
		t.Error(err)
	}
}

// TestAllocations: the steady state has none.
func TestAllocations(t *testing.T) {
	r := newRig(h100, 1)
	r.Signs.o.Calls = nil // which is asked once a minute and gathers metrics
	r.shape = training
	r.run(30 * time.Minute)
	if got := testing.AllocsPerRun(500, func() { r.tick(); r.Sync(r.node.now) }); got != 0 {
		t.Errorf("%v allocations in a tick", got)
	}
}

// BenchmarkSync is a tick of eight GPUs with 18 links each.
func BenchmarkSync(b *testing.B) {
	r := newRig(h100, 1)
	r.shape = training
	r.run(30 * time.Minute)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		r.tick()
		b.StartTimer()
		r.Sync(r.node.now)
	}
}
