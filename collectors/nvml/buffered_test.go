//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// keptSample is a sample in a fake driver's buffer: a timestamp in ms and a value.
type keptSample struct{ at, value uint32 }

// fakeBuffer is a driver's buffer of power samples. It returns samples newer than since or, if all is set, every
// sample again.
type fakeBuffer struct {
	samples []keptSample
	all     bool
	code    nvml.Return
}

func (b *fakeBuffer) read(kind nvml.SamplingType, since uint64, into []nvml.Sample) (int, nvml.ValueType, nvml.Return) {
	if kind != nvml.TOTAL_POWER_SAMPLES {
		return 0, 0, nvml.ERROR_NOT_SUPPORTED
	}
	if b.code != nvml.SUCCESS {
		return 0, 0, b.code
	}
	n := 0
	for _, s := range b.samples {
		if stamp := uint64(s.at) * 1000; (b.all || stamp > since) && n < len(into) {
			into[n] = nvml.Sample{TimeStamp: stamp}
			binary.NativeEndian.PutUint32(into[n].SampleValue[:], s.value*1000)
			n++
		}
	}
	if n == 0 {
		return 0, nvml.VALUE_TYPE_UNSIGNED_INT, nvml.ERROR_NOT_FOUND
	}
	return n, nvml.VALUE_TYPE_UNSIGNED_INT, nvml.SUCCESS
}

func histogramReadings(ids ...field.ID) []field.Reading {
	out := readings(ids...)
	for i := range out {
		out[i].Histogram = true
	}
	return out
}

func openBuffer(t testing.TB, b *fakeBuffer) *bufferedPart {
	t.Helper()
	p, err := newBuffered(b.read, histogramReadings(155), map[columnID]bool{{0, 155}: true}, zap.NewNop(), nil)
	testkit.FatalIf(t, err != nil || p == nil, "no part: %v", err)
	return p.(*bufferedPart)
}

func TestBufferedSamples(t *testing.T) {
	b := &fakeBuffer{samples: []keptSample{{980, 90}, {1000, 100}}}
	p := openBuffer(t, b)
	now := time.Unix(0, 0)
	p.now = func() time.Time { return now }
	p.buffers[0].heard = now
	f := func(when string, want []float64, samples ...keptSample) {
		t.Helper()
		b.samples = append(b.samples, samples...)
		now = now.Add(time.Second)
		row, err := sampleAllOf(p)
		testkit.ErrorIf(t, err != nil, "%s: %v", when, err)
		var got []float64
		for _, v := range row {
			if !math.IsNaN(v) {
				got = append(got, v)
			}
		}
		equal(t, want, got, "%s: values and ms", when)
	}
	f("nothing new", nil)
	f("two samples", []float64{300, 20, 310, 20}, keptSample{1020, 300}, keptSample{1040, 310})
	f("nothing new again", nil)
	b.all = true
	f("the driver repeats what it gave", []float64{320, 20}, keptSample{1060, 320})
	b.all = false
	now = now.Add(5 * time.Second)
	f("an overflow", []float64{330, 20}, keptSample{9000, 500}, keptSample{9020, 330})
	f("out of order", []float64{340, 20, 350, 20}, keptSample{9060, 350}, keptSample{9040, 340})
	b.code = nvml.ERROR_UNKNOWN
	f("an error", nil)
	b.code = nvml.SUCCESS
	f("after it", []float64{360, 20}, keptSample{9080, 360})

	// The clock is set back by eight seconds, so the driver has no newer samples.
	for range 6 {
		f("set back", nil, keptSample{1100, 100})
	}
	f("after a while", []float64{110, 20}, keptSample{1120, 110})
	for range 6 {
		f("set forward by an hour", nil, keptSample{3_600_000, 100})
	}
	f("after a while", []float64{120, 20}, keptSample{3_600_020, 120})
}

func TestBufferedErrors(t *testing.T) {
	b := &fakeBuffer{samples: []keptSample{{1000, 100}}}
	p := openBuffer(t, b)
	for code, want := range map[nvml.Return]error{
		nvml.ERROR_GPU_IS_LOST: collector.ErrDeviceLost, nvml.ERROR_UNINITIALIZED: collector.ErrOutdated, nvml.ERROR_UNKNOWN: nil,
	} {
		b.code = code
		_, err := sampleAllOf(p)
		testkit.ErrorIf(t, !errors.Is(err, want), "%v: got %v, want %v", code, err, want)
		_, err = newBuffered(b.read, histogramReadings(155), map[columnID]bool{{0, 155}: true}, zap.NewNop(), nil)
		testkit.ErrorIf(t, !errors.Is(err, want), "%v when it is bound: got %v, want %v", code, err, want)
	}
}

// TestWithoutBuffers checks that readings without a buffer, and fields that are not histograms, are polled.
func TestWithoutBuffers(t *testing.T) {
	f := func(name string, b *fakeBuffer, fields []field.Reading, supplied ...columnID) {
		t.Helper()
		has := map[columnID]bool{}
		for _, c := range supplied {
			has[c] = true
		}
		p, err := newBuffered(b.read, fields, has, zap.NewNop(), nil)
		testkit.ErrorIf(t, p != nil || err != nil, "%s: %v, %v", name, p, err)
	}
	full := &fakeBuffer{samples: []keptSample{{1000, 100}}}
	f("a gauge", full, readings(155), columnID{0, 155})
	f("a field of which nothing is kept", full, histogramReadings(150), columnID{0, 150})
	f("a type that the driver does not know", full, histogramReadings(100), columnID{0, 100})
	f("a GPU without the reading", full, histogramReadings(155))
	f("an empty buffer", &fakeBuffer{}, histogramReadings(155), columnID{0, 155})
}

// openHistograms opens the collector on a node with the named fields as histograms and returns the first GPU's row.
func openHistograms(t testing.TB, n *nvmltest.Node, names ...string) *taken {
	t.Helper()
	_, sources := openList(t, at(n), listOf(t, strings.ReplaceAll(csvOf(names), "gauge", "histogram")))
	return &taken{sources[0], make([]float64, len(sources[0].Columns())), make([]bool, len(sources[0].Columns()))}
}

// TestBuffersOfALibrary reads one second of a GPU's samples through C. They include bursts of 50 ms between two ticks.
func TestBuffersOfALibrary(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{Preset: "h100-sxm"})
	n.Freeze(99.8)
	n.SetLoad(0, nvmltest.Steady(0))
	s := openHistograms(t, n, "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_SM_CLOCK")
	n.Advance(200 * time.Millisecond)
	n.SetLoad(0, nvmltest.Steady(1))
	n.Advance(50 * time.Millisecond)
	n.SetLoad(0, nvmltest.Steady(0))
	n.Advance(750 * time.Millisecond)
	must(t, s.sample())
	ms, peak := map[field.ID]float64{}, map[field.ID]float64{}
	for i, c := range s.Columns() {
		switch {
		case c.Buffer == 0 || math.IsNaN(s.row[i]):
		case c.Buffer%2 == 0:
			ms[c.Field] += s.row[i]
		default:
			peak[c.Field] = max(peak[c.Field], s.row[i])
		}
	}
	testkit.Equal(t, "samples stand for: ms", "map[155:1000 203:1000.002]", fmt.Sprint(ms))
	testkit.Equal(t, "the highest power in W, that of the burst", 690.0, peak[155])
	if testkit.Race {
		return
	}
	p := partOf[*bufferedPart](s)
	row, due := make([]float64, len(p.cols)), slices.Repeat([]bool{true}, len(p.cols))
	if allocs := testing.AllocsPerRun(10, func() {
		must(t, p.sample(row, due))
	}); allocs != 0 {
		t.Errorf("%v allocations a row, want 0", allocs)
	}
}
