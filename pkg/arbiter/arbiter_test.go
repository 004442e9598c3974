package arbiter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// board is a source with one device for each id; "switch…" is no GPU.
func board(name string, ids ...string) *view.Source {
	s := &view.Source{Collector: name, Ring: ring.Make(4, len(ids), 0)}
	for _, id := range ids {
		level := field.GPU
		if strings.HasPrefix(id, "switch") {
			level = field.Switch
		}
		s.Devices = append(s.Devices, collector.Device{ID: id, Level: level})
	}
	return s
}

func sample(at time.Time, sources ...*view.Source) {
	for _, s := range sources {
		stamps := make([]int64, len(s.Devices))
		for i := range stamps {
			stamps[i] = at.UnixNano()
		}
		s.Ring.Append(at.UnixNano(), stamps, nil)
	}
}

func names(sources []*view.Source) string {
	var out []string
	for _, s := range sources {
		var ids []string
		for _, d := range s.Devices {
			ids = append(ids, d.ID)
		}
		out = append(out, s.Collector+":"+strings.Join(ids, "+"))
	}
	return strings.Join(out, " ")
}

func TestCompose(t *testing.T) {
	dcgm := &view.View{Sources: []*view.Source{board("dcgm", "a", "b"), board("dcgm", "switch0")}}
	nvml := &view.View{Sources: []*view.Source{board("nvml", "a"), board("nvml", "b"), board("nvml", "c")}}
	none := &view.View{}
	f := func(s speaker, first, second *view.View, want string) {
		t.Helper()
		if got := names(compose(s, first, second)); got != want {
			t.Errorf("speaker %d: got %q, want %q", s, got, want)
		}
	}
	f(primary, dcgm, nvml, "dcgm:a+b dcgm:switch0 nvml:c")
	f(secondary, dcgm, nvml, "dcgm:switch0 nvml:a nvml:b nvml:c")
	f(nobody, dcgm, none, "dcgm:a+b dcgm:switch0")
	f(nobody, none, nvml, "nvml:a nvml:b nvml:c")
	f(primary, none, nvml, "nvml:a nvml:b nvml:c")
	f(secondary, dcgm, none, "dcgm:a+b dcgm:switch0")
}

func TestNewest(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := board("dcgm", "a", "switch0")
	s.Ring.Append(now.UnixNano(), []int64{now.Add(-3 * time.Second).UnixNano(), now.UnixNano()}, nil)
	var g gaze
	if got := g.newest(&view.View{Sources: []*view.Source{s}}, now, 5*time.Second); !got.Equal(now.Add(-3 * time.Second)) {
		t.Errorf("the newest value of a GPU is of %v, want 3 s before %v: a switch is none", got, now)
	}
	s.Ring.Append(now.UnixNano(), []int64{now.Add(time.Hour).UnixNano(), 0}, nil)
	if got := g.newest(&view.View{Sources: []*view.Source{s, {Devices: s.Devices}, board("dcgm", "b")}}, now, 5*time.Second); !got.IsZero() {
		t.Errorf("a stamp an hour ahead, a source without ring, and one without rows: got %v, want none", got)
	}
}

// rig is two collectors that a script moves, under a false clock.
type rig struct {
	t          *testing.T
	a          *Arbiter
	registry   *prometheus.Registry
	dcgm, nvml []*view.Source

	mu     sync.Mutex
	shown  []string // every View, in order
	asleep bool
	calls  []bool // of Standby
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, registry: prometheus.NewRegistry()}
	r.dcgm = []*view.Source{board("dcgm", "a", "b"), board("dcgm", "switch0")}
	r.nvml = []*view.Source{board("nvml", "a"), board("nvml", "b")}
	r.a = New(Options{
		Primary: "dcgm", Secondary: "nvml", Registerer: r.registry,
		Publish: func(v *view.View) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.shown = append(r.shown, names(v.Sources))
		},
		Standby: func(_ context.Context, sleep bool) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.asleep = sleep
			r.calls = append(r.calls, sleep)
			return nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

const (
	bothMove = iota
	onlyDCGM
	onlyNVML
)

// pass lets d go by, a row a second from those that move; NVML only while awake.
func (r *rig) pass(d time.Duration, who int) {
	for range int(d / time.Second) {
		time.Sleep(time.Second)
		synctest.Wait()
		if who != onlyNVML {
			sample(time.Now(), r.dcgm...)
		}
		if who != onlyDCGM && !r.sleeping() {
			sample(time.Now(), r.nvml...)
		}
		synctest.Wait()
	}
	time.Sleep(500 * time.Millisecond)
	synctest.Wait()
}

func (r *rig) sleeping() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asleep
}

func (r *rig) want(speaker string, asleep bool, views ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := r.a.Speaker(); got != speaker {
		r.t.Errorf("%q speaks, want %q", got, speaker)
	}
	if r.asleep != asleep {
		r.t.Errorf("the secondary is asleep: %v, want %v", r.asleep, asleep)
	}
	if !slices.Equal(r.shown, views) {
		r.t.Errorf("Views since the last look:\ngot  %q\nwant %q", r.shown, views)
	}
	r.shown = nil
}

const (
	viewDCGM = "dcgm:a+b dcgm:switch0"
	viewNVML = "dcgm:switch0 nvml:a nvml:b"
	// viewBridge is NVML's last rows until DCGM's are newer.
	viewBridge = "nvml:a nvml:b dcgm:switch0"
)

func TestTakeoverAndReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.a.Secondary(&view.View{Sources: r.nvml}) // NVML is faster
		r.pass(2*time.Second, onlyNVML)
		r.want("nvml", false, "nvml:a nvml:b")
		r.a.Primary(&view.View{Sources: r.dcgm})
		r.want("nvml", false, viewNVML) // a primary without values takes nothing
		r.pass(2*time.Second, bothMove)
		r.want("dcgm", false, viewBridge, viewDCGM) // the first time at once
		r.pass(11*time.Second, bothMove)
		r.want("dcgm", true)

		// The engine stalls: nothing moves, NVML is woken and takes over.
		r.pass(7*time.Second, onlyNVML)
		r.want("nvml", false, viewNVML)

		// It answers again, with a gap, and then for good.
		r.pass(5*time.Second, bothMove)
		r.pass(8*time.Second, onlyNVML)
		r.pass(8*time.Second, bothMove)
		r.want("nvml", false)
		r.pass(4*time.Second, bothMove)
		r.want("dcgm", false, viewBridge, viewDCGM)

		// It goes away altogether, and NVML, still awake, has the GPUs with its next row.
		r.a.Primary(&view.View{})
		synctest.Wait()
		r.want("nvml", false, "dcgm:a+b")
		r.pass(time.Second, onlyNVML)
		r.want("nvml", false, "nvml:a nvml:b")
		if got := testutil.ToFloat64(r.a.metrics.takeovers.WithLabelValues("nvml")); got != 2 {
			t.Errorf("%v takeovers by nvml, want 2", got)
		}
		if got := testutil.ToFloat64(r.a.metrics.active.WithLabelValues("dcgm")); got != 0 {
			t.Errorf("warpgauge_gpu_speaker of dcgm is %v", got)
		}
	})
}

// A primary that withdraws its GPUs while the secondary sleeps leaves no gap.
func TestWithdrawnGPUsStayUntilTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.a.Primary(&view.View{Sources: r.dcgm})
		r.pass(15*time.Second, onlyDCGM)
		r.want("dcgm", true, viewDCGM)
		r.a.Primary(&view.View{Sources: r.dcgm[1:]})
		synctest.Wait()
		r.want("dcgm", false) // the same sources as before: nothing to publish
		r.pass(time.Second, onlyNVML)
		r.a.Secondary(&view.View{Sources: r.nvml})
		r.want("nvml", false, viewNVML)
	})
}

// Nobody takes over: what was withdrawn goes when patience ends, or at once when
// a release is asked for.
func TestWithdrawnGPUsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.a.Primary(&view.View{Sources: r.dcgm})
		r.pass(3*time.Second, onlyDCGM)
		r.want("dcgm", false, viewDCGM)
		r.a.Primary(&view.View{})
		r.want("dcgm", false, "dcgm:a+b")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		r.want("dcgm", false, "")
		r.a.Primary(&view.View{Sources: r.dcgm})
		r.pass(time.Second, onlyDCGM)
		r.a.Primary(&view.View{})
		r.want("dcgm", false, viewDCGM, "dcgm:a+b")
		r.a.Release()
		r.want("dcgm", false, "")
	})
}

// A GPU that only the secondary has is shown, and keeps it awake.
func TestGPUsOfOneSideOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.nvml = append(r.nvml, board("nvml", "geforce"))
		r.a.Primary(&view.View{Sources: r.dcgm})
		r.a.Secondary(&view.View{Sources: r.nvml})
		r.pass(30*time.Second, bothMove)
		r.want("dcgm", false, viewDCGM, viewDCGM+" nvml:geforce")
	})
}

// Where neither has fresh values the last speaker keeps its place: a change
// would show nothing better.
func TestNoChangeWithoutNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.a.Primary(&view.View{Sources: r.dcgm})
		r.pass(15*time.Second, onlyDCGM)
		r.want("dcgm", true, viewDCGM)
		r.a.Secondary(&view.View{Sources: r.nvml})
		time.Sleep(time.Minute)
		synctest.Wait()
		r.want("dcgm", false)
		if !slices.Equal(r.calls, []bool{true, false}) {
			t.Errorf("Standby was called with %v, want asleep once and awake once", r.calls)
		}
	})
}

// TestRaces is for the race detector: everything at once.
func TestRaces(t *testing.T) {
	var shown sync.Map
	a := New(Options{Primary: "dcgm", Secondary: "nvml", Period: time.Millisecond,
		Publish: func(v *view.View) { shown.Store(names(v.Sources), true) },
		Standby: func(context.Context, bool) error { return fmt.Errorf("no") }})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.Run(ctx) })
	for _, take := range []func(*view.View){a.Primary, a.Secondary} {
		wg.Go(func() {
			s := board("x", "a")
			for ctx.Err() == nil {
				sample(time.Now(), s)
				take(&view.View{Sources: []*view.Source{s}})
				take(&view.View{})
				_ = a.Speaker()
			}
		})
	}
	wg.Wait()
	shown.Range(func(k, _ any) bool {
		if strings.Count(k.(string), ":a") > 1 {
			t.Errorf("a page with a GPU twice: %q", k)
		}
		return true
	})
}
