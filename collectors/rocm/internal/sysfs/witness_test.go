package sysfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
)

// witness is Debian's rocm-smi, which reads a tree through a copy of its library.
type witness struct {
	real   *smitest.Real
	script string
}

// newWitness copies rocm-smi and, into the same directory, its library. It replaces the paths of /sys in both by the tree's.
func newWitness(t *testing.T, tree *rocmtest.Tree) *witness {
	t.Helper()
	w := &witness{real: smitest.NewReal(t, tree)}
	from := "/usr/libexec/rocm_smi"
	if _, err := os.Stat(filepath.Join(from, "rocm_smi.py")); err != nil {
		programtest.Missing(t, "rocm-smi", "rocm_smi.py (Debian: apt-get install rocm-smi): %v", err)
	}
	dir := t.TempDir()
	w.script = filepath.Join(dir, "libexec/rocm_smi/rocm_smi.py")
	must(t, os.MkdirAll(filepath.Dir(w.script), 0o755))
	for _, name := range []string{"rocm_smi.py", "rsmiBindings.py"} {
		text := testkit.Get(os.ReadFile(filepath.Join(from, name)))(t)
		text = []byte(strings.ReplaceAll(string(text), "/sys/module/", "fsys/module/"))
		must(t, os.WriteFile(filepath.Join(filepath.Dir(w.script), name), text, 0o644))
	}
	must(t, os.MkdirAll(filepath.Join(dir, "lib"), 0o755))
	must(t, os.Symlink(w.real.Path, filepath.Join(dir, "lib/librocm_smi64.so.1")))
	return w
}

func (w *witness) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", append([]string{w.script}, args...)...)
	cmd.Dir = w.real.Dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // a requested value is not supported
		err = nil
	}
	testkit.FatalIf(t, err != nil, "rocm-smi: %v\n%s", err, out)
	return string(out)
}

// ask returns rocm-smi's output for each GPU, by rocm-smi's index.
func (w *witness) ask(t *testing.T) map[string]map[string]string {
	t.Helper()
	out := w.run(t, "--json", "--showuse", "--showmemuse", "--showtemp", "--showpower", "--showclocks", "--showmaxpower", "--showvoltage",
		"--showfan", "--showmeminfo", "vram", "vis_vram", "gtt", "--showbus", "--showuniqueid", "--showserial", "--showvbios",
		"--showdriverversion", "--showreplaycount", "--showenergycounter", "--showproductname")
	at := strings.Index(out, "{")
	testkit.FatalIf(t, at < 0, "rocm-smi: %s", out)
	said := map[string]map[string]string{}
	err := json.Unmarshal([]byte(out[at:]), &said)
	testkit.FatalIf(t, err != nil, "rocm-smi: %v\n%s", err, out)
	return said
}

// leading returns the number at the start of a text of rocm-smi: "44.0", "(860Mhz)".
func leading(text string) float64 {
	text = strings.TrimLeft(text, "(")
	end := 0
	for end < len(text) && strings.ContainsRune("0123456789.-", rune(text[end])) {
		end++
	}
	v, err := strconv.ParseFloat(text[:end], 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// keys returns readings by rocm-smi's name, each with the factor from rocm-smi's unit.
func keys() map[string]struct {
	reading Reading
	scale   float64
} {
	type key = struct {
		reading Reading
		scale   float64
	}
	r := func(k Kind, index uint8, scale float64) key {
		return key{Reading{Kind: k, Index: index}, scale}
	}
	return map[string]key{
		"GPU use (%)":                        r(Busy, 0, 1),
		"GPU memory use (%)":                 r(MemoryBusy, 0, 1),
		"Temperature (Sensor edge) (C)":      r(Temperature, SensorEdge, 1),
		"Temperature (Sensor junction) (C)":  r(Temperature, SensorJunction, 1),
		"Temperature (Sensor memory) (C)":    r(Temperature, SensorMemory, 1),
		"sclk clock speed:":                  r(Clock, ClockGraphics, 1),
		"mclk clock speed:":                  r(Clock, ClockMemory, 1),
		"fclk clock speed:":                  r(Clock, ClockFabric, 1),
		"socclk clock speed:":                r(Clock, ClockSystem, 1),
		"Average Graphics Package Power (W)": r(PowerAverage, 0, 1),
		"Max Graphics Package Power (W)":     r(PowerCap, 0, 1),
		"Voltage (mV)":                       r(Voltage, 0, 1e-3),
		"Fan speed (level)":                  r(FanDuty, 0, 1.0/255),
		"Fan RPM":                            r(FanRPM, 0, 1),
		"VRAM Total Memory (B)":              r(MemoryTotal, MemoryVRAM, 1),
		"VRAM Total Used Memory (B)":         r(MemoryUsed, MemoryVRAM, 1),
		"VIS_VRAM Total Memory (B)":          r(MemoryTotal, MemoryVisible, 1),
		"VIS_VRAM Total Used Memory (B)":     r(MemoryUsed, MemoryVisible, 1),
		"GTT Total Memory (B)":               r(MemoryTotal, MemoryGTT, 1),
		"GTT Total Used Memory (B)":          r(MemoryUsed, MemoryGTT, 1),
		"PCIe Replay Count":                  r(Replays, 0, 1),
	}
}

// TestWitness checks that rocm-smi, which shares no code with this reader, returns the
// same values of each GPU while they change, and lacks the same values.
func TestWitness(t *testing.T) {
	for _, o := range []rocmtest.Options{{GPUs: 4}, {Model: rocmtest.RX7900, GPUs: 1}} {
		tree := rocmtest.NewTree(t, o)
		w := newWitness(t, tree)
		gpus := find(t, tree)
		r := New(Options{Root: tree.Root})
		tree.Step(t, 1700*time.Millisecond)
		tree.GPUs[0].Update(t, func(s *rocmtest.State) { s.Replays += 7 })
		said := w.ask(t)
		for i := range gpus {
			compare(t, r, &gpus[i], i, said[fmt.Sprintf("card%d", i)])
		}
		testkit.Equal(t, "driver version", "6.8.5", said["system"]["Driver version"])
	}
}

func compare(t *testing.T, r *Reader, g *GPU, index int, said map[string]string) {
	t.Helper()
	for key, want := range map[string]string{
		"PCI Bus": g.PCI, "Unique ID": fmt.Sprintf("%#x", g.UniqueID), "Serial Number": g.Serial, "VBIOS version": g.VBIOS, "Card series": g.Model,
	} {
		testkit.ErrorIf(t, said[key] != want, "gpu %d: %s is %q, rocm-smi says %q", index, key, want, said[key])
	}
	var wanted []Reading
	var names []string
	for name, k := range keys() {
		wanted, names = append(wanted, k.reading), append(names, name)
	}
	h := r.Open(g, wanted)
	defer h.Close()
	values, due := make([]float64, len(wanted)), make([]bool, len(wanted))
	for i := range due {
		due[i] = true
	}
	must(t, h.Read(values, due))
	for i, name := range names {
		want := leading(said[name]) * keys()[name].scale
		testkit.ErrorIf(t, !same(values[i], want), "gpu %d: %s is %v, rocm-smi says %q", index, name, values[i], said[name])
	}
	var m gpumetrics.Metrics
	must(t, h.Metrics(&m))
	for name, c := range map[string]struct {
		f gpumetrics.Field
		i int
	}{
		"Energy counter": {gpumetrics.EnergyByASIC, 0}, "GFX Activity": {gpumetrics.GfxActivityAcc, 0}, "Memory Activity": {gpumetrics.MemActivityAcc, 0},
		"Temperature (Sensor HBM 0) (C)": {gpumetrics.TemperatureHBM, 0}, "Temperature (Sensor HBM 3) (C)": {gpumetrics.TemperatureHBM, 3},
	} {
		want := leading(said[name])
		testkit.ErrorIf(t, !same(m.Float(c.f, c.i), want), "gpu %d: %s is %v, rocm-smi says %q", index, name, m.Float(c.f, c.i), said[name])
	}
}
