package sysfs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/rocmtest/scripttest"
)

// The script puts a tree over /sys; this reader, with the ordinary root, finds
// there what a plain read of the files shows, while it moves.
func TestScript(t *testing.T) {
	s := scripttest.New(t, "../../rocmtest")
	for _, c := range []struct {
		instances int
		args      []string
	}{
		{1, []string{"-m", "mi250x"}},
		{4, []string{"-m", "mi300x", "-f", "1.7", "-x", "QPX", "-d"}},
	} {
		options := append([]string{"-n", "2", "-i", "20", "-p", "4711:0:1048576:3"}, c.args...)
		s.Run(t, "TestUnderScript", strconv.Itoa(c.instances), options...)
	}
}

func TestUnderScript(t *testing.T) {
	instances, err := strconv.Atoi(scripttest.Inside(t))
	if err != nil {
		t.Fatal(err)
	}
	r := New(Options{})
	found, err := r.Find(context.Background())
	gpus := found.GPUs
	if err != nil || len(gpus) != 2 || found.Driver != "6.8.5" {
		t.Fatalf("%+v, %v", found, err)
	}
	for i := range gpus {
		checkScript(t, r, &gpus[i], instances)
	}
}

func checkScript(t *testing.T, r *Reader, g *GPU, instances int) {
	t.Helper()
	if len(g.Instances) != instances || g.Model == "" || g.Serial == "" || g.UniqueID == 0 {
		t.Errorf("%+v", g)
	}
	wanted := []Reading{
		{Kind: Busy}, {Kind: Temperature, Index: SensorJunction}, {Kind: Clock, Index: ClockGraphics},
		{Kind: MemoryUsed, Index: MemoryVRAM}, {Kind: Processes, Index: Whole},
	}
	h := r.Open(g, wanted)
	defer h.Close()
	values, due := make([]float64, len(wanted)), []bool{true, true, true, true, true}
	var m gpumetrics.Metrics
	seen, energy := map[string]bool{}, map[uint64]bool{}
	// The values move every 20 ms. Between reading the files of one moment and the
	// next they may differ, so all are read until nothing moved meanwhile.
	for len(seen) < 3 {
		before := plain(t, g)
		err := errors.Join(h.Read(values, due), h.Metrics(&m))
		if err != nil {
			t.Fatal(err)
		}
		if before != plain(t, g) {
			continue
		}
		got := fmt.Sprint(values[0], values[1], values[2], values[3])
		if got != before {
			t.Fatalf("read %s, the files say %s", got, before)
		}
		decoded := fmt.Sprint(m.Float(gpumetrics.AverageGfxActivity, 0), m.Float(gpumetrics.TemperatureHotspot, 0), m.Float(gpumetrics.CurrentGfxclk, 0), values[3])
		if decoded != before {
			continue // not yet all of one moment
		}
		f := gpumetrics.EnergyAccumulator
		if !m.Has(f) {
			f = gpumetrics.EnergyByASIC
		}
		seen[got], energy[m.Raw(f, 0)] = true, true
		partitions(t, &m, instances)
	}
	first := strings.HasSuffix(g.PCI, "41:00.0")
	if want := map[bool]float64{true: 1, false: 0}[first]; values[4] != want {
		t.Errorf("%s has %v processes, want %v", g.PCI, values[4], want)
	}
	if (first || !strings.Contains(g.Model, "MI250X")) && len(energy) < 2 {
		t.Errorf("%s: the energy does not move: %v", g.PCI, energy)
	}
}

// partitions checks what revision 1.7 has of each.
func partitions(t *testing.T, m *gpumetrics.Metrics, instances int) {
	t.Helper()
	if !m.Has(gpumetrics.NumPartition) {
		return
	}
	util := m.Float(gpumetrics.AverageGfxActivity, 0)
	for xcp := range 8 {
		want := util
		if xcp >= instances {
			want = math.NaN()
		}
		if got := m.Float(gpumetrics.XCPGfxBusy, xcp*8); !same(got, want) {
			t.Errorf("partition %d: %v busy, want %v", xcp, got, want)
		}
	}
	if got := m.Float(gpumetrics.NumPartition, 0); got != float64(instances) {
		t.Errorf("%v partitions, want %d", got, instances)
	}
}

// plain reads the same four values without this package.
func plain(t *testing.T, g *GPU) string {
	t.Helper()
	dir := filepath.Join("/sys/class/drm", g.Card, "device")
	get := func(pattern string) string {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) != 1 {
			t.Fatal(pattern, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	num := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	_, clock, _ := strings.Cut(get("pp_dpm_sclk"), "\n1: ")
	clock, _, _ = strings.Cut(clock, "Mhz *")
	return fmt.Sprint(num(get("gpu_busy_percent")), num(get("hwmon/hwmon*/temp2_input"))/1000, num(clock), num(get("mem_info_vram_used")))
}
