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
// stamped with its last activity (nvml.h; https://github.com/NVIDIA/go-nvml/issues/51). The newest of several counts.
// Drivers have also returned buffers with entries that they did not write (https://github.com/Syllo/nvtop/issues/110).
type busyMeans struct {
	since    int64         // newest timestamp seen; 0: none yet
	ready    bool          // there was an answer, so the next one covers the time since
	answered time.Duration // when the newest answer came; monotonic
	called   time.Duration
	wall     time.Time // at called

	// State of the current answer.
	known   bool
	from    int64        // since at the time of the call
	limit   int64        // maximum plausible timestamp
	samples []busySample // sorted by process and time
}

const (
	clockSlack = time.Second     // tolerance of a timestamp that is ahead of our clock: two clocks, and the call in between
	clockStep  = time.Second / 2 // minimum difference between system and monotonic clock that means the system clock was set
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
	b.samples, b.from = samples, b.since
	good := false
	for _, s := range samples {
		if !b.plausible(s) {
			continue
		}
		good = true
		b.since = max(b.since, s.stamp)
	}
	if !good { // an unwritten buffer says nothing, not even about idle processes
		return
	}
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
	after, _ := slices.BinarySearchFunc(b.samples, pid+1, func(s busySample, pid int) int { return cmp.Compare(s.pid, pid) })
	if after == 0 || b.samples[after-1].pid != pid {
		return 0
	}
	switch s := b.samples[after-1]; {
	case !b.plausible(s), b.from == 0:
		return math.NaN()
	case s.stamp <= b.from: // already counted
		return 0
	default:
		return s.percent
	}
}
