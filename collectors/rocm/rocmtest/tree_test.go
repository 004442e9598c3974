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

// TestMetricsSizes checks the files' sizes against the kernel's structures in a C compiler's layout.
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

// TestBuildRefuses checks that Build returns an error for an impossible node.
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

func TestValuesMove(t *testing.T) {
	tr := NewTree(t, Options{})
	g := tr.GPUs[0]
	seen := map[string]bool{}
	for range 10 {
		seen[read(t, g.Path("gpu_busy_percent"))] = true
		before := g.State
		tr.Step(t, time.Second)
		if g.State.Energy <= before.Energy || g.State.Nanos != before.Nanos+1e9 {
			t.Fatalf("counters do not move: %+v", g.State)
		}
	}
	if len(seen) < 8 {
		t.Errorf("ten steps show only %v", seen)
	}
	g.Update(t, func(s *State) { s.JunctionC = 91 })
	if got := read(t, g.Path("hwmon/temp2_input")); got != "91000" {
		t.Errorf("temp2_input = %q", got)
	}
	g.Set(t, "gpu_busy_percent", "")
	tr.Step(t, time.Second)
	if got := read(t, g.Path("gpu_busy_percent")); got != "" {
		t.Errorf("a file that the test has taken over says %q", got)
	}
	g.Reset(t, "gpu_busy_percent")
	if got, want := read(t, g.Path("gpu_busy_percent")), fmt.Sprint(g.State.Util); got != want {
		t.Errorf("after Reset %q, want %q", got, want)
	}
}

func TestProcess(t *testing.T) {
	tr := NewTree(t, Options{})
	tr.Start(t, Process{PID: 4711, Uses: []Use{{GPU: 1, VRAM: 1 << 30, CUs: 55}}})
	dir := tr.Path("class/kfd/kfd/proc/4711")
	used, idle := tr.GPUs[1].Instances[0].KFD, tr.GPUs[0].Instances[0].KFD
	for name, want := range map[string]string{
		fmt.Sprintf("vram_%d", used): "1073741824", fmt.Sprintf("stats_%d/cu_occupancy", used): "55",
		fmt.Sprintf("vram_%d", idle): "0", fmt.Sprintf("sdma_%d", idle): "0",
	} {
		if got := read(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	tr.End(t, 4711)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after End: %v", err)
	}
}
