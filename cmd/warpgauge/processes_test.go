package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/exporter"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// programOf returns the program of a command line, and its configuration.
func programOf(ctx context.Context, environ []string, args ...string) (*exporter.Program, *config.Config, error) {
	a := newProgram(exporter.Streams{Out: io.Discard, Err: io.Discard}, environ)
	cmd := &cli.Command{Flags: a.Flags.CLI(), Writer: io.Discard, ErrWriter: io.Discard, Action: func(context.Context, *cli.Command) error { return nil }}
	if err := cmd.Run(ctx, append([]string{"warpgauge"}, args...)); err != nil {
		return nil, nil, err
	}
	cfg, err := a.Config()
	return a, cfg, err
}

// wanted is programOf for a test.
func wanted(t *testing.T, args ...string) (*exporter.Program, *config.Config) {
	t.Helper()
	a, cfg, err := programOf(t.Context(), nil, args...)
	must(t, err)
	return a, cfg
}

// processesOn is how many processes each device has, by its id, in the newest rows.
func processesOn(t *testing.T, v *view.View) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, s := range v.Sources {
		starts, err := collector.ProcessBlocks(len(s.Devices), s.Columns)
		must(t, err)
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

// TestProcessesBesideACollector: they have a board of their own, their devices are
// told once, no list concerns them, and they go and come with their collector.
func TestProcessesBesideACollector(t *testing.T) {
	spec := tempFile(t, "spec.yaml", "processes: [{device: 0-3, pid: 1, memory: 5}, {device: 2, pid: 2}]\n")
	a, cfg := wanted(t, simulated("--fake-spec="+spec, "--kubernetes", "--kubernetes-virtual-gpus", "--isolation=none", "-c", "100")...)
	synctest.Test(t, func(t *testing.T) {
		all, err := a.Collectors(cfg, zap.NewNop())
		must(t, err)
		list := parseCSV(t, cfg, "DCGM_FI_DEV_GPU_TEMP, gauge, t\n")
		reg := prometheus.NewPedanticRegistry()
		e := a.NewEngine(cfg, all, list, reg, zap.NewNop())
		done := make(chan error, 1)
		go func() { done <- e.Run(t.Context()) }()
		t.Cleanup(func() { must(t, <-done) })
		time.Sleep(3 * time.Second)

		there := func(what string, devices, gpu2 int) {
			t.Helper()
			on := processesOn(t, e.Processes().Load())
			if len(on) != devices {
				t.Errorf("%s: %d devices with processes, want %d", what, len(on), devices)
			}
			for _, s := range e.Processes().Load().Sources {
				if s.Collector != "fake-processes" {
					t.Errorf("%s: source of %q", what, s.Collector)
				}
				if s.Devices[0].GPU == "2" && on[s.Devices[0].ID] != gpu2 {
					t.Errorf("%s: %d processes on GPU 2, want %d", what, on[s.Devices[0].ID], gpu2)
				}
			}
			if devices > 0 && len(on) > 0 {
				for _, d := range e.Status()[0].Devices {
					if _, known := on[d.Device.ID]; d.Device.Level == field.GPU && !known {
						t.Errorf("%s: device %q is not among those with processes", what, d.Device.ID)
					}
				}
			}
		}
		there("running", 8, 2)
		for _, s := range e.Board().Load().Sources {
			if s.Collector != "fake" {
				t.Errorf("a source of %q is on the page's board", s.Collector)
			}
		}
		if st := e.Status(); len(st) != 1 || st[0].Name != "fake" || len(exporter.NotReady(st)) > 0 {
			t.Errorf("status: %d collectors, not ready: %v", len(st), exporter.NotReady(st))
		}
		wantSeries(t, reg, map[string]float64{
			`warpgauge_collector_up{collector="fake"}`:                                     1,
			`warpgauge_collector_up{collector="fake-processes"}`:                           1,
			`warpgauge_devices{collector="fake-processes",state="up"}`:                     0,
			`warpgauge_collector_opens_total{collector="fake-processes",result="success"}`: 1,
		}, `warpgauge_device_state{collector="fake-processes"`, `warpgauge_sample_age_seconds{collector="fake-processes"`)

		other := parseCSV(t, cfg, "DCGM_FI_DEV_POWER_USAGE, gauge, p\n")
		must(t, e.Reload(t.Context(), other))
		wantSeries(t, reg, map[string]float64{
			`warpgauge_collector_opens_total{collector="fake",result="success"}`:           2,
			`warpgauge_collector_opens_total{collector="fake-processes",result="success"}`: 1,
		})
		must(t, e.Standby(t.Context(), "fake", true))
		there("while another serves the GPUs", 8, 2)
		must(t, e.Standby(t.Context(), "fake", false))

		for _, name := range []string{"fake", ""} {
			must(t, e.Release(t.Context(), name))
			there("released", 0, 0)
			if st := e.Status()[0]; st.Cause != session.CauseReleased {
				t.Errorf("released: %q", st.Cause)
			}
			e.Resume(name)
			time.Sleep(3 * time.Second)
			there("resumed", 8, 2)
		}
	})
}

// wantSeries compares series, and wants none that begin so.
func wantSeries(t *testing.T, g prometheus.Gatherer, want map[string]float64, none ...string) {
	t.Helper()
	families, err := g.Gather()
	must(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
			slices.Sort(labels)
			got[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, v := range want {
		if g, ok := got[name]; !ok || g != v {
			t.Errorf("%s is %v (there: %v), want %v", name, g, ok, v)
		}
	}
	for name := range got {
		if slices.ContainsFunc(none, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			t.Errorf("there is %s", name)
		}
	}
}

// TestProcessesOfSelectedDevices: --devices counts here, too.
func TestProcessesOfSelectedDevices(t *testing.T) {
	a, cfg := wanted(t, simulated("--fake-profile=dgx-a100-mig", "--devices=g:0,5", "--kubernetes", "--kubernetes-virtual-gpus", "--isolation=none")...)
	synctest.Test(t, func(t *testing.T) {
		all, err := a.Collectors(cfg, zap.NewNop())
		must(t, err)
		e := a.NewEngine(cfg, all, field.List{}, nil, zap.NewNop())
		done := make(chan error, 1)
		go func() { done <- e.Run(t.Context()) }()
		t.Cleanup(func() { must(t, <-done) })
		time.Sleep(3 * time.Second)
		var gpus []string
		for _, s := range e.Processes().Load().Sources {
			if _, err := collector.ProcessBlocks(len(s.Devices), s.Columns); err != nil {
				t.Error(err)
			}
			for _, d := range s.Devices {
				gpus = append(gpus, d.GPU+d.Instance.ID)
			}
		}
		if got := strings.Join(gpus, " "); got != "0 5" {
			t.Errorf("devices %q, want those of GPUs 0 and 5 without instances", got)
		}
	})
}

// TestProcessesOnlyWhereWanted also says who tells processes.
func TestProcessesOnlyWhereWanted(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		a, cfg := wanted(t, args...)
		all, err := a.Collectors(cfg, zap.NewNop())
		must(t, err)
		var got []string
		for _, c := range all {
			if c.Processes != nil {
				got = append(got, c.Name+": "+c.Processes().Name())
			}
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
	f("")
	f("", "--kubernetes")
	f("", "--kubernetes-virtual-gpus")
	f("nvml: nvml-processes, rocm: rocm-processes", "--kubernetes", "--kubernetes-virtual-gpus")
	f("nvml: nvml-processes, rocm: rocm-processes", "--kubernetes", "--process-values=true")
	f("", "--kubernetes", "--kubernetes-virtual-gpus", "--process-values=false")
	f("rocm: rocm-processes", "--kubernetes", "--kubernetes-virtual-gpus", "--enable-nvml=false", "--enable-dcgm=true")
	f("nvml: nvml-processes, rocm: rocm-processes, fake: fake-processes", "--kubernetes", "--kubernetes-virtual-gpus", "--enable-fake")
}

// TestTheChildOfProcesses: what a child is started for is found by its name.
func TestTheChildOfProcesses(t *testing.T) {
	f := func(name string, ok bool, args ...string) {
		t.Helper()
		a, cfg := wanted(t, args...)
		factory, err := a.ChildFactory(cfg, name, time.Now(), zap.NewNop())
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && factory().Name() != name {
			t.Errorf("%s: got %q", name, factory().Name())
		}
	}
	f("nvml", true)
	f("nvml-processes", true)
	f("rocm-processes", true)
	f("dcgm-processes", false)
	f("fake-processes", false)
	f("fake-processes", true, "--enable-fake")
	f("fake", true, "--enable-fake")
}
