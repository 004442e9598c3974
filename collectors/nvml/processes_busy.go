package nvml

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// busySample is what the driver says of one process for a short time.
type busySample struct {
	pid     int
	percent float64 // of that time
	stamp   int64   // when it ended, µs by the driver's clock
}

// busyMeans makes of a driver's samples how busy each process has kept the GPU
// since the call before. For one goroutine.
//
// A driver leaves out a process that had nothing to do, and says one thing of each
// other: its mean since the time that was asked for, with the time of its last
// activity (nvml.h; https://github.com/NVIDIA/go-nvml/issues/51). If there are
// several samples of one process, each stands for the time since the one before
// it, but no longer than samples are apart. Some entries are garbage: drivers have
// returned buffers that they did not write
// (https://github.com/Syllo/nvtop/issues/110).
type busyMeans struct {
	since    int64         // samples newer than that have not been seen; 0: there was none yet
	ready    bool          // there was an answer, so that the next one is of the time since
	answered time.Duration // when the newest one came; monotonic
	called   time.Duration
	wall     time.Time // at called

	// Of the answer in hand.
	known   bool
	from    int64        // since, when it was asked for
	window  float64      // from there to the newest sample, µs
	period  float64      // µs between samples of one process, +Inf if there is one of each
	limit   int64        // no stamp is newer
	samples []busySample // by process and time
}

const (
	clockSlack = time.Second     // a stamp may be so much newer than our time: two clocks, and a call between
	clockStep  = time.Second / 2 // the system clock was set if it advanced so much more or less than the monotonic one
	// Samples of one process that are closer are no sampling: drivers take one in a
	// sixth of a second to a second, says nvml.h of nvmlUtilization_t.
	leastPeriod = 100_000 // µs
)

// begin returns since when samples are wanted. up is now by the monotonic clock. The
// driver stamps samples by the system clock: when that was set, older stamps mean
// nothing any more.
func (b *busyMeans) begin(now time.Time, up time.Duration) (since uint64) {
	now = now.Round(0) // without a monotonic reading
	if !b.wall.IsZero() && (now.Sub(b.wall)-(up-b.called)).Abs() > clockStep {
		b.since, b.ready = 0, false
	}
	b.wall, b.called = now, up
	b.known, b.samples = false, b.samples[:0]
	b.limit = now.Add(clockSlack).UnixMicro()
	return uint64(b.since)
}

// idle takes the answer that there is no sample.
func (b *busyMeans) idle() {
	if b.ready && b.since > 0 {
		// The answer before covered what was before it; and nothing came since. The
		// next samples are not of that time.
		b.since += (b.called - b.answered).Microseconds()
	}
	b.known = b.ready
	b.ready, b.answered = true, b.called
}

// take takes samples, which it sorts and keeps until the next begin.
func (b *busyMeans) take(samples []busySample) {
	slices.SortFunc(samples, func(x, y busySample) int {
		return cmp.Or(cmp.Compare(x.pid, y.pid), cmp.Compare(x.stamp, y.stamp))
	})
	b.samples, b.from, b.period = samples, b.since, math.Inf(1)
	good := false
	for i, s := range samples {
		if !b.plausible(s) {
			continue
		}
		good = true
		b.since = max(b.since, s.stamp)
		if i > 0 && samples[i-1].pid == s.pid {
			if apart := s.stamp - samples[i-1].stamp; apart >= leastPeriod {
				b.period = min(b.period, float64(apart))
			}
		}
	}
	if !good { // a buffer that was not written says nothing, of the idle neither
		return
	}
	b.window = float64(b.since - b.from)
	b.known = b.ready
	b.ready, b.answered = true, b.called
}

func (b *busyMeans) plausible(s busySample) bool {
	return s.percent <= 100 && s.stamp > 0 && s.stamp <= b.limit
}

// mean is how busy a process kept the GPU, in percent of the time since the answer
// before; NaN if that is not known. The first activity that there ever was is of a
// time of unknown length.
func (b *busyMeans) mean(pid int) float64 {
	if !b.known {
		return math.NaN()
	}
	at, _ := slices.BinarySearchFunc(b.samples, pid, func(s busySample, pid int) int { return cmp.Compare(s.pid, pid) })
	last, sum, n, newest := b.from, 0.0, 0, 0.0
	for ; at < len(b.samples) && b.samples[at].pid == pid; at++ {
		s := b.samples[at]
		if !b.plausible(s) || b.from == 0 {
			return math.NaN()
		}
		if s.stamp <= last { // seen before, or twice
			continue
		}
		sum += s.percent * min(float64(s.stamp-last), b.period)
		last, newest, n = s.stamp, s.percent, n+1
	}
	switch {
	case n == 0:
		return 0
	case n == 1 && math.IsInf(b.period, 1):
		return newest
	}
	return min(sum/b.window, 100)
}
