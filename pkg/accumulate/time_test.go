package accumulate

import (
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/ring"
)

// TestPartsOfAMillisecondAreCarried covers ticks that come a little early or late.
func TestPartsOfAMillisecondAreCarried(t *testing.T) {
	b := newBoard(1024, "GPU-a")
	s, sync := newStore()
	*b.cell(0, cellPower) = 1
	for i := range 1000 {
		b.row(start.Add(time.Duration(i) * 1_234_567))
	}
	sync(viewOf(b), start)
	// The first sample counts for an interval of one second.
	testkit.Equal(t, "count in ms", uint64(1000+999*1_234_567/1_000_000), power(t, s, "GPU-a").Count)
}

// TestBufferedSamplesReplaceTheReading: each buffered sample counts for its time, and the polled reading does
// not count.
func TestBufferedSamplesReplaceTheReading(t *testing.T) {
	b := newBoard(2, "GPU-a")
	buffer := collector.NewBuffer(60, 0)
	b.Columns = buffer.AppendColumns(b.Columns, 0, descPower.ID)
	b.Row = make([]float64, len(b.Columns))
	b.Ring = ring.Make(64, 1, len(b.Row))
	block := b.Row[cellsPerDevice:]
	buffer.Start(1_000_000)
	s, sync := newStore()
	v := viewOf(b)
	*b.cell(0, cellPower) = 390 // the driver's mean
	row := func(second int, values ...float64) {
		for i, v := range values {
			buffer.Add(int64(1_000_000+(second*len(values)+i+1)*20_000), v)
		}
		buffer.Put(block)
		b.row(at(float64(second)))
		sync(v, at(float64(second)))
	}
	row(0, 60, 60, 300)
	row(1, 60, 3001, 70) // implausible values are not counted
	h := power(t, s, "GPU-a")
	testkit.Equal(t, "classic buckets", []uint64{0, 80, 0, 20, 0}, h.Counts)
	want := 20.0 * (60 + 60 + 300 + 60 + 70)
	testkit.ErrorIf(t, h.Count != 100 || h.Sum != want, "got %d ms and a sum of %v, want 100 and %v", h.Count, h.Sum, want)
	row(2) // the driver has no new sample
	checkSums(t, h)
	testkit.Equal(t, "ms after a row without samples", uint64(100), h.Count)
	for second := 3; second < 8; second++ { // still none: after five seconds the polled reading counts
		row(second)
	}
	testkit.ErrorIf(t, h.Count != 1100 || h.Sum-20*(60+60+300+60+70) != 390_000, "after six seconds without samples: %d ms and a sum of %v", h.Count, h.Sum)
	row(8, 60)
	testkit.Equal(t, "ms when there are samples again", uint64(1160), h.Count)
}
