//go:build linux && cgo

package rocm

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// TestConformanceWithLibrary runs the whole suite with the installed library on a simulated tree.
func TestConformanceWithLibrary(t *testing.T) {
	smitest.Installed(t)
	collectortest.Run(t, collectortest.Harness{Name: "rocm", New: func(tb testing.TB) collectortest.Rig {
		tb.Helper()
		of := rocmtest.Options{Model: rocmtest.MI250X}
		tree := rocmtest.NewTree(tb, of)
		installed := smitest.NewReal(tb, tree)
		tb.Chdir(installed.Dir) // its paths are relative
		r := rigOn(tb, tree, of, Options{Source: SourceSMI, Library: installed.Path})
		r.FailOpen = nil // the library's working directory is in the tree
		// A second rsmi_init waits for the hanging call; production kills the child
		// process instead. TestSMICallHangs checks the other GPUs.
		r.Hang = nil
		return r
	}})
}

// TestReadersAgreeOnThePage checks that both readers give the same columns and the same changing values.
func TestReadersAgreeOnThePage(t *testing.T) {
	for name, o := range map[string]rocmtest.Options{
		"MI250X":     {Model: rocmtest.MI250X, Deferred: true},
		"MI300X":     {Model: rocmtest.MI300X, Metrics: "1.7"},
		"MI300X DPX": {Model: rocmtest.MI300X, Partition: "DPX"},
		"MI300X CPX": {Model: rocmtest.MI300X, Partition: "CPX", Memory: "NPS4"},
		"Radeon":     {Model: rocmtest.RX7900, NoBMC: true},
		"APU":        {Model: rocmtest.APU},
	} {
		t.Run(name, func(t *testing.T) {
			tree := rocmtest.NewTree(t, o)
			tree.Start(t, rocmtest.Process{PID: 4711, Uses: []rocmtest.Use{{GPU: 1, VRAM: 3 << 30, CUs: 19}}})
			installed := smitest.NewReal(t, tree).Enter(t)
			files := mustOpen(t, Options{Root: tree.Root, Source: SourceSysfs}, collectortest.Fields())
			library := mustOpen(t, Options{Root: tree.Root, Source: SourceSMI, Library: installed.Path}, collectortest.Fields())
			for i := range files.sources {
				testkit.Equal(t, fmt.Sprintf("source %d: columns of the library, as of /sys", i), columnsOf(files.sources[i]), columnsOf(library.sources[i]))
				testkit.Equal(t, fmt.Sprintf("source %d: devices of the library, as of /sys", i), files.sources[i].Devices(), library.sources[i].Devices())
				_, ok := library.sources[i].(*source).reader.(*smiReader)
				testkit.ErrorIf(t, !ok, "source %d is not read through the library", i)
			}
			for range 12 {
				files.sample()
				library.sample()
				for i := range files.rows {
					for j, v := range files.rows[i] {
						if got := library.rows[i][j]; !same(got, v) {
							t.Errorf("source %d, %s: library %v, /sys %v", i, columnsOf(files.sources[i])[j], got, v)
						}
					}
				}
				tree.Step(t, 700*time.Millisecond)
			}
			asked := library.sources[0].(collector.CallMeter).Calls()
			testkit.ErrorIf(t, len(asked) < 5, "the library was asked for %v only", asked)
		})
	}
}

func columnsOf(s collector.Source) []string {
	var out []string
	for _, c := range s.Columns() {
		d, _ := field.ByID(c.Field)
		out = append(out, strings.Join([]string{s.Devices()[c.Device].ID, d.Name, text(c.Labels)}, " "))
	}
	return out
}

// TestWithoutLibrary checks that a missing library is an error only with SourceSMI.
func TestWithoutLibrary(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{})
	nowhere := filepath.Join(t.TempDir(), "librocm_smi64.so")
	for _, source := range []string{"", "auto", SourceSysfs} {
		o := mustOpen(t, Options{Root: tree.Root, Source: source, Library: nowhere}, list(t, "DCGM_FI_DEV_GPU_UTIL, gauge, u"))
		o.sample()
		v, ok := o.value(uuidOf(tree.GPUs[1]), "DCGM_FI_DEV_GPU_UTIL", "")
		testkit.ErrorIf(t, !ok || v != float64(tree.GPUs[1].State.Util), "source %q: utilisation %v, %v, want %d", source, v, ok, tree.GPUs[1].State.Util)
	}
	c := New(Options{Root: tree.Root, Source: SourceSMI, Library: nowhere})
	_, err := c.Open(t.Context(), field.List{})
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrNotLoaded) || !strings.Contains(err.Error(), nowhere), "Open with --rocm-source=smi: %v", err)
	must(t, c.Close())
}
