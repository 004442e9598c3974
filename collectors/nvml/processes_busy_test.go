package nvml

import (
	"math"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

// busyRig is a driver and its clock, in seconds.
type busyRig struct {
	t   *testing.T
	b   busyMeans
	t0  time.Time
	set time.Duration // offset of the system clock
}

func newBusyRig(t *testing.T) *busyRig {
	return &busyRig{t: t, t0: time.Unix(1_700_000_000, 0)}
}

func (r *busyRig) micros(at float64) int64 { return r.t0.UnixMicro() + int64(math.Round(at*1e6)) }

// ask calls begin at a time and returns the start of the wanted samples, in seconds; −1 means all samples.
func (r *busyRig) ask(at float64) float64 {
	up := time.Duration(at * float64(time.Second))
	since := r.b.begin(r.t0.Add(up+r.set), up)
	if since == 0 {
		return -1
	}
	return math.Round((float64(since)-float64(r.t0.UnixMicro()))/1e3) / 1e3
}

func (r *busyRig) take(samples ...busySample) { r.b.addSamples(samples) }

func (r *busyRig) sample(pid int, percent, at float64) busySample {
	return busySample{pid, percent, r.micros(at)}
}

func (r *busyRig) want(what string, pid int, want float64) {
	r.t.Helper()
	got := r.b.mean(pid)
	testkit.ErrorIf(r.t, math.IsNaN(want) != math.IsNaN(got) || math.Abs(got-want) > 1e-6, "%s: process %d was busy for %v %%, want %v", what, pid, got, want)
}

func (r *busyRig) asked(what string, at, want float64) {
	r.t.Helper()
	got := r.ask(at)
	testkit.ErrorIf(r.t, got != want, "%s: samples since %v are wanted, want %v", what, got, want)
}

// TestBusyOneSampleEach covers the known behaviour of drivers.
func TestBusyOneSampleEach(t *testing.T) {
	r := newBusyRig(t)
	r.asked("first", 0, -1)
	r.take(r.sample(1, 40, -3), r.sample(2, 7, -0.2))
	r.want("the first answer is of a time that is not known", 1, math.NaN())
	r.want("and lists none", 3, math.NaN())
	r.asked("since the newest sample", 1, -0.2)
	r.take(r.sample(2, 30, 0.7), r.sample(1, 50, 0.1))
	r.want("as the driver says", 1, 50)
	r.want("as the driver says", 2, 30)
	r.want("who is not named was idle", 3, 0)
	r.asked("third", 2, 0.7)
	r.b.idle()
	r.want("no sample at all", 1, 0)
	r.asked("what was idle is over", 3, 1.7)
	r.take(r.sample(1, 90, 2.9))
	r.want("busy again", 1, 90)
}

func TestBusyGarbage(t *testing.T) {
	r := newBusyRig(t)
	r.ask(0)
	r.take(r.sample(1, 1, 0))
	r.ask(1)
	r.take(r.sample(1, 808_000_000, 0.9), r.sample(2, 10, 90_000), busySample{3, 10, -1}, r.sample(4, 25, 0.9), r.sample(5, 25, -100), busySample{0, 4e9, 0})
	r.want("more than all", 1, math.NaN())
	r.want("in the future", 2, math.NaN())
	r.want("before all time", 3, math.NaN())
	r.want("good", 4, 25)
	r.want("seen before", 5, 0)
	r.asked("garbage moves nothing", 2, 0.9)
	r.take(r.sample(1, 4e9, 1.9), busySample{}, busySample{})
	r.want("nothing but garbage", 1, math.NaN())
	r.want("none is idle by that", 6, math.NaN())
	r.asked("nor was it an answer", 3, 0.9)
	r.take(r.sample(4, 30, 2.9))
	r.want("since the last answer", 4, 30)
	r.want("since the last answer", 6, 0)
}

// TestBusyClockIsSet covers a changed system clock, which stamps the samples. After the clock was set back, the
// driver has nothing "newer" for hours, which does not mean idle.
func TestBusyClockIsSet(t *testing.T) {
	for _, set := range []time.Duration{-time.Hour, time.Hour} {
		r := newBusyRig(t)
		r.ask(0)
		r.take(r.sample(1, 50, 0))
		r.asked("the clock advances", 1, 0)
		r.take(r.sample(1, 50, 1))
		r.want("before", 1, 50)
		r.set = set
		r.asked("of all", 2, -1)
		r.b.idle()
		r.want("right after that", 1, math.NaN())
		r.asked("of all", 3, -1)
		r.take(r.sample(1, 50, 3+set.Seconds()))
		r.want("of a time that is not known", 1, math.NaN())
		r.asked("by the new clock", 4, 3+set.Seconds())
		r.take(r.sample(1, 60, 4+set.Seconds()))
		r.want("after", 1, 60)
	}
}

func FuzzBusyMeans(f *testing.F) {
	f.Add([]byte{1, 50, 10, 2, 60, 11, 1, 3, 12})
	f.Fuzz(func(t *testing.T, data []byte) {
		var b busyMeans
		start := time.Unix(1_700_000_000, 0)
		for tick := 0; len(data) > 0; tick++ {
			up := time.Duration(tick) * time.Second
			b.begin(start.Add(up), up)
			var samples []busySample
			for n := data[0] % 8; n > 0 && len(data) >= 3; n-- {
				samples = append(samples, busySample{int(data[0] % 4), float64(data[1]), start.Add(up).UnixMicro() + (int64(data[2])-128)*20_000})
				data = data[3:]
			}
			if len(samples) == 0 {
				data = data[1:]
				b.idle()
			} else {
				b.addSamples(samples)
			}
			for pid := range 5 {
				v := b.mean(pid)
				testkit.FatalIf(t, v < 0 || v > 100, "tick %d: process %d was busy for %v %%: %+v", tick, pid, v, b)
			}
		}
	})
}
