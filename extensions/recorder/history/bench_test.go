package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

const (
	benchGPUs   = 8
	benchFields = 60
)

// benchNode has 8 GPUs with 60 realistic series each: a third constant, a third integers (percent,
// MHz, degrees), some counters, and readings with fractions (power, ratios).
type benchNode struct {
	board view.Board
	rand  *rand.Rand
	rows  [benchGPUs][]float64
	now   int64 // ns
	tick  time.Duration
}

func newBenchNode(tick time.Duration) *benchNode {
	n := &benchNode{rand: rand.New(rand.NewPCG(1, 2)), now: start.UnixNano(), tick: tick}
	v := &view.View{}
	for g := range benchGPUs {
		src := &view.Source{Devices: []collector.Device{{ID: fmt.Sprint("GPU-", g)}}, Interval: tick}
		for i := range benchFields {
			src.Columns = append(src.Columns, collector.Column{Field: power, Labels: []collector.Label{{Name: "n", Value: fmt.Sprint(i)}}})
		}
		src.Ring = ring.Make(1024, 1, benchFields)
		n.rows[g] = make([]float64, benchFields)
		v.Sources = append(v.Sources, src)
	}
	n.board.Store(v)
	return n
}

// append writes a row to each ring, with up to 0.1 ms of timer jitter.
func (n *benchNode) append() {
	n.now += int64(n.tick)
	for g, src := range n.board.Load().Sources {
		row := n.rows[g]
		for i := range row {
			switch {
			case i < 20:
				row[i] = float64(i)
			case i < 40:
				if n.rand.IntN(3) == 0 {
					row[i] = float64(50 + n.rand.IntN(20))
				}
			case i < 48:
				row[i] += float64(n.rand.IntN(1e6))
			default:
				row[i] = math.Round(600e3+n.rand.NormFloat64()*20e3) / 1e3
			}
		}
		at := n.now + n.rand.Int64N(100e3)
		src.Ring.Append(at, []int64{at}, row)
	}
}

// BenchmarkHistory measures a sample from the ring to the chunk.
func BenchmarkHistory(b *testing.B) {
	for _, tick := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
		b.Run(fmt.Sprintf("tick=%v", tick), func(b *testing.B) {
			n := newBenchNode(tick)
			h := New(Options{Rows: rows.New(&n.board, nil)})
			samples, perSync := 0, int(max(tick, 100*time.Millisecond)/tick)
			var taken time.Duration
			for b.Loop() {
				for range perSync {
					n.append()
					samples += benchGPUs * benchFields
				}
				begin := time.Now()
				h.Sync(time.Unix(0, n.now))
				taken += time.Since(begin)
			}
			kept := min(float64(samples), benchGPUs*benchFields/tick.Seconds()*DefaultAge.Seconds())
			b.ReportMetric(float64(taken.Nanoseconds())/float64(samples), "ns/sample")
			b.ReportMetric(float64(h.store.bytes)/kept, "B/sample")
		})
	}
}
