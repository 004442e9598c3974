package collector

import (
	"fmt"
	"math"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

// stamped is a sample of a driver's buffer.
type stamped struct {
	at    int64 // ms
	value float64
}

// put adds samples and returns the row's pairs of a value and its milliseconds.
func put(t *testing.T, b *Buffer, samples ...stamped) []float64 {
	t.Helper()
	for _, s := range samples {
		b.Add(s.at*1000, s.value)
	}
	block := make([]float64, b.Width())
	b.Put(block)
	var out []float64
	for i, v := range block {
		if math.IsNaN(v) {
			for j, rest := range block[i:] {
				testkit.ErrorIf(t, !math.IsNaN(rest), "cell %d has %v behind a blank", i+j, rest)
			}
			break
		}
		out = append(out, v)
	}
	return out
}

func TestBufferTakesEachSampleOnce(t *testing.T) {
	b := NewBuffer(60, 0)
	f := func(want []float64, samples ...stamped) {
		t.Helper()
		testkit.Equal(t, fmt.Sprintf("samples %v", samples), want, put(t, b, samples...))
	}
	f(nil, stamped{1000, 5})                                                  // the first sample only marks a beginning
	f([]float64{7, 20, 9, 17}, stamped{1020, 7}, stamped{1037, 9})            //
	f(nil)                                                                    // samples are put once
	f([]float64{8, 20}, stamped{1020, 7}, stamped{1037, 9}, stamped{1057, 8}) // repeated by the driver
	f(nil, stamped{900, 1}, stamped{1057, 2})                                 // back in time
	f([]float64{3, 40}, stamped{1077, 3}, stamped{1097, 3})                   // equal neighbours share a pair
	f([]float64{4, 20}, stamped{9000, 1}, stamped{9020, 4})                   // after an overflow
	f([]float64{6, 20}, stamped{9040, math.NaN()}, stamped{9060, 6})          // a blank is not a value
	b.Start(20_000_000)
	f([]float64{2, 10}, stamped{20_010, 2}) // after a known beginning
}

// TestBufferThatIsTooLong checks that merging excess samples keeps their mean and their time.
func TestBufferThatIsTooLong(t *testing.T) {
	b := NewBuffer(60, 100*time.Millisecond)
	b.Start(1000)
	const n = 3*maxSamples + 7
	for i := range n {
		b.Add(int64(1000+(i+1)*20_000), float64(i%50))
	}
	cells := put(t, b)
	testkit.ErrorIf(t, len(cells) > b.Width() || len(cells) < b.Width()/2-1, "%d cells for %d samples", len(cells), n)
	var ms, sum, want float64
	for i := 0; i < len(cells); i += 2 {
		ms += cells[i+1]
		sum += cells[i] * cells[i+1]
	}
	for i := range n {
		want += 20 * float64(i%50)
	}
	testkit.ErrorIf(t, ms != 20*n || math.Abs(sum-want) > 1e-6, "%v ms and a sum of %v, want %v and %v", ms, sum, 20*n, want)
}

func TestBufferAllocatesNothing(t *testing.T) {
	b := NewBuffer(60, 0)
	block := make([]float64, b.Width())
	at := int64(0)
	if n := testing.AllocsPerRun(100, func() {
		for range 200 {
			at += 20_000
			b.Add(at, float64(at%7))
		}
		b.Put(block)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// FuzzBuffer checks that any samples give a well-formed block that covers no more time than has passed.
func FuzzBuffer(f *testing.F) {
	f.Add(int64(1), int64(2), int64(3), 1.0, 2.0)
	f.Add(int64(math.MaxInt64), int64(math.MinInt64), int64(0), math.NaN(), math.Inf(1))
	f.Fuzz(func(t *testing.T, a, b, c int64, v, w float64) {
		buffer := NewBuffer(60, 0)
		for range 50 {
			buffer.Add(a, v)
			buffer.Add(b, w)
			buffer.Add(c, v)
			a, b, c = a+b, b+c, c+a
		}
		block := make([]float64, buffer.Width())
		buffer.Put(block)
		for i := 0; i < len(block); i += 2 {
			if ms := block[i+1]; ms <= 0 || ms > 150*float64(maxSampleGap.Milliseconds()) {
				t.Fatalf("sample %d covers %v ms", i/2, ms)
			}
		}
	})
}
