//go:build linux && cgo

package nvml

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// profiler is the profiling part of GPU 0 of a simulated node. The test sets the time of both.
type profiler struct {
	*gpmPart
	*costs
	node *nvmltest.Node
	at   time.Time
	row  []float64
	due  []bool
}

func profile(t *testing.T, n *nvmltest.Node, csv string, log *zap.Logger) *profiler {
	t.Helper()
	n.Freeze(100)
	d := discoveryOn(t, n)
	g := d.mustFind(t)[0]
	targets := []target{{reader: g.reader, level: field.GPU}}
	for i, in := range g.instances {
		targets = append(targets, target{device: i + 1, reader: in.reader, level: in.device.Level})
	}
	targets = append(targets, target{device: len(targets), reader: g.reader, level: field.Link, link: 3})
	c := &costs{}
	p := testkit.Get(newGPM(d.lib, g, targets, listOf(t, csv).Readings(), newReasons("580.65.06", log), c))(t)
	out := &profiler{gpmPart: p.(*gpmPart), costs: c, node: n, at: time.Now()}
	out.now = func() time.Time { return out.at }
	for range out.cols {
		out.row, out.due = append(out.row, math.NaN()), append(out.due, true)
	}
	t.Cleanup(func() {
		out.close()
		testkit.Equal(t, "samples that are left", 0, n.Held().Samples)
	})
	return out
}

// after advances the time and samples.
func (p *profiler) after(t *testing.T, d time.Duration) {
	t.Helper()
	p.node.Advance(d)
	p.at = p.at.Add(d)
	must(t, p.sample(p.row, p.due))
}

// want compares the row by device and field.
func (p *profiler) want(t *testing.T, what string, want map[columnID]float64) {
	t.Helper()
	got := map[columnID]float64{}
	for i, c := range p.cols {
		got[columnID{c.Device, c.Field}] = p.row[i]
	}
	testkit.Equal(t, what, want, got, cmp.AllowUnexported(columnID{}), cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-9))
}

func TestProfiling(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	n.SetLoad(0, nvmltest.Steady(0.5))
	p := profile(t, n, `DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, a
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, b
DCGM_FI_PROF_PCIE_TX_BYTES, gauge, c
DCGM_FI_PROF_NVLINK_TX_BYTES, gauge, d
DCGM_FI_PROF_NVLINK_L0_RX_BYTES, gauge, e
DCGM_FI_PROF_NVLINK_TX_BYTES_PER_LINK, gauge, f
DCGM_FI_PROF_C2C_TX_ALL_BYTES, gauge, not on this board
DCGM_FI_DEV_GPU_TEMP, gauge, not of GPM
`, zap.NewNop())
	nan := math.NaN()
	p.after(t, time.Second)
	p.want(t, "the first sample has nothing before it", map[columnID]float64{
		{0, 1001}: nan, {0, 1004}: nan, {0, 1009}: nan, {0, 1011}: nan, {0, 1041}: nan, {1, 1532}: nan,
	})
	p.after(t, time.Second)
	const mib = 1 << 20
	p.want(t, "half load", map[columnID]float64{
		{0, 1001}: 0.5, {0, 1004}: 0.29, {0, 1009}: math.Trunc((2050*0.5 + 0.9) * mib), {0, 1011}: 96680 * 0.5 * mib,
		{0, 1041}: 5300 * 0.5 * mib, {1, 1532}: 5300 * 0.5 * mib,
	})
	n.SetLoad(0, nvmltest.Steady(1))
	p.after(t, time.Second)
	v := p.row[0]
	testkit.ErrorIf(t, math.Abs(v-1) > 1e-9, "GR_ENGINE_ACTIVE is %v under full load", v)
	for _, c := range p.Calls() {
		testkit.ErrorIf(t, c.Count == 0 || c.Time <= 0, "cost of %s: %+v", c.Call, c)
	}
}

// TestProfilingAtFastTicks checks that values are means over at least 100 ms, NVML's minimum, and do not change in between.
func TestProfilingAtFastTicks(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	p := profile(t, n, "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, a\n", zap.NewNop())
	n.SetLoad(0, nvmltest.Steady(0.2))
	p.after(t, 10*time.Millisecond)
	n.ResetCalls()
	for range 9 {
		p.after(t, 10*time.Millisecond)
		testkit.FatalIf(t, !math.IsNaN(p.row[0]), "a value, %v, of less than 100 ms", p.row[0])
	}
	n.SetLoad(0, nvmltest.Steady(1))
	p.after(t, 10*time.Millisecond)
	const mean = (9*0.2 + 1*1) / 10
	for range 9 {
		testkit.FatalIf(t, math.Abs(p.row[0]-mean) > 1e-9, "got %v, want %v", p.row[0], mean)
		p.after(t, 10*time.Millisecond)
	}
	testkit.Equal(t, "samples in 200 ms", uint64(1), n.Calls("nvmlGpmSampleGet"))
}

// TestProfilingIntervals checks that a field's value is the mean over its own interval.
func TestProfilingIntervals(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	p := profile(t, n, "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, a\nDCGM_FI_PROF_SM_ACTIVE, gauge, b, interval=100ms\n", zap.NewNop())
	n.SetLoad(0, nvmltest.Steady(0))
	p.after(t, time.Second)
	slow, fast := 0, 1
	if p.cols[0].Field != 1001 {
		slow, fast = 1, 0
	}
	for i := range 10 {
		if i == 5 {
			n.SetLoad(0, nvmltest.Steady(1))
		}
		p.due[slow] = i == 9
		p.after(t, 100*time.Millisecond)
		testkit.ErrorIf(t, !p.due[slow] && !math.IsNaN(p.row[slow]), "tick %d: a field that is not due became %v", i, p.row[slow])
	}
	if math.Abs(p.row[slow]-0.5) > 1e-9 || math.Abs(p.row[fast]-0.94) > 1e-9 {
		t.Errorf("means over 1 s and 100 ms are %v and %v, want 0.5 and 0.94", p.row[slow], p.row[fast])
	}
}

// TestProfilingOfInstances checks that each instance has its own values, that the whole GPU has none, and that
// instances lack the fields of boards.
func TestProfilingOfInstances(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1, MIG: map[int][]string{0: {"1g.10gb", "3g.40gb"}}})
	n.SetLoad(0, nvmltest.Steady(1))
	p := profile(t, n, "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, a\nDCGM_FI_PROF_DRAM_ACTIVE, gauge, b\nDCGM_FI_PROF_PCIE_TX_BYTES, gauge, c\n", zap.NewNop())
	for range 2 {
		p.after(t, time.Second)
	}
	testkit.FatalIf(t, len(p.cols) != 4, "columns: %v", p.cols)
	for i, c := range p.cols {
		testkit.ErrorIf(t, c.Device < 1 || c.Device > 2 || c.Field == 1009 || math.IsNaN(p.row[i]), "column %+v has %v", c, p.row[i])
	}
	n.SetMIG(0, "7g.80gb")
	p.node.Advance(time.Second)
	p.at = p.at.Add(time.Second)
	err := p.sample(p.row, p.due)
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrColumnsChanged), "when they are no more: %v", err)
}

func TestProfilingFails(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	n.SetLoad(0, nvmltest.Steady(1))
	core, logs := observer.New(zapcore.InfoLevel)
	p := profile(t, n, "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, a\nDCGM_FI_PROF_SM_ACTIVE, gauge, b\n", zap.New(core))
	for range 2 {
		p.after(t, time.Second)
	}
	n.Return(0, "nvmlGpmSampleGet", "UNKNOWN")
	for range 3 {
		p.after(t, time.Second)
	}
	nan := math.NaN()
	p.want(t, "without samples", map[columnID]float64{{0, 1001}: nan, {0, 1002}: nan})
	n.Clear(0)
	p.after(t, time.Second)
	p.want(t, "the first again", map[columnID]float64{{0, 1001}: nan, {0, 1002}: nan})
	p.after(t, time.Second)
	p.want(t, "after that", map[columnID]float64{{0, 1001}: 1, {0, 1002}: 0.94})
	testkit.Equal(t, "lines, one for each change", 2, logs.Len())
	n.Set(0, "gpm[2]", "0 - 1")
	p.after(t, time.Second)
	p.want(t, "a negative one", map[columnID]float64{{0, 1001}: 1, {0, 1002}: nan})
	n.Set(0, "gpm[2]", "!UNKNOWN")
	p.after(t, time.Second)
	p.want(t, "one that fails", map[columnID]float64{{0, 1001}: 1, {0, 1002}: nan})
	n.Lose(0)
	err := p.sample(p.row, p.due)
	testkit.ErrorIf(t, err != nil, "asked again at once: %v", err)
	p.at = p.at.Add(time.Second)
	err = p.sample(p.row, p.due)
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrDeviceLost), "a GPU that is lost: %v", err)
}
