package exporter

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/collectors/fake"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// processesOn returns the number of processes by device id, in the newest rows.
func processesOn(t *testing.T, v *view.View) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, s := range v.Sources {
		starts := testkit.Get(collector.ProcessBlocks(len(s.Devices), s.Columns))(t)
		var row ring.Row
		if !s.Ring.Latest(&row) {
			continue
		}
		for i, d := range s.Devices {
			if starts[i] >= 0 {
				_, out[d.ID] = collector.GetProcesses(nil, row.Cells[starts[i]:][:collector.ProcessWidth])
			}
		}
	}
	return out
}

// TestProcessesBesideACollector: processes have their own board, their devices are reported once, lists do
// not concern them, and they start and stop with their collector.
func TestProcessesBesideACollector(t *testing.T) {
	spec := testkit.Get(fake.LoadSpec(tempFile(t, "spec.yaml",
		"processes: [{device: 0-3, pid: 1, memory: 5}, {device: 2, pid: 2}]\n")))(t)
	a, cfg := newProgram(t, fake.Options{Spec: spec}, "--kubernetes", "--kubernetes-virtual-gpus", "-c", "100")
	synctest.Test(t, func(t *testing.T) {
		all := testkit.Get(a.Collectors(cfg, zap.NewNop()))(t)
		list := parse(t, "DCGM_FI_DEV_GPU_TEMP, gauge, t\n")
		reg := prometheus.NewPedanticRegistry()
		opens := func(collector string) (n float64) {
			families := testkit.Get(reg.Gather())(t)
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if l := m.GetLabel(); f.GetName() == "warpgauge_collector_opens_total" && l[0].GetValue() == collector && l[1].GetValue() == "success" {
						n = m.GetCounter().GetValue()
					}
				}
			}
			return n
		}
		e := a.NewEngine(cfg, all, list, reg, zap.NewNop())
		testkit.Start(t, e.Run)
		time.Sleep(3 * time.Second)

		there := func(what string, devices, gpu2 int) {
			t.Helper()
			on := processesOn(t, e.Processes().Load())
			testkit.Equal(t, what+": devices with processes", devices, len(on))
			for _, s := range e.Processes().Load().Sources {
				testkit.Equal(t, what+": source", "fake-processes", s.Collector)
				if s.Devices[0].GPU == "2" && on[s.Devices[0].ID] != gpu2 {
					t.Errorf("%s: %d processes on GPU 2, want %d", what, on[s.Devices[0].ID], gpu2)
				}
			}
			if devices > 0 && len(on) > 0 {
				for _, d := range e.Status()[0].Devices {
					_, known := on[d.Device.ID]
					testkit.ErrorIf(t, d.Device.Level == field.GPU && !known, "%s: device %q is not among those with processes", what, d.Device.ID)
				}
			}
		}
		there("running", 8, 2)
		for _, s := range e.Board().Load().Sources {
			testkit.Equal(t, "source on the page's board", "fake", s.Collector)
		}
		if st := e.Status(); len(st) != 1 || st[0].Name != "fake" || len(notReady(st)) > 0 {
			t.Errorf("status: %d collectors, not ready: %v", len(st), notReady(st))
		}
		other := parse(t, "DCGM_FI_DEV_POWER_USAGE, gauge, p\n")
		must(t, e.Reload(t.Context(), other))
		devices, processes := opens("fake"), opens("fake-processes")
		testkit.ErrorIf(t, devices != 2 || processes != 1, "after another list the devices were opened %v times and the processes %v times, want 2 and 1", devices, processes)
		must(t, <-e.Standby("fake", true))
		there("while another serves the GPUs", 8, 2)
		must(t, <-e.Standby("fake", false))

		for _, name := range []string{"fake", ""} {
			must(t, e.Release(t.Context(), name))
			there("released", 0, 0)
			testkit.Equal(t, "released", session.CauseReleased, e.Status()[0].Cause)
			e.Resume(name)
			time.Sleep(3 * time.Second)
			there("resumed", 8, 2)
		}
	})
}

// viewer is an extension that shows processes.
type viewer struct{ Extension }

func (viewer) ViewsProcesses() bool { return true }

// TestProcessesOnlyWhereWanted also finds out why a child process is started.
func TestProcessesOnlyWhereWanted(t *testing.T) {
	f := func(want bool, extensions []Extension, args ...string) {
		t.Helper()
		a, cfg := newProgram(t, fake.Options{}, args...)
		a.Extensions = extensions
		all := testkit.Get(a.Collectors(cfg, zap.NewNop()))(t)
		testkit.Equal(t, fmt.Sprintf("%q: processes are read", args), want, all[0].Processes != nil)
	}
	f(false, nil)
	f(false, nil, "--kubernetes")
	f(false, nil, "--kubernetes-virtual-gpus")
	f(true, nil, "--kubernetes", "--kubernetes-virtual-gpus")
	f(true, nil, "--kubernetes", "--process-values=true")
	f(false, nil, "--kubernetes", "--kubernetes-virtual-gpus", "--process-values=false")
	f(true, []Extension{viewer{}})

	a, cfg := newProgram(t, fake.Options{})
	for name, known := range map[string]bool{"fake": true, "fake-processes": true, "nvml": false} {
		factory, err := a.childFactory(cfg, name, time.Now(), zap.NewNop())
		testkit.ErrorIf(t, (err == nil) != known || known && factory().Name() != name, "%s: error %v", name, err)
	}
}
