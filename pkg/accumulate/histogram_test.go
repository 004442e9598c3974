package accumulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

var nan, inf = math.NaN(), math.Inf(1)

// peer is client_golang's histogram with the same classic buckets, schema and zero threshold as h.
func peer(h *Histogram) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:                         "peer",
		Buckets:                      h.Bounds,
		NativeHistogramBucketFactor:  math.Exp2(math.Exp2(-float64(h.Schema))) * (1 + 1e-9), // rounding must not pick the next
		NativeHistogramZeroThreshold: h.ZeroThreshold,
	})
}

// plain is the part that two histograms must agree on.
type plain struct {
	Count, Zero uint64
	Sum         float64
	Schema      int32
	Classic     map[float64]uint64 // cumulative
	Native      map[int32]uint64
}

func plainOf(h *Histogram) plain {
	p := plain{Count: h.Count, Zero: h.ZeroCount, Sum: h.Sum, Schema: h.Schema, Classic: map[float64]uint64{}, Native: map[int32]uint64{}}
	var n uint64
	for i, b := range h.Bounds {
		n += h.Counts[i]
		p.Classic[b] = n
	}
	for i, n := range h.Positive {
		if n != 0 {
			p.Native[h.First+int32(i)] = n
		}
	}
	return p
}

func plainOfPeer(t *testing.T, h prometheus.Histogram) plain {
	t.Helper()
	var m dto.Metric
	testkit.Must(t, h.Write(&m))
	d := m.GetHistogram()
	p := plain{Count: d.GetSampleCount(), Zero: d.GetZeroCount(), Sum: d.GetSampleSum(), Schema: d.GetSchema(),
		Classic: map[float64]uint64{}, Native: map[int32]uint64{}}
	for _, b := range d.GetBucket() {
		p.Classic[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	index, delta, n := int32(0), 0, int64(0)
	for _, span := range d.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			n += d.GetPositiveDelta()[delta]
			if n != 0 {
				p.Native[index] = uint64(n)
			}
			delta++
			index++
		}
	}
	return p
}

// edges are values on, below and above every bound of a schema-3 histogram.
func edges(low, high int) []float64 {
	var out []float64
	for e := low; e < high; e++ {
		for k := range 8 {
			b := math.Ldexp(eighths[k], e+1)
			out = append(out, math.Nextafter(b, 0), b, math.Nextafter(b, inf))
		}
	}
	return out
}

func TestHistogramEqualsClientGolang(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	values := map[string]func(top float64) []float64{
		"edges": func(top float64) []float64 {
			_, exp := math.Frexp(top)
			return edges(exp-35, exp-1)
		},
		"linear": func(top float64) (out []float64) {
			for range 5000 {
				out = append(out, top*random.Float64())
			}
			return out
		},
		"logarithmic": func(top float64) (out []float64) {
			for range 5000 {
				out = append(out, top*math.Exp2(-40*random.Float64()))
			}
			return out
		},
		"bounds": func(top float64) (out []float64) {
			for i := range 11 {
				b := top * float64(i) / 10
				out = append(out, b, math.Nextafter(b, inf))
			}
			return out[:len(out)-1] // not above top
		},
		"nothing": func(float64) []float64 { return nil },
	}
	for _, top := range []float64{1, 100, 3000, 81559, 1 << 20, 9e8, 1e12, 1e-6} {
		for name, list := range values {
			t.Run(fmt.Sprintf("%s to %g", name, top), func(t *testing.T) {
				f := &field.Field{Desc: &field.Descriptor{Max: top}, Scale: 1}
				for i := range 11 {
					f.Buckets = append(f.Buckets, top*float64(i)/10)
				}
				h := newHistogram(f)
				want := peer(h)
				for _, v := range list(top) {
					h.observe(v, 1)
					want.Observe(v)
				}
				testkit.Equal(t, "client_golang (-) and ours (+)", plainOfPeer(t, want), plainOf(h))
				checkSums(t, h)
			})
		}
	}
}

func TestNativeShapeIsBounded(t *testing.T) {
	for range 20000 {
		top := math.Float64frombits(rand.Uint64())
		unit := math.Float64frombits(rand.Uint64())
		s := nativeShapeOf(top, unit)
		if s.buckets < 1 || s.buckets > maxOctaves<<nativeSchema || s.zeroThreshold < 0x1p-1022 || math.IsInf(s.zeroThreshold, 0) {
			t.Fatalf("shape for maximum %v and unit %v: %+v", top, unit, s)
		}
		above := math.Nextafter(s.zeroThreshold, inf)
		i := nativeIndex(above)
		testkit.FatalIf(t, i != s.first, "shape for maximum %v and unit %v: first bucket is %d, but %v is in %d", top, unit, s.first, above, i)
		if top > above && !math.IsInf(top, 1) && unit > 0 {
			i := nativeIndex(top)
			testkit.FatalIf(t, int(i-s.first) >= s.buckets, "shape for maximum %v and unit %v: %+v has no bucket %d for the maximum", top, unit, s, i)
		}
	}
}

// FuzzObserve: a histogram stays in bounds and consistent for any range of the field and any value.
func FuzzObserve(f *testing.F) {
	f.Add(100.0, 1.0, 50.0)
	f.Add(0.0, 0.0, -1.0)
	f.Add(math.MaxFloat64, 5e-324, 5e-324)
	f.Fuzz(func(t *testing.T, top, scale, v float64) {
		h := newHistogram(&field.Field{Desc: &field.Descriptor{Max: top}, Scale: scale, Buckets: []float64{-1, 0, top}})
		h.observe(v, 1000)
		h.observe(-v, 1000)
		want := uint64(2000)
		if v-v != 0 {
			want = 0
		}
		testkit.Equal(t, fmt.Sprintf("count of %v", v), want, h.Count)
		checkSums(t, h)
	})
}
