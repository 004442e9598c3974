//go:build linux && cgo

package main_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/eventually"
)

// TestE2ETakeover runs the real binary on a simulated DCGM and a simulated NVML
// that have the same GPUs, and takes one of them away after the other. Every page
// of that time is looked at: each GPU is there once, and no counter goes back.
func TestE2ETakeover(t *testing.T) {
	t.Parallel()
	exe := build(t)
	var all sync.WaitGroup // they wait more than they work: more at once than t.Parallel allows
	defer all.Wait()
	for _, isolation := range []string{"process", "none"} {
		for name, run := range map[string]func(*testing.T, *twoNode){
			"LaterLibrary": testLaterLibrary,
			"HungGPU":      testHungInEngine,
			"Restart":      testEngineRestart,
			"NewList":      testNewList,
			"Alone":        testDCGMAlone,
			"Part":         testGPUsOfNVMLOnly,
			"Release":      testReleaseOfBoth,
		} {
			all.Go(func() {
				t.Run(isolation+"/"+name, func(t *testing.T) { run(t, &twoNode{exe: exe, isolation: isolation}) })
			})
		}
	}
}

// energyBase and energySlope are of a counter that both libraries count alike.
const (
	energyBase  = 5_000_000_000.0 // mJ
	energySlope = 350_000.0       // mJ/s
)

const takeoverCSV = `DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.
DCGM_FI_DEV_XID_ERRORS, gauge, Last XID.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since start.
`

// twoNode is a node with both libraries and the exporter on it.
type twoNode struct {
	*exporter
	exe, isolation string
	nvml           *nvmltest.Node
	dcgm           *dcgmtest.Engine
	library, csv   string // of DCGM; the list
}

func (n *twoNode) prepare(t *testing.T) {
	t.Helper()
	n.library = filepath.Join(t.TempDir(), "libdcgm.so.4")
	n.csv = file(t, "counters.csv", takeoverCSV)
	var err error
	if n.nvml, err = nvmltest.Write(t.TempDir(), nvmltest.Config{}, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.check(t, n.nvml.Close()) })
	n.nvml.Set(nvmltest.Host, "energy", fmt.Sprintf("%.0f + %.0f * t", energyBase, energySlope))
	n.nvml.Set(nvmltest.Host, "temperature", "71")
}

// install makes DCGM appear.
func (n *twoNode) install(t *testing.T, c dcgmtest.Config) {
	t.Helper()
	var err error
	if n.dcgm, err = dcgmtest.Write(t.TempDir(), c, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.check(t, n.dcgm.Close()) })
	base := energyBase + energySlope*n.nvml.Now()
	for gpu := range allGPUs {
		n.dcgm.Set(dcgmtest.GPU(gpu), 156, dcgmtest.Ramp(base, energySlope))
		n.dcgm.Set(dcgmtest.GPU(gpu), 150, dcgmtest.Number(41))
	}
	for _, suffix := range []string{".node", ""} { // what names its script is there before it is
		n.check(t, os.Link(n.dcgm.Library()+suffix, n.library+suffix))
	}
}

func (*twoNode) check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func (n *twoNode) start(t *testing.T, args ...string) {
	t.Helper()
	n.exporter = serve(t, n.exe, append([]string{
		"--enable-only=nvml,dcgm", "--enable-nvml=true", "--enable-dcgm=true", "--nvml-library=" + n.nvml.Library(), "--dcgm-library=" + n.library,
		"--remote-hostengine-info=localhost:5555", "--isolation=" + n.isolation, "--collect-interval=100", "--slow-interval=500ms",
		"--stale-after=4s", "--collector-restart-max=1s", "--sample-deadline=2s", "-f", n.csv,
	}, args...)...)
}

// page waits for a page that f has nothing to object to.
func (n *twoNode) page(t *testing.T, what string, f func(page) error) (p page) {
	t.Helper()
	eventually.OK(t, what, func() error {
		p = n.scrape(t, acceptText)
		return f(p)
	})
	return p
}

// by wants all values to be those of one library.
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

// resting wants NVML to hold nothing.
func (n *twoNode) resting(t *testing.T) {
	t.Helper()
	n.page(t, "NVML at rest", func(p page) error {
		return p.want(1, "warpgauge_collector_problem", "collector", "nvml", "cause", "standby")
	})
	n.free(t)
}

// free wants none of NVML's devices to be open, nor a child of it to be there.
func (n *twoNode) free(t *testing.T) {
	t.Helper()
	eventually.OK(t, "nothing of NVML held", func() error {
		if held := n.holds(t, filepath.Join(n.nvml.Root(), "dev")); len(held) > 0 {
			return fmt.Errorf("open: %v", held)
		}
		if c := n.children(t); n.isolation == "process" && len(c) > 1 {
			return fmt.Errorf("children: %v", c)
		}
		return nil
	})
}

// sameSeries wants the same series of what both libraries supply on every page, one
// for each GPU: whichever supplies it, Prometheus sees one series that continues.
func sameSeries() func(map[string]float64) error {
	var first []string
	return func(page map[string]float64) error {
		var now []string
		for series := range page {
			if strings.HasPrefix(series, "DCGM_FI_DEV_GPU_TEMP{") || strings.HasPrefix(series, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION") {
				now = append(now, strings.Replace(series, "_total{", "{", 1)) // OpenMetrics has a suffix for counters
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

// testLaterLibrary: NVML serves until DCGM is installed; then NVML is released. The
// engine stalls: NVML has the GPUs again, and gives them back.
func testLaterLibrary(t *testing.T, n *twoNode) {
	n.prepare(t)
	n.start(t)
	n.page(t, "8 GPUs by NVML", by("nvml"))
	w := watch(t, n.exporter, sameSeries())
	n.page(t, "the reason why DCGM is not there", func(p page) error {
		return p.want(0, "warpgauge_collector_up", "collector", "dcgm")
	})
	n.install(t, dcgmtest.Config{})
	n.page(t, "8 GPUs by DCGM", by("dcgm"))
	if got := strings.Count(n.Output(), "open DCGM"); got != 1 {
		t.Errorf("the log says %d times that DCGM is not there, want once", got)
	}
	n.resting(t)
	n.Signal(t, syscall.SIGHUP)
	n.dcgm.Freeze(dcgmtest.Everything())
	n.page(t, "8 GPUs by NVML while the engine stalls", by("nvml"))
	n.page(t, "the state of the stalled GPUs", func(p page) error {
		return p.want(1, "warpgauge_device_state", "collector", "dcgm", "gpu", "3", "state", "stalled")
	})
	n.Signal(t, syscall.SIGHUP)
	n.dcgm.Thaw(dcgmtest.Everything())
	n.page(t, "8 GPUs by DCGM again", by("dcgm"))
	n.resting(t)
	w.stop(t)
}

// testHungInEngine: a GPU hangs, and with it everything in the engine. NVML names
// it and keeps the others fresh.
func testHungInEngine(t *testing.T, n *twoNode) {
	n.prepare(t)
	n.install(t, dcgmtest.Config{})
	n.start(t)
	n.page(t, "8 GPUs by DCGM", by("dcgm"))
	n.resting(t)
	n.nvml.Hang(3, nvmltest.Every)
	n.dcgm.Freeze(dcgmtest.Everything())
	n.page(t, "the healthy GPUs by NVML", gpus("0", "1", "2", "4", "5", "6", "7"))
	n.page(t, "the GPU that hangs, by its number", func(p page) error {
		return p.want(1, "warpgauge_device_state", "collector", "nvml", "gpu", "3", "state", "stalled")
	})
	testOthersAdvance(t, n.exporter)
	n.Signal(t, syscall.SIGHUP)
	n.nvml.Clear(3)
	n.dcgm.Thaw(dcgmtest.Everything())
	n.page(t, "8 GPUs by DCGM again", by("dcgm"))
	n.resting(t)
}

// testEngineRestart: an engine that is gone, comes back, and one that hangs.
func testEngineRestart(t *testing.T, n *twoNode) {
	n.prepare(t)
	n.install(t, dcgmtest.Config{})
	n.start(t)
	n.page(t, "8 GPUs by DCGM", by("dcgm"))
	n.resting(t)
	w := watch(t, n.exporter, sameSeries())
	n.dcgm.XID(2, 48)
	n.page(t, "an XID told by DCGM", func(p page) error {
		return p.want(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", "48")
	})
	n.dcgm.Stop(-21)
	n.page(t, "8 GPUs by NVML without an engine", by("nvml"))
	n.nvml.XID(2, 63)
	n.page(t, "XIDs told by both", func(p page) error {
		return errors.Join(p.want(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", "48"),
			p.want(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", "63"))
	})
	n.Signal(t, syscall.SIGHUP)
	n.dcgm.Start()
	n.page(t, "8 GPUs by DCGM again", by("dcgm"))
	n.resting(t)
	let := n.dcgm.Hang("dcgmEntitiesGetLatestValues")
	n.page(t, "8 GPUs by NVML while a call hangs", by("nvml"))
	let()
	n.page(t, "8 GPUs by DCGM at last", by("dcgm"))
	w.stop(t)
}

// testNewList: the list changes at the moment at which the speaker does. What is new
// comes from the next one, what is gone from the list is gone with both.
func testNewList(t *testing.T, n *twoNode) {
	n.prepare(t)
	n.install(t, dcgmtest.Config{})
	n.start(t, "--sample-deadline=10s") // longer than it takes to see that an engine stalls
	n.page(t, "8 GPUs by DCGM", by("dcgm"))
	n.resting(t)
	w := watch(t, n.exporter, sameSeries())
	const clock = "DCGM_FI_DEV_SM_CLOCK"
	clocks := func(want int, whose func(page) error) func(page) error {
		return func(p page) error {
			if got := len(p.values(clock)); got != want {
				return errors.Join(fmt.Errorf("%d GPUs have a clock, want %d", got, want), whose(p))
			}
			return whose(p)
		}
	}
	for _, engine := range []struct{ ends, begins func() }{
		{func() { n.dcgm.Freeze(dcgmtest.Everything()) }, func() { n.dcgm.Thaw(dcgmtest.Everything()) }},
		{func() { n.dcgm.Stop(-21) }, n.dcgm.Start},
	} {
		for range 2 {
			write(t, n.csv, takeoverCSV+clock+", gauge, Clock.\n")
			n.Signal(t, syscall.SIGHUP)
			engine.ends()
			n.page(t, "the longer list by NVML", clocks(len(allGPUs), by("nvml")))
			write(t, n.csv, takeoverCSV)
			n.Signal(t, syscall.SIGHUP)
			engine.begins()
			n.page(t, "the shorter list by DCGM", clocks(0, by("dcgm")))
		}
	}
	n.resting(t)
	w.stop(t)
}

// testDCGMAlone: without NVML the page says what it does not know.
func testDCGMAlone(t *testing.T, n *twoNode) {
	n.prepare(t)
	n.install(t, dcgmtest.Config{})
	n.start(t, "--enable-nvml=false")
	n.page(t, "8 GPUs", eightGPUs)
	n.dcgm.Freeze(dcgmtest.Everything())
	n.page(t, "8 stalled GPUs, and nothing frozen on the page", func(p page) error {
		return errors.Join(gpus()(p), p.want(1, "warpgauge_device_state", "gpu", "3", "state", "stalled"))
	})
	n.dcgm.Thaw(dcgmtest.Everything())
	n.page(t, "8 GPUs again", eightGPUs)
	n.dcgm.Stop(-21)
	n.page(t, "no GPUs without an engine", gpus())
	n.dcgm.Start()
	n.page(t, "8 GPUs with the engine back", eightGPUs)
}

// testGPUsOfNVMLOnly: GPUs that DCGM does not list stay with NVML.
func testGPUsOfNVMLOnly(t *testing.T, n *twoNode) {
	n.prepare(t)
	n.install(t, dcgmtest.Config{GPUs: 6})
	n.start(t)
	shared := func(p page) error {
		for gpu, v := range p.values("DCGM_FI_DEV_GPU_TEMP") {
			if want := map[bool]float64{true: 41, false: 71}[gpu < "6"]; v != want {
				return fmt.Errorf("GPU %s has %v, want %v", gpu, v, want)
			}
		}
		return eightGPUs(p)
	}
	n.page(t, "6 GPUs by DCGM and 2 by NVML", shared)
	w := watch(t, n.exporter, sameSeries())
	w.await(t, 50)
	w.stop(t)
	n.page(t, "NVML in use", func(p page) error {
		return errors.Join(shared(p), p.want(1, "warpgauge_collector_up", "collector", "nvml"))
	})
}

// testReleaseOfBoth: what is released stays so, whichever rests.
func testReleaseOfBoth(t *testing.T, n *twoNode) {
	n.prepare(t)
	n.install(t, dcgmtest.Config{})
	n.start(t, "--enable-release-endpoint")
	client := newClient(t)
	n.page(t, "8 GPUs by DCGM", by("dcgm"))
	n.resting(t)
	post := func(path string) {
		t.Helper()
		if a := request(t, client, "POST", n.url+path); a.code != 200 {
			t.Fatalf("POST %s: %d %s", path, a.code, a.body)
		}
	}
	// All is released: nothing wakes NVML because DCGM has gone.
	post("/-/release")
	if err := gpus()(n.scrape(t, acceptText)); err != nil {
		t.Error(err)
	}
	n.free(t)
	if c := n.dcgm.Counts(); c.Connections != 0 && n.isolation == "none" {
		t.Errorf("held of DCGM: %+v", c)
	}
	n.page(t, "both released", func(p page) error {
		return errors.Join(p.want(1, "warpgauge_collector_problem", "collector", "nvml", "cause", "released"),
			p.want(1, "warpgauge_collector_problem", "collector", "dcgm", "cause", "released"))
	})
	post("/-/resume")
	n.page(t, "8 GPUs by DCGM", by("dcgm"))
	n.resting(t)
	// DCGM alone is released: NVML has the GPUs for that time.
	post("/-/release?collector=dcgm")
	n.page(t, "8 GPUs by NVML", by("nvml"))
	post("/-/resume?collector=dcgm")
	n.page(t, "8 GPUs by DCGM", by("dcgm"))
	n.resting(t)
	// NVML is released while it rests; a resume leaves it at rest.
	post("/-/release?collector=nvml")
	post("/-/resume?collector=nvml")
	n.resting(t)
}
