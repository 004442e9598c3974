package nvml

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// busySample is the driver's utilization of one process over a short time.
type busySample struct {
	pid     int
	percent float64 // of that time
	stamp   int64   // end of that time, µs of the driver's clock
}

// busyMeans computes how busy each process kept the GPU since the previous call. It is for one goroutine.
//
// A driver omits idle processes. For each other process it returns one sample: the mean since the requested time,
// stamped with its last activity (nvml.h; https://github.com/NVIDIA/go-nvml/issues/51). If it returns several samples
// of one process, each covers the time since the previous one, but at most the sampling period. Some entries are
// garbage: drivers have returned buffers that they did not write (https://github.com/Syllo/nvtop/issues/110).
type busyMeans struct {
	since    int64         // newest timestamp seen; 0: none yet
	ready    bool          // there was an answer, so the next one covers the time since
	answered time.Duration // when the newest answer came; monotonic
	called   time.Duration
	wall     time.Time // at called

	// State of the current answer.
	known   bool
	from    int64        // since at the time of the call
	window  float64      // µs from there to the newest sample
	period  float64      // µs between samples of one process, +Inf if each has one sample
	limit   int64        // maximum plausible timestamp
	samples []busySample // sorted by process and time
}

const (
	clockSlack = time.Second     // tolerance of a timestamp that is ahead of our clock: two clocks, and the call in between
	clockStep  = time.Second / 2 // minimum difference between system and monotonic clock that means the system clock was set
	// Closer samples of one process are not periodic sampling: nvml.h says that drivers sample every sixth of a second
	// to every second (nvmlUtilization_t).
	minPeriod = 100_000 // µs
)

// begin returns the start of the wanted samples. up is the monotonic time. The driver stamps samples by the system
// clock: after that was set, older timestamps mean nothing.
func (b *busyMeans) begin(now time.Time, up time.Duration) (since uint64) {
	now = now.Round(0) // drop the monotonic reading
	if !b.wall.IsZero() && (now.Sub(b.wall)-(up-b.called)).Abs() > clockStep {
		b.since, b.ready = 0, false
	}
	b.wall, b.called = now, up
	b.known, b.samples = false, b.samples[:0]
	b.limit = now.Add(clockSlack).UnixMicro()
	return uint64(b.since)
}

// idle records an answer without samples.
func (b *busyMeans) idle() {
	if b.ready && b.since > 0 {
		// The last answer covered the time before it, and nothing came since. The next samples do not cover that time.
		b.since += (b.called - b.answered).Microseconds()
	}
	b.known = b.ready
	b.ready, b.answered = true, b.called
}

// addSamples records samples, which it sorts and keeps until the next begin.
func (b *busyMeans) addSamples(samples []busySample) {
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
			if apart := s.stamp - samples[i-1].stamp; apart >= minPeriod {
				b.period = min(b.period, float64(apart))
			}
		}
	}
	if !good { // an unwritten buffer says nothing, not even about idle processes
		return
	}
	b.window = float64(b.since - b.from)
	b.known = b.ready
	b.ready, b.answered = true, b.called
}

func (b *busyMeans) plausible(s busySample) bool {
	return s.percent <= 100 && s.stamp > 0 && s.stamp <= b.limit
}

// mean returns how busy a process kept the GPU, in percent of the time since the last answer; NaN if unknown. The very
// first activity covers an unknown time.
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
		if s.stamp <= last { // already counted, or a duplicate
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
