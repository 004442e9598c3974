package supervisor

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// part is a source with one device for each id; "switch…" is not a GPU. Each device has a column of each field.
func part(name string, fields int, ids ...string) *view.Source {
	s := &view.Source{Collector: name, Interval: time.Second, Ring: ring.Make(16, len(ids), fields*len(ids))}
	for i, id := range ids {
		level := field.GPU
		if strings.HasPrefix(id, "switch") {
			level = field.Switch
		}
		s.Devices = append(s.Devices, collector.Device{ID: id, Level: level})
		for f := range fields {
			s.Columns = append(s.Columns, collector.Column{Device: i, Field: field.ID(60000 + f)})
		}
	}
	return s
}

// appendRow appends a row in which the devices with these stamps (0: never) have the value in all columns.
func appendRow(s *view.Source, value float64, stamps ...time.Time) {
	ns := make([]int64, len(s.Devices))
	for i := range ns {
		if at := stamps[min(i, len(stamps)-1)]; !at.IsZero() {
			ns[i] = at.UnixNano()
		}
	}
	s.Ring.Append(time.Now().UnixNano(), ns, slices.Repeat([]float64{value}, len(s.Columns)))
}

// advance appends a row of now to each of the sources.
func advance(sources ...*view.Source) {
	for _, s := range sources {
		appendRow(s, 1, time.Now())
	}
}

func names(sources []*view.Source) string {
	var out []string
	for _, s := range sources {
		var ids []string
		for _, d := range s.Devices {
			ids = append(ids, d.ID)
		}
		name := s.Collector
		if s.Interval > 0 && s.Ring.Rows() == 2 {
			name = "kept"
		}
		out = append(out, name+":"+strings.Join(ids, "+"))
	}
	return strings.Join(out, " ")
}

// rig has two collectors that a script moves, under the clock of a bubble. It checks that no device is on a page twice.
type rig struct {
	*Failover
	t          *testing.T
	dcgm, nvml []*view.Source
	primary    Page
	secondary  Page

	mu      sync.Mutex
	shown   []string // every page, in order
	page    []*view.Source
	resting bool
	calls   []bool // of Standby
	events  []string
}

func (r *rig) Publish(sources []*view.Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.page = sources
	r.shown = append(r.shown, names(sources))
	seen := map[string]string{}
	for _, s := range sources {
		for _, d := range s.Devices {
			if by := seen[d.ID]; by != "" && (by != "nvml" || s.Collector != "dcgm") { // of a GPU that DCGM lists and does not read
				r.t.Errorf("%s is on the page twice: %s", d.ID, names(sources))
			}
			seen[d.ID] = s.Collector
		}
	}
}

func (r *rig) Standby(rest bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resting = rest
	r.calls = append(r.calls, rest)
}

func (r *rig) TakenOver(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, text)
}

// serves returns the name of the collector that serves the GPUs; "" while none has values.
func (r *rig) serves() string {
	r.Failover.mu.Lock()
	defer r.Failover.mu.Unlock()
	return r.name(r.serving)
}

func withRig(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, dcgm: []*view.Source{part("dcgm", 1, "a", "b"), part("dcgm", 1, "switch0")}, nvml: []*view.Source{part("nvml", 1, "a"), part("nvml", 1, "b")}}
		r.Failover = NewFailover(FailoverOptions{Node: r, Primary: "dcgm", Secondary: "nvml", Patience: 5 * time.Second, StaleAfter: 30 * time.Second, Logger: zap.NewNop()})
		r.primary, r.secondary = r.Ends()
		testkit.Start(t, r.Run)
		f(t, r)
	})
}

// open publishes the sources of both collectors.
func (r *rig) open() {
	r.primary.Publish(r.dcgm)
	r.secondary.Publish(r.nvml)
}

// pass advances the clock by the given seconds, with a row a second from the advancing sources.
func (r *rig) pass(seconds int, advancing ...*view.Source) {
	r.t.Helper()
	for range seconds {
		pass(time.Second)
		advance(advancing...)
	}
	pass(500 * time.Millisecond)
}

func (r *rig) both() []*view.Source { return append(slices.Clone(r.dcgm), r.nvml...) }

// want compares the serving collector and the pages since the last call.
func (r *rig) want(serving string, resting bool, pages ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.serves()
	testkit.ErrorIf(r.t, got != serving || r.resting != resting, "%q serves, the secondary rests: %v, want %q and %v", got, r.resting, serving, resting)
	pause, _ := r.pause()
	testkit.ErrorIf(r.t, resting && pause != 4*failoverPeriod, "the next decision is in %v although nothing changes", pause)
	testkit.Equal(r.t, "pages", pages, r.shown)
	r.shown = nil
}

const (
	pageDCGM = "dcgm:a+b dcgm:switch0"
	pageNVML = "nvml:a nvml:b dcgm:switch0"
)

func TestTakeoverAndReturn(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.secondary.Publish(r.nvml) // NVML is faster
		r.pass(2, r.nvml...)
		r.want("nvml", false, "nvml:a nvml:b")
		r.primary.Publish(r.dcgm)
		r.want("nvml", false, pageNVML) // without values it serves nothing
		r.pass(1, r.both()...)
		r.want("dcgm", false, pageDCGM) // the first time at once
		testkit.Equal(t, "takeovers at the start", 0, len(r.events)+int(r.changesOf("dcgm")))
		r.pass(12, r.both()...)
		r.want("dcgm", true)
		// The engine stalls: NVML is started after 3 s and takes over after 5 s.
		begin := time.Now()
		pass(2900 * time.Millisecond) // half a second after the last row
		r.want("dcgm", false)
		r.pass(2, r.nvml...)
		testkit.AtMost(t, "time until NVML took over", 8*time.Second, time.Since(begin))
		r.want("nvml", false, pageNVML)
		// It advances again, stalls again, and then advances for good.
		r.pass(8, r.both()...)
		r.pass(8, r.nvml...)
		r.pass(8, r.both()...)
		r.want("nvml", false)
		r.pass(6, r.both()...)
		r.want("dcgm", false, pageDCGM)
		// It ends: its rows stay until NVML, which still runs, has the GPUs.
		r.primary.Publish(nil)
		r.want("nvml", false, "nvml:a nvml:b")
		r.mu.Lock()
		testkit.Equal(t, "calls of Standby, one each", []bool{true, false}, r.calls)
		r.mu.Unlock()
	})
}

// Values that move only now and then do not count as advancing: the share of time counts.
func TestValuesThatMoveNowAndThen(t *testing.T) {
	f := func(every int, want string) {
		t.Helper()
		t.Run(fmt.Sprintf("every %d s", every), func(t *testing.T) {
			withRig(t, func(t *testing.T, r *rig) {
				r.open()
				r.pass(15, r.both()...)
				served := map[string]int{}
				for i := range 120 {
					pass(time.Second)
					advance(r.nvml...)
					if i%every == 0 {
						advance(r.dcgm...)
					}
					served[r.serves()]++
				}
				testkit.ErrorIf(t, served[want] < 100, "served %v, want %s nearly always", served, want)
				testkit.AtMost(t, "changes", 1, r.changesOf("nvml")+r.changesOf("dcgm"))
			})
		})
	}
	f(1, "dcgm")
	f(3, "dcgm")
	f(6, "nvml")
	f(15, "nvml")
}

// A slow list makes new values look current for longer than it must advance: the primary must make up for the time without
// values.
func TestSlowValuesThatMoveNowAndThen(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		for _, s := range r.both() {
			s.Interval = 10 * time.Second
		}
		r.open()
		for i := range 60 {
			advance(r.nvml...)
			if i%8 < 3 {
				advance(r.dcgm...)
			}
			pass(10 * time.Second)
		}
		testkit.Has(t, "event", strings.Join(r.events, "\n"), "collector nvml serves the GPUs now: dcgm has had no new values for ")
		nvml, dcgm := r.changesOf("nvml"), r.changesOf("dcgm")
		testkit.ErrorIf(t, r.serves() != "nvml" || nvml != 1 || dcgm != 0, "%s serves, NVML took over %v times, DCGM %v times, want nvml, 1 and 0", r.serves(), nvml, dcgm)
	})
}

// changesOf is warpgauge_gpu_takeovers_total.
func (r *rig) changesOf(name string) float64 { return metric(r.changes.WithLabelValues(name)) }

// A secondary that opens after the primary has come back does not take over.
func TestLateSecondary(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.primary.Publish(r.dcgm)
		r.pass(15, r.dcgm...)
		pass(7 * time.Second)
		r.pass(2, r.dcgm...)
		r.secondary.Publish(r.nvml)
		r.pass(20, r.both()...)
		r.want("dcgm", true, pageDCGM)
	})
}

// One stalled GPU does not count against its collector.
func TestOneGPUThatStalls(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.dcgm = []*view.Source{part("dcgm", 1, "a", "b", "c")}
		r.nvml = []*view.Source{part("nvml", 1, "a"), part("nvml", 1, "b"), part("nvml", 1, "c")}
		r.open()
		last := time.Now()
		for range 60 {
			pass(time.Second)
			appendRow(r.dcgm[0], 1, time.Now(), last, time.Now())
		}
		r.want("dcgm", true, "dcgm:a+b+c")
	})
}

// A GPU hangs in both libraries: NVML serves the others. Its last values stay until they are stale.
func TestHealthySourcesFirst(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.dcgm = []*view.Source{part("dcgm", 1, "a", "b", "c")}
		r.nvml = []*view.Source{part("nvml", 1, "a"), part("nvml", 1, "b"), part("nvml", 1, "c")}
		r.primary.Publish(r.dcgm)
		r.pass(15, r.dcgm...)
		begin := time.Now()
		pass(3 * time.Second)
		r.secondary.Publish(r.nvml)
		for r.serves() == "dcgm" && time.Since(begin) < time.Minute {
			appendRow(r.nvml[0], 1, time.Now()) // the others are slower
			pass(250 * time.Millisecond)
		}
		r.want("nvml", false, "dcgm:a+b+c", "nvml:a kept:b kept:c")
		pass(time.Second)
		appendRow(r.nvml[1], 1, time.Now())
		pass(time.Second)
		r.want("nvml", false, "nvml:a nvml:b kept:c")
		testkit.AtMost(t, "time until the healthy GPUs were taken over", 9*time.Second, time.Since(begin))
		r.pass(27, r.nvml[:2]...)
		r.want("nvml", false, "nvml:a nvml:b nvml:c")
	})
}

// No change turns a cell with a value blank.
func TestNoCellGoesBlankAtAChange(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.dcgm = []*view.Source{part("dcgm", 2, "a")}
		r.nvml = []*view.Source{part("nvml", 2, "a")}
		half := func(s *view.Source) { // the second field is blank
			s.Ring.Append(time.Now().UnixNano(), []int64{time.Now().UnixNano()}, []float64{1, math.NaN()})
		}
		r.primary.Publish(r.dcgm)
		r.pass(15, r.dcgm...)
		pass(5 * time.Second)
		r.secondary.Publish(r.nvml)
		half(r.nvml[0])
		pass(time.Second)
		r.want("nvml", false, "dcgm:a", "kept:a") // it serves as soon as it is complete
		appendRow(r.nvml[0], 1, time.Now())
		pass(time.Second)
		r.want("nvml", false, "nvml:a")
		// DCGM advances, but has one field only at first.
		for range 14 {
			pass(time.Second)
			half(r.dcgm[0])
			appendRow(r.nvml[0], 1, time.Now())
		}
		r.want("nvml", false)
		r.pass(1, r.both()...)
		r.want("dcgm", false, "dcgm:a")
	})
	withRig(t, func(t *testing.T, r *rig) { // a field that DCGM has lost for good delays its return only for a while
		r.dcgm, r.nvml = []*view.Source{part("dcgm", 2, "a")}, []*view.Source{part("nvml", 2, "a")}
		r.secondary.Publish(r.nvml)
		r.pass(2, r.nvml...)
		r.primary.Publish(r.dcgm)
		for range 45 {
			pass(time.Second)
			r.dcgm[0].Ring.Append(time.Now().UnixNano(), []int64{time.Now().UnixNano()}, []float64{1, math.NaN()})
			appendRow(r.nvml[0], 1, time.Now())
		}
		r.want("dcgm", true, "nvml:a", "dcgm:a")
	})
}

// If no collector takes them over, they go when no page shows them any more, or at once with a release.
func TestWithdrawnGPUsGo(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.primary.Publish(r.dcgm)
		r.pass(3, r.dcgm...)
		r.want("dcgm", false, pageDCGM)
		r.primary.Publish(nil)
		r.primary.Publish(nil) // the next session has none, either
		r.want("dcgm", false, "kept:a kept:b")
		pass(29 * time.Second)
		r.want("dcgm", false)
		pass(2 * time.Second)
		r.want("dcgm", false, "")
		r.primary.Publish(r.dcgm)
		r.pass(1, r.dcgm...)
		r.primary.Publish(nil)
		r.want("dcgm", false, pageDCGM, "kept:a kept:b")
		r.Withdraw()
		r.want("", false, "")
		r.secondary.Publish(r.nvml) // an operator has released both, and now resumes: a start, no takeover
		r.pass(1, r.nvml...)
		r.primary.Publish(r.dcgm)
		r.pass(3, r.both()...)
		r.want("dcgm", false, "nvml:a nvml:b", pageDCGM)
		testkit.Equal(t, "takeovers", 0, len(r.events))
	})
	withRig(t, func(t *testing.T, r *rig) { // an engine that drops one
		r.primary.Publish(r.dcgm)
		r.pass(15, r.dcgm...)
		r.want("dcgm", true, pageDCGM)
		a := part("dcgm", 1, "a")
		r.primary.Publish([]*view.Source{a, r.dcgm[1], eventsOf(r.dcgm, "b")})
		r.pass(1, a)
		r.want("dcgm", false, "dcgm:a dcgm:switch0 kept:b")
		r.secondary.Publish(r.nvml)
		r.pass(2, a)
		r.want("dcgm", false)
		r.pass(1, a, r.nvml[0], r.nvml[1])
		r.want("dcgm", false, "dcgm:a dcgm:switch0 nvml:b")
		r.secondary.Publish(r.nvml[:1]) // no collector has it any more
		r.pass(30*60, a, r.dcgm[1], r.nvml[0])
		r.want("dcgm", false, "dcgm:a dcgm:switch0 kept:b", "dcgm:a dcgm:switch0 dcgm:b")
		r.pass(30*60, a, r.dcgm[1], r.nvml[0])
		r.want("dcgm", true)
	})
}

// With ticks so long that the secondary has few rows in time, one blank cell takes no GPU off the page.
func TestBlankCellAtLongTicks(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.o.Patience = 12500 * time.Millisecond
		r.dcgm, r.nvml = []*view.Source{part("dcgm", 2, "a", "b")}, []*view.Source{part("nvml", 2, "a"), part("nvml", 2, "b")}
		for _, s := range r.both() {
			s.Interval = 5 * time.Second
		}
		r.primary.Publish(r.dcgm)
		for range 10 {
			advance(r.dcgm...)
			pass(5 * time.Second)
		}
		r.secondary.Publish(r.nvml)
		for range 6 {
			advance(r.nvml[0])
			r.nvml[1].Ring.Append(time.Now().UnixNano(), []int64{time.Now().UnixNano()}, []float64{1, math.NaN()})
			pass(5 * time.Second)
		}
		r.want("nvml", false, "dcgm:a+b", "nvml:a kept:b", "nvml:a nvml:b")
	})
}

// The others hang: any GPU that answers is served. A second session of the secondary in which one hangs leaves its last row.
func TestMostGPUsHang(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.dcgm = []*view.Source{part("dcgm", 1, "a", "b", "c")}
		r.nvml = []*view.Source{part("nvml", 1, "a"), part("nvml", 0, "b"), part("nvml", 0, "c")}
		r.primary.Publish(r.dcgm)
		r.pass(15, r.dcgm...)
		pass(3 * time.Second)
		r.secondary.Publish(r.nvml)
		appendRow(r.nvml[1], 1, time.Time{})
		appendRow(r.nvml[2], 1, time.Time{})
		r.pass(4, r.nvml[0])
		r.want("nvml", false, "dcgm:a+b+c", "nvml:a kept:b kept:c")
		a := part("nvml", 0, "a")
		r.secondary.Publish([]*view.Source{a, r.nvml[1], r.nvml[2]})
		pass(2 * time.Second)
		r.want("nvml", false, "kept:b kept:c kept:a")
	})
}

// A primary that has old values of a GPU serves the others again when it has had time for new ones.
func TestReturnWithAnOldValue(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.dcgm = []*view.Source{part("dcgm", 1, "a", "b", "c")}
		r.nvml = []*view.Source{part("nvml", 1, "a"), part("nvml", 1, "b"), part("nvml", 1, "c")}
		r.open()
		r.pass(15, r.dcgm...)
		r.pass(10, r.nvml...)
		old := time.Now()
		again := func(seconds int) {
			for range seconds {
				pass(time.Second)
				advance(r.nvml...)
				appendRow(r.dcgm[0], 1, time.Now(), time.Now(), old)
			}
		}
		again(25)
		r.want("nvml", false, "dcgm:a+b+c", "nvml:a nvml:b nvml:c")
		again(60) // the engine does not read c any more
		r.want("dcgm", false, "nvml:c dcgm:a+b+c")
		r.pass(20, r.both()...)
		r.want("dcgm", true, "dcgm:a+b+c")
	})
}

// A GPU that only the secondary has is shown, and keeps the secondary active.
func TestGPUsOfTheSecondaryOnly(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.nvml = append(r.nvml, part("nvml", 1, "geforce"))
		r.open()
		r.pass(30, r.both()...)
		r.want("dcgm", false, pageDCGM, pageDCGM+" nvml:geforce")
		// The engine starts again: it must advance as long as after a stall.
		r.primary.Publish(nil)
		r.primary.Publish(r.dcgm)
		r.pass(8, r.both()...)
		r.want("nvml", false, "nvml:a nvml:b nvml:geforce", "nvml:a nvml:b nvml:geforce dcgm:switch0")
	})
}

// A list with only slow fields does not look stalled.
func TestSlowListsAreNoStall(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		for _, s := range r.both() {
			s.Interval = 30 * time.Second
		}
		r.open()
		for range 20 {
			advance(r.both()...)
			pass(30*time.Second + 100*time.Millisecond)
		}
		r.want("dcgm", true, pageDCGM)
		pass(70 * time.Second)
		testkit.Equal(t, "the secondary rests although the primary has missed two readings", false, r.resting)
	})
}

// Sources of absent GPUs do not count for the others.
func TestAbsentGPUsAreNoStall(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"gone", "gone too", "and this one"} {
			for _, all := range []*[]*view.Source{&r.dcgm, &r.nvml} {
				s := part((*all)[0].Collector, 1, id)
				s.Interval = 0
				appendRow(s, math.NaN(), time.Time{})
				*all = append(*all, s)
			}
		}
		r.open()
		r.pass(30, append(r.dcgm[:2:2], r.nvml[:2]...)...)
		page := pageDCGM + " dcgm:gone dcgm:gone too dcgm:and this one" //nolint:dupword // names of devices
		r.want("dcgm", true, page)
		r.pass(10, r.nvml[:2]...)
		r.want("nvml", false, pageNVML+" nvml:gone nvml:gone too nvml:and this one") //nolint:dupword // names of devices
		// An engine that no longer lists b serves a again.
		a, b := part("dcgm", 1, "a"), part("dcgm", 1, "b")
		b.Interval = 0
		appendRow(b, math.NaN(), time.Time{})
		r.primary.Publish([]*view.Source{a, b})
		r.pass(30, append(r.nvml[:2:2], a)...)
		gone := "nvml:b nvml:gone nvml:gone too nvml:and this one" //nolint:dupword // names of devices
		r.want("dcgm", false, "nvml:a "+gone, "dcgm:a "+gone)
	})
}

// Setting the clock causes no failover, nor do old values at start.
func TestClockThatIsSetBack(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		r.primary.Publish(r.dcgm)
		for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
			for _, s := range r.dcgm {
				appendRow(s, 1, time.Now().Add(ahead))
			}
			pass(6 * time.Second)
		}
		r.want("", false, pageDCGM)
		r.secondary.Publish(r.nvml)
		r.pass(1, r.both()...)
		r.want("dcgm", false)
	})
	withRig(t, func(t *testing.T, r *rig) { // set ahead: the engine's next values still have the old time
		r.nvml = append(r.nvml, part("nvml", 1, "geforce"))
		r.open()
		r.pass(30, r.both()...)
		pass(time.Second)
		appendRow(r.dcgm[0], 1, time.Now().Add(-10*time.Second))
		advance(r.nvml...)
		r.pass(20, r.both()...)
		testkit.Equal(t, "takeovers", 0, len(r.events))
	})
}

// TestFailoverRaces runs everything at once under the race detector.
func TestFailoverRaces(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i, end := range []Page{r.primary, r.secondary} {
			wg.Go(func() {
				s := part(fmt.Sprint(i), 1, "a")
				for n := 0; ctx.Err() == nil; n++ {
					appendRow(s, 1, time.Now())
					end.Publish([]*view.Source{s})
					time.Sleep(time.Duration(100+i) * time.Millisecond)
					if n%7 == 0 {
						end.Publish(nil)
						r.Withdraw()
					}
					_ = r.serves()
				}
			})
		}
		wg.Wait()
	})
}
