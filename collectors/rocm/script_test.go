//go:build linux && cgo

package rocm

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/rocm/rocmtest/scripttest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// Under the script the installed library itself, no copy of it, and this
// project's reader find the machine's GPUs where they look for them, whatever the
// board and its partitions, and say the same of them while the values move.
func TestScript(t *testing.T) {
	s := scripttest.New(t, "rocmtest")
	smitest.Installed(t)
	for _, c := range []struct {
		name      string
		instances int
		options   []string
	}{
		{"MI250X deferred errors", 1, []string{"-m", "mi250x", "-d"}},
		{"MI300X", 1, []string{"-m", "mi300x"}},
		{"MI300X DPX", 2, []string{"-m", "mi300x", "-f", "1.9", "-x", "DPX", "-N", "NPS1"}},
		{"MI300X CPX", 8, []string{"-m", "mi300x", "-f", "1.8", "-x", "CPX", "-N", "NPS4", "-d"}},
		{"Radeon", 1, []string{"-m", "rx7900", "-b"}},
		{"APU", 1, []string{"-m", "apu", "-b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			options := append([]string{"-n", "3", "-i", "20", "-p", "4711:1:1048576:3"}, c.options...)
			s.Run(t, "TestUnderScript", strconv.Itoa(c.instances), options...)
		})
	}
}

// TestUnderScript is what TestScript has the script run.
func TestUnderScript(t *testing.T) {
	instances, err := strconv.Atoi(scripttest.Inside(t))
	if err != nil {
		t.Fatal(err)
	}
	m := stopMover(t)
	fields := collectortest.Fields()
	files := mustOpen(t, Options{Source: SourceSysfs}, fields)
	library := mustOpen(t, Options{Source: SourceSMI}, fields)
	if len(files.sources) != 3 || len(library.sources) != 3 {
		t.Fatalf("%d and %d GPUs, want 3", len(files.sources), len(library.sources))
	}
	for i, s := range files.sources {
		if diff := cmp.Diff(columnsOf(s), columnsOf(library.sources[i])); diff != "" {
			t.Errorf("source %d: columns of /sys and of the library (-sys +library):\n%s", i, diff)
		}
		if diff := cmp.Diff(s.Devices(), library.sources[i].Devices()); diff != "" {
			t.Errorf("source %d: devices (-sys +library):\n%s", i, diff)
		}
		if _, ok := library.sources[i].(*source).reader.(*smiReader); !ok {
			t.Errorf("source %d is not read through the library", i)
		}
		want := instances
		if instances == 1 {
			want = 0 // the GPU itself
		}
		if got := count(s.Devices(), field.Instance); got != want {
			t.Errorf("source %d: %d partitions, want %d", i, got, want)
		}
	}
	for range 5 {
		files.sample()
		library.sample()
		for i := range files.rows {
			sameRows(t, files, library, i)
			compareFiles(t, files, i)
		}
		m.step()
	}
	if asked := library.sources[0].(collector.CallMeter).Calls(); len(asked) < 5 {
		t.Errorf("the library was asked for %v only", asked)
	}
}

func count(devices []collector.Device, level field.Level) (n int) {
	for _, d := range devices {
		if d.Level == level {
			n++
		}
	}
	return n
}

func sameRows(t *testing.T, files, library *opened, i int) {
	t.Helper()
	for j, v := range files.rows[i] {
		if got := library.rows[i][j]; !same(got, v) {
			t.Errorf("source %d, %s: library %v, /sys %v", i, columnsOf(files.sources[i])[j], got, v)
		}
	}
}

// compareFiles compares values with the files that they are from, read the plain way.
// Others may be of another moment: the mover may have been stopped between two.
func compareFiles(t *testing.T, files *opened, i int) {
	t.Helper()
	d := files.sources[i].Devices()[0]
	for name, f := range map[string]struct {
		file string
		unit float64
	}{
		"DCGM_FI_DEV_GPU_UTIL": {"gpu_busy_percent", 1},
		"DCGM_FI_DEV_FB_USED":  {"mem_info_vram_used", 1 << 20},
	} {
		text, err := os.ReadFile(filepath.Join("/sys/class/drm", d.Node, "device", f.file))
		if err != nil {
			t.Fatal(err)
		}
		want, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := files.value(d.ID, name, ""); !ok || !same(got, math.Round(want/f.unit)) {
			t.Errorf("source %d: %s = %v, %v; the file says %v", i, name, got, ok, want)
		}
	}
}
