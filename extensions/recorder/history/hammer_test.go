package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

// TestReadersWhileRowsCome reads everything repeatedly while rows come, chunks are dropped and
// sessions end. Each answer must be a part of the written data.
func TestReadersWhileRowsCome(t *testing.T) {
	columns := make([]collector.Column, 20)
	for i := range columns {
		columns[i] = collector.Column{Field: power, Labels: []collector.Label{{Name: "n", Value: fmt.Sprint(i)}}}
	}
	n := newNode(t, Options{MaxAge: 10 * time.Second, MaxBytes: 1 << 20}, columns...)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for r := rand.New(rand.NewPCG(1, 2)); ; {
				select {
				case <-done:
					return
				default:
				}
				for _, s := range n.h.Series("", power) {
					last, count := int64(math.MinInt64), 0
					for at, v := range n.h.Samples(s, math.MinInt64, math.MaxInt64) {
						testkit.ErrorIf(t, at <= last || v != float64(at%1000), "sample %v at %d after %d", v, at, last)
						if last, count = at, count+1; r.IntN(5000) == 0 {
							break
						}
					}
				}
			}
		})
	}
	for i := range 20_000 {
		n.now = n.now.Add(10 * time.Millisecond)
		for c := range columns {
			n.row[c] = float64(n.now.UnixMilli() % 1000)
		}
		n.append(n.row...)
		if i%10 == 0 {
			n.h.Sync(n.now)
		}
		if i%5000 == 4999 {
			n.h.Sync(n.now)
			n.session("GPU-0", columns...)
		}
	}
	close(done)
	readers.Wait()
}

// flood writes a few samples each of more and more series.
func flood(t *testing.T, limit int64, series int) *node {
	n := newNode(t, Options{MaxBytes: limit})
	r := rand.New(rand.NewPCG(3, 4))
	for made := 0; made < series; made += 500 {
		columns := make([]collector.Column, 500)
		for i := range columns {
			columns[i] = collector.Column{Field: power, Labels: []collector.Label{{Name: "process", Value: fmt.Sprint(made + i)}}}
		}
		n.session(fmt.Sprint("GPU-", made/500%8), columns...)
		for range 40 {
			n.now = n.now.Add(time.Second)
			for c := range n.row {
				n.row[c] = r.Float64()
			}
			n.append(n.row...)
			n.h.Sync(n.now)
		}
		got := n.h.store.bytes
		testkit.FatalIf(t, got > limit, "%d bytes with %d series, the limit is %d", got, made, limit)
	}
	return n
}

func TestAFloodOfSeriesStaysWithinTheLimit(t *testing.T) {
	const limit = 4 << 20
	n := flood(t, limit, 20_000)
	testkit.ErrorIf(t, n.h.store.refused == 0 || len(n.h.store.series) < limit/bytesPerSeries/2, "%d series, %d samples refused", len(n.h.store.series), n.h.store.refused)
	count := int64(0)
	for _, x := range n.h.store.order {
		count += seriesBytes + int64(x.size)
		for _, c := range x.sealed {
			count += chunkBytes + int64(len(c.data))
		}
	}
	testkit.Equal(t, "bytes counted", count, n.h.store.bytes)
	n.now = n.now.Add(time.Hour)
	n.h.Sync(n.now)
	if s := &n.h.store; s.bytes != 0 || len(s.series)+len(s.order)+len(s.fifo) != 0 {
		t.Errorf("after an hour without rows there are %d bytes, %d series, %d chunks", s.bytes, len(s.series), len(s.fifo))
	}
}

// TestBytesAreThoseOfTheHeap compares the counted bytes with the growth of the heap.
func TestBytesAreThoseOfTheHeap(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, series := range []int{500, 3000} {
		before := heap()
		n := flood(t, 64<<20, series)
		n.src, n.row = nil, nil
		n.board.Store(&view.View{}) // do not count rings
		n.h.Sync(n.now)
		grown := heap() - before
		got := n.h.store.bytes
		testkit.ErrorIf(t, grown > got*5/4 || grown < got*2/3, "%d series: %d bytes are counted, the heap has grown by %d", series, got, grown)
		runtime.KeepAlive(n)
	}
}

func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	registry := prometheus.NewRegistry()
	var board view.Board
	h := New(Options{Rows: rows.New(&board, nil), Registerer: registry})
	src := &view.Source{
		Devices: []collector.Device{{ID: "GPU-0"}}, Columns: []collector.Column{{Field: power}},
		Ring: ring.Make(16, 1, 1), Interval: 10 * time.Millisecond,
	}
	board.Store(&view.View{Sources: []*view.Source{src, {Ring: src.Ring}}}) // the second source has another shape than its ring
	for i := range 20 {
		now := time.Now().Add(time.Duration(i) * time.Millisecond)
		src.Ring.Append(now.UnixNano(), []int64{now.UnixNano()}, []float64{7})
	}
	stop := testkit.Start(t, h.Run)
	for len(h.Series("", 0)) == 0 {
		runtime.Gosched()
	}
	stop()
	n, err := testutil.GatherAndCount(registry)
	testkit.ErrorIf(t, n != 5 || err != nil, "%d metrics, %v", n, err)
}

func TestBufferedSamplesHaveTimesOfTheirOwn(t *testing.T) {
	b := collector.NewBuffer(2, time.Second)
	columns := b.AppendColumns([]collector.Column{{Field: power}}, 0, power)
	n := newNode(t, Options{}, columns...)
	row := func(after time.Duration, reading float64, pairs ...float64) {
		n.row[0] = reading
		for i := range n.row[1:] {
			n.row[1+i] = blank
		}
		copy(n.row[1:], pairs)
		n.sample(after, n.row...)
	}
	row(0, 10)
	row(time.Second, 11, 1, 500, 2, 480)              // the newest sample is taken to be as old as its row
	row(time.Second, 12, 3, 500, 4, 400)              // continues after the previous samples
	row(time.Second, 13, 5, 600, 6, 500)              // limited to the row's time
	row(time.Second, 14)                              // none
	row(5*time.Second, 15, 7, 500)                    // after a gap
	row(time.Second, 16, 8, math.Inf(1), 9, 10)       // invalid
	row(time.Second, 17, 8, 1, 9, math.NaN(), 10, 20) // a block ends at its first blank
	var got [][]sample
	for _, s := range n.h.Series("", 0) {
		got = append(got, n.all(s))
	}
	check(t, got, [][]sample{
		{{0, 10}, {1000, 11}, {2000, 12}, {3000, 13}, {4000, 14}, {9000, 15}, {10000, 16}, {11000, 17}},
		{{520, 1}, {1000, 2}, {1500, 3}, {1900, 4}, {2500, 5}, {3000, 6}, {9000, 7}, {11000, 8}},
	})
}

func TestRowsThatLieAreLeftOut(t *testing.T) {
	n := newNode(t, Options{}, collector.Column{Field: power}, collector.Column{Field: field.XIDEvent})
	n.sample(0, 1, 79)
	for _, at := range []time.Time{n.now.Add(time.Hour), n.now.Add(-time.Hour), time.Unix(0, 0)} {
		n.src.Ring.Append(at.UnixNano(), []int64{at.UnixNano()}, []float64{2, 80})
		n.src.Ring.Append(n.now.UnixNano()+1e6, []int64{at.UnixNano()}, []float64{2, blank})
	}
	n.src.Ring.Append(n.now.UnixNano(), []int64{n.now.UnixNano() + 1}, []float64{3, 81}) // in the same ms; events count anyway
	n.h.Sync(n.now)
	check(t, n.all(n.one(power)), []sample{{0, 1}})
	check(t, n.all(n.one(xid)), []sample{{0, 79}, {0, 81}})
}
