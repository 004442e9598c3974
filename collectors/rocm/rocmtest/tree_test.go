package rocmtest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Sizes are those of the kernel's structures, as C compilers lay them out.
func TestMetricsSizes(t *testing.T) {
	for revision, want := range map[string]int{
		"1.0": 80, "1.1": 96, "1.2": 104, "1.3": 120, "1.4": 288, "1.5": 360, "1.6": 1664, "1.7": 2208, "1.8": 3872, "1.9": 1150,
		"2.0": 120, "2.1": 120, "2.2": 128, "2.3": 152, "2.4": 168, "3.0": 264,
	} {
		tr := NewTree(t, Options{Model: MI300X, GPUs: 1, Metrics: revision})
		b, err := os.ReadFile(tr.GPUs[0].Path("gpu_metrics"))
		must(t, err)
		if len(b) != want || int(binary.LittleEndian.Uint16(b)) != want || fmt.Sprintf("%d.%d", b[2], b[3]) != revision {
			t.Errorf("revision %s: %d bytes, header % x, want %d", revision, len(b), b[:4], want)
		}
	}
	if _, err := Build(t.TempDir(), Options{Metrics: "1.10"}); err == nil {
		t.Error("no error for a revision that cannot be written")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return strings.TrimRight(string(b), "\n")
}

func TestVanishAndReturn(t *testing.T) {
	for _, mode := range []string{"SPX", "CPX"} {
		tr := NewTree(t, Options{Model: MI300X, Partition: mode})
		before := list(t, tr.Sys())
		g := tr.GPUs[1]
		kept, err := os.Open(g.Path("gpu_busy_percent"))
		must(t, err)
		defer kept.Close()
		g.Vanish(t)
		if n, _ := kept.ReadAt(make([]byte, 8), 0); n != 0 {
			t.Error("an open file still has a value")
		}
		for _, name := range list(t, tr.Sys()) {
			if strings.Contains(name, g.PCI) || strings.HasSuffix(name, "/"+g.Render) {
				t.Errorf("%s: still there: %s", mode, name)
			}
		}
		tr.Step(t, time.Second)
		g.Return(t)
		if got := list(t, tr.Sys()); strings.Join(got, "\n") != strings.Join(before, "\n") {
			t.Errorf("%s: not the same files after it returned", mode)
		}
	}
}

// A node that cannot be is refused, not shown as another.
func TestBuildRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"no compute partition mode":         {Model: MI250X, Partition: "DPX"},
		"no compute partition mode \"TPX\"": {Model: MI300X, Partition: "TPX"},
		"no memory partition mode":          {Model: RX7900, Memory: "NPS1"},
		"17 GPUs":                           {GPUs: 17},
		"suspend GPU 2":                     {Suspended: []int{2}},
		"process 7 on instance 1 of GPU 0":  {Processes: []Process{{PID: 7, Uses: []Use{{Instance: 1}}}}},
		"process 7 on instance 0 of GPU 5":  {Processes: []Process{{PID: 7, Uses: []Use{{GPU: 5}}}}},
		"unknown revision \"1.10\"":         {Metrics: "1.10"},
		"read revision \"new\"":             {Metrics: "new"},
	} {
		if _, err := Build(t.TempDir(), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Build(%+v) = %v, want %s", o, err, name)
		}
	}
	for i, name := range Models() {
		if m, err := ParseModel(name); err != nil || int(m) != i {
			t.Errorf("ParseModel(%q) = %v, %v", name, m, err)
		}
	}
	if _, err := ParseModel("mi9000"); err == nil {
		t.Error("no error for an unknown board")
	}
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		names = append(names, path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return names
}
