//go:build linux && cgo

package main_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
)

// TestE2ETakeover runs the binary on simulated DCGMs and NVMLs with the same GPUs, and takes each away in turn. On every page
// meanwhile, each GPU appears once and no counter goes back.
func TestE2ETakeover(t *testing.T) {
	t.Parallel()
	exe := build(t)
	type steps = []func(*twoNode, *testing.T)
	for name, part := range map[string]struct{ watched, then steps }{
		"lists":  {watched: steps{(*twoNode).pause, (*twoNode).engineStalls}, then: steps{(*twoNode).releases}},
		"engine": {watched: steps{(*twoNode).engineEnds}, then: steps{(*twoNode).killed, (*twoNode).hungInEngine}},
		"rhythm": {watched: steps{(*twoNode).lateValues}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTwoNode(t, exe, map[string][]string{"rhythm": {"--collect-interval=1000", "--stale-after=10s"}}[name]...)
			n.await(t, "8 GPUs by NVML", by("nvml"), is(0, "warpgauge_collector_up", "collector", "dcgm"))
			w := watch(t, n.exporter, 1, sameSeries())
			n.laterLibrary(t)
			for _, step := range part.watched {
				step(n, t)
			}
			w.stop(t)
			for _, step := range part.then {
				step(n, t)
			}
		})
	}
}

// energyBase and energySlope define a counter with equal values in both libraries.
const (
	energyBase  = 5_000_000_000.0 // mJ
	energySlope = 350_000.0       // mJ/s
)

const takeoverCSV = `DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.
DCGM_FI_DEV_XID_ERRORS, gauge, Last XID.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since start.
DCGM_FI_PROF_SM_ACTIVE, gauge, SMs.
`

// twoNode is a node with both libraries and an exporter.
type twoNode struct {
	*exporter
	nvml         *nvmltest.Node
	dcgm         *dcgmtest.Engine
	library, csv string // path of DCGM; the list
}

// newTwoNode starts an exporter on a node without DCGM yet.
func newTwoNode(t *testing.T, exe string, flags ...string) *twoNode {
	t.Helper()
	n := &twoNode{nvml: simulatedNVML(t), library: filepath.Join(t.TempDir(), "libdcgm.so.4"), csv: file(t, "counters.csv", takeoverCSV)}
	n.nvml.Set(nvmltest.Host, "energy", fmt.Sprintf("%.0f + %.0f * t", energyBase, energySlope))
	n.nvml.Set(nvmltest.Host, "temperature", "71")
	n.exporter = serve(t, exe, append([]string{"--enable-only=nvml,dcgm", "--enable-nvml=true", "--enable-dcgm=true", "--nvml-library=" + n.nvml.Library(), "--dcgm-library=" + n.library,
		"--remote-hostengine-info=localhost:5555", "--isolation=process", "--collect-interval=100", "--slow-interval=500ms",
		"--stale-after=4s", "--collector-restart-max=1s", "--enable-release-endpoint", "-f", n.csv,
		"--sample-deadline=10s", // longer than the detection of a stalled engine
	}, flags...)...)
	return n
}

// install makes DCGM appear.
func (n *twoNode) install(t *testing.T) {
	t.Helper()
	n.dcgm = testkit.Get(dcgmtest.Write(t.TempDir(), dcgmtest.Config{}, func(err error) { t.Error(err) }))(t)
	t.Cleanup(func() { must(t, n.dcgm.Close()) })
	base := energyBase + energySlope*n.nvml.Now()
	for gpu := range allGPUs {
		n.dcgm.Set(dcgmtest.GPU(gpu), 156, dcgmtest.Ramp(base, energySlope))
		n.dcgm.Set(dcgmtest.GPU(gpu), 150, dcgmtest.Number(41))
	}
	for _, suffix := range []string{".node", ""} { // create the link to its script first
		must(t, os.Link(n.dcgm.Library()+suffix, n.library+suffix))
	}
}

// by checks that all values come from one library.
func by(collector string) func(page) error {
	return func(p page) error {
		want := map[string]float64{"dcgm": 41, "nvml": 71}[collector]
		for gpu, v := range p.values("DCGM_FI_DEV_GPU_TEMP") {
			if v != want {
				return fmt.Errorf("GPU %s has %v, want the %v of %s", gpu, v, want, collector)
			}
		}
		return errors.Join(eightGPUs(p), p.want(1, "warpgauge_gpu_speaker", "collector", collector))
	}
}

// resting checks that NVML holds nothing.
func (n *twoNode) resting(t *testing.T) {
	t.Helper()
	n.await(t, "NVML at rest", is(1, "warpgauge_collector_problem", "collector", "nvml", "cause", "standby"))
	n.free(t)
}

// free checks that no NVML device is open and that NVML has no child.
func (n *twoNode) free(t *testing.T) {
	t.Helper()
	eventually.OK(t, "nothing of NVML held", func() error {
		if held := n.holds(t, filepath.Join(n.nvml.Root(), "dev")); len(held) > 0 {
			return fmt.Errorf("open: %v", held)
		}
		if c := n.children(t); len(c) > 1 {
			return fmt.Errorf("children: %v", c)
		}
		return nil
	})
}

// sameSeries checks that every page has the same series for the common fields, one per GPU:
// whichever library supplies them, they continue for Prometheus.
func sameSeries() func(page) error {
	var first []string
	return func(p page) error {
		var now []string
		for _, s := range p {
			if s.name == "DCGM_FI_DEV_GPU_TEMP" || s.name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" {
				now = append(now, s.name+s.labels.DropReserved(func(name string) bool { return name == model.MetricNameLabel }).String())
			}
		}
		slices.Sort(now)
		switch {
		case len(now) != 2*len(allGPUs):
			return fmt.Errorf("%d series of %d GPUs, want 2 of each: %q", len(now), len(allGPUs), now)
		case first == nil:
			first = now
		case !slices.Equal(first, now):
			return fmt.Errorf("series %q, before they were %q", now, first)
		}
		return nil
	}
}

// laterLibrary: NVML serves until DCGM is installed; then NVML is released.
func (n *twoNode) laterLibrary(t *testing.T) {
	n.install(t)
	n.await(t, "8 GPUs by DCGM", by("dcgm"), is(41, "DCGM_FI_DEV_GPU_TEMP", "gpu", "3", "UUID", nvmltest.UUID(3)))
	testkit.Times(t, 1, n.Output(), "open DCGM")
	n.resting(t)
}

// pause: while profiling is paused, the engine watches no profiling field; other fields are read.
func (n *twoNode) pause(t *testing.T) {
	const profiling = "DCGM_FI_PROF_SM_ACTIVE"
	n.await(t, "profiling", count(8, profiling))
	watches := n.dcgm.Counts().Watches
	for _, step := range []struct {
		path, answer    string
		series, watches int
	}{{"/-/profiling/pause", "paused", 0, watches - 1}, {"/-/profiling/resume", "resumed", 8, watches}} {
		testkit.Equal(t, step.path, step.answer, n.post(t, step.path))
		n.await(t, step.answer, by("dcgm"), count(step.series, profiling), func(page) error {
			if got := n.dcgm.Counts().Watches; got != step.watches {
				return fmt.Errorf("%d watches, want %d", got, step.watches)
			}
			return nil
		})
	}
}

// engineStalls lets NVML take the GPUs and give them back, with a list that changes during the switch. New fields
// come from the next supplier; removed fields are gone from both.
func (n *twoNode) engineStalls(t *testing.T) {
	write(t, n.csv, takeoverCSV+clockRow)
	n.Signal(t, syscall.SIGHUP)
	n.dcgm.Freeze(dcgmtest.Everything())
	n.await(t, "the longer list by NVML", count(8, clock), by("nvml"))
	write(t, n.csv, takeoverCSV)
	n.Signal(t, syscall.SIGHUP)
	n.dcgm.Thaw(dcgmtest.Everything())
	n.await(t, "the shorter list by DCGM", count(0, clock), by("dcgm"))
	n.resting(t)
}

// engineEnds: an engine ends, comes back, and hangs. XIDs of both libraries are counted.
func (n *twoNode) engineEnds(t *testing.T) {
	told := is(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", "48")
	n.dcgm.XID(2, 48)
	n.await(t, "an XID told by DCGM", told)
	n.dcgm.Stop(-21)
	n.await(t, "8 GPUs by NVML without an engine", by("nvml"))
	n.nvml.XID(2, 63)
	n.await(t, "XIDs told by both", told, is(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", "63"))
	n.Signal(t, syscall.SIGHUP)
	n.dcgm.Start()
	n.await(t, "8 GPUs by DCGM again", by("dcgm"))
	let := n.dcgm.Hang("dcgmEntitiesGetLatestValues")
	n.await(t, "8 GPUs by NVML while a call hangs", by("nvml"))
	let()
	n.await(t, "8 GPUs by DCGM at last", by("dcgm"))
	n.resting(t)
}

// killed: children are killed between an XID and its row, or just after. The engine keeps the XID for the next child. The
// driver does not: each XID is counted, or a gap of that GPU.
func (n *twoNode) killed(t *testing.T) {
	kill := func(i int) {
		time.Sleep(time.Duration(i) * 25 * time.Millisecond) // the row comes within 100 ms
		for _, pid := range n.children(t) {
			must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	for i := range 6 {
		n.dcgm.XID(5, 74)
		kill(i)
		n.await(t, "each XID once", is(float64(i+1), "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "5", "xid", "74"), by("dcgm"))
	}
	n.dcgm.Stop(-21)
	for i := range 6 {
		n.await(t, "8 GPUs by NVML", by("nvml"))
		n.nvml.XID(5, 64)
		kill(i)
		n.await(t, "each XID, or a gap", func(p page) error {
			counted, _ := p.one("DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "5", "xid", "64")
			gaps, _ := p.one("warpgauge_event_gaps_total", "collector", "nvml", "gpu", "5")
			if counted > float64(i+1) || counted+gaps < float64(i+1) {
				return fmt.Errorf("%v XIDs and %v gaps, want %d", counted, gaps, i+1)
			}
			return nil
		})
	}
	n.dcgm.Start()
	n.await(t, "8 GPUs by DCGM", by("dcgm"))
}

// lateValues: in DCGM's rhythm values are up to two intervals old. A faster field in the list changes nothing.
func (n *twoNode) lateValues(t *testing.T) {
	n.dcgm.Behave("late", 900)
	write(t, n.csv, takeoverCSV+"DCGM_FI_DEV_SM_CLOCK, gauge, Clock., interval=100ms\n")
	n.Signal(t, syscall.SIGHUP)
	rows := testkit.Get(n.await(t, "the faster field", count(8, clock), by("dcgm")).one("warpgauge_accumulate_rows_total"))(t)
	n.await(t, "80 rows later", by("dcgm"), is(0, "warpgauge_gpu_takeovers_total", "collector", "nvml"), func(p page) error {
		if now, err := p.one("warpgauge_accumulate_rows_total"); err != nil || now < rows+80 {
			return fmt.Errorf("%v rows, %w", now, err)
		}
		return nil
	})
}

// hungInEngine: a GPU hangs and blocks the whole engine. NVML reports that GPU and keeps the others
// current.
func (n *twoNode) hungInEngine(t *testing.T) {
	n.nvml.Hang(3, nvmltest.Every)
	n.dcgm.Freeze(dcgmtest.Everything())
	n.await(t, "the healthy GPUs by NVML, and the one that hangs", otherGPUs,
		is(1, "warpgauge_device_state", "collector", "nvml", "gpu", hungGPU, "state", "stalled"),
		is(1, "warpgauge_device_state", "collector", "dcgm", "gpu", hungGPU, "state", "stalled"))
	n.othersAdvance(t)
	n.Signal(t, syscall.SIGHUP)
	n.nvml.Clear(3)
	n.dcgm.Thaw(dcgmtest.Everything())
	n.await(t, "8 GPUs by DCGM again", by("dcgm"))
	n.resting(t)
}

// releases: a released library stays released, active or not.
func (n *twoNode) releases(t *testing.T) {
	// With everything released, DCGM's end does not start NVML.
	n.post(t, "/-/release")
	must(t, gpus()(n.scrape(t, acceptText)))
	n.free(t)
	n.await(t, "both released", is(1, "warpgauge_collector_problem", "collector", "nvml", "cause", "released"),
		is(1, "warpgauge_collector_problem", "collector", "dcgm", "cause", "released"))
	n.post(t, "/-/resume")
	n.await(t, "8 GPUs by DCGM", by("dcgm"))
	n.resting(t)
	// With only DCGM released, NVML takes the GPUs.
	n.post(t, "/-/release?collector=dcgm")
	n.await(t, "8 GPUs by NVML", by("nvml"))
	n.post(t, "/-/resume?collector=dcgm")
	n.await(t, "8 GPUs by DCGM", by("dcgm"))
	n.resting(t)
	// NVML is released while it rests; after a resume it rests again.
	n.post(t, "/-/release?collector=nvml")
	n.post(t, "/-/resume?collector=nvml")
	n.resting(t)
}
