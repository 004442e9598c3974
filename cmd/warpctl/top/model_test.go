package top

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
)

func frame(t *testing.T, name, got string) {
	t.Helper()
	golden.Check(t, filepath.Join("testdata", name+".txt"), got)
}

// press sends keys to the model, by name or as text.
func press(m *model, keys ...string) {
	codes := map[string]tea.Key{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "down": {Code: tea.KeyDown}, "up": {Code: tea.KeyUp}, "space": {Code: tea.KeySpace, Text: " "},
		"end": {Code: tea.KeyEnd}, "home": {Code: tea.KeyHome}, "pgdown": {Code: tea.KeyPgDown}, "backspace": {Code: tea.KeyBackspace},
	}
	for _, name := range keys {
		k, ok := codes[name]
		if !ok {
			k = tea.Key{Code: []rune(name)[0], Text: name}
		}
		m.Update(tea.KeyPressMsg(k))
	}
}

func TestFrames(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {40, 12}} {
		f := func(name string, keys ...string) {
			t.Helper()
			n := hopper()
			n.keepSamples()
			m, s := watch(t, size[0], size[1], n)
			press(m, keys...)
			s.tick(m, noon)
			frame(t, fmt.Sprintf("%s-%dx%d", name, size[0], size[1]), text(m))
		}
		f("devices")
		f("detail", "enter")
		f("lost", "end", "up", "enter")
		f("processes", "p")
		f("help", "?")

		silent := hopper()
		m, s := watch(t, size[0], size[1], hopper(), silent, nvidiaNewNames(), amd())
		frame(t, fmt.Sprintf("nodes-%dx%d", size[0], size[1]), text(m))
		silent.err = errors.New("no exporter answers at http://10.0.0.1:9400: connection refused")
		s.tick(m, noon.Add(time.Minute))
		frame(t, fmt.Sprintf("silent-%dx%d", size[0], size[1]), text(m))
		press(m, "down", "enter")
		frame(t, fmt.Sprintf("silent-devices-%dx%d", size[0], size[1]), text(m))
	}
}

// nvidiaNewNames returns a node with a MIG GPU, with the names of newer DCGM versions.
func nvidiaNewNames() *fakeNode {
	n := &fakeNode{devices: apiv1.Devices{Hostname: "node-new"}, health: apiv1.Health{State: "ok"}}
	gpu := apiv1.Device{ID: "G", Kind: "gpu", Collector: "dcgm", State: "up", LastSample: at(0), Interval: 1, GPU: "0", Model: "NVIDIA B200"}
	mig := gpu
	mig.ID, mig.Parent, mig.Kind, mig.Instance = "G/3", "G", "instance", &apiv1.Instance{Profile: "1g.23gb", ID: "3"}
	n.devices.Devices = []apiv1.Device{gpu, mig}
	n.fields.Devices = []apiv1.DeviceFields{
		{ID: "G", Fields: []apiv1.Field{
			reading("DCGM_FI_DEV_GPU_UTIL_RATIO", "ratio", 0.5), reading("DCGM_FI_DEV_FB_USED_BYTES", "bytes", 90<<30), reading("DCGM_FI_DEV_FB_CAPACITY_BYTES", "bytes", 180<<30),
			reading("DCGM_FI_DEV_BOARD_POWER_WATTS", "W", 900), reading("DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", "W", 1000),
			reading("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "celsius", 55), reading("DCGM_FI_DEV_SM_CLOCK_HERTZ", "Hz", 1.8e9),
		}},
		{ID: "G/3", Fields: []apiv1.Field{reading("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "ratio", 0.25)}},
	}
	return n
}

// amd returns a node with a GPU under AMD's names, which have labels.
func amd() *fakeNode {
	n := &fakeNode{devices: apiv1.Devices{Hostname: "node-amd"}, health: apiv1.Health{State: "ok"}}
	n.devices.Devices = []apiv1.Device{{ID: "A", Kind: "gpu", Collector: "rocm", State: "up", LastSample: at(0), Interval: 1, GPU: "0", Model: "AMD Instinct MI300X"}}
	labelled := func(f apiv1.Field, name, v string) apiv1.Field {
		f.Labels = map[string]string{name: v}
		return f
	}
	n.fields.Devices = []apiv1.DeviceFields{{ID: "A", Fields: []apiv1.Field{
		reading("DCGM_FI_DEV_GPU_UTIL", "%", 80),
		labelled(reading("amd_gpu_memory_used_bytes", "bytes", 1), "memory", "gtt"),
		labelled(reading("amd_gpu_memory_used_bytes", "bytes", 100<<30), "memory", "vram"),
		labelled(reading("amd_gpu_memory_size_bytes", "bytes", 192<<30), "memory", "vram"),
		reading("DCGM_FI_DEV_POWER_USAGE", "W", 700), reading("DCGM_FI_DEV_POWER_MGMT_LIMIT", "W", 750),
		labelled(reading("amd_gpu_temperature_celsius", "celsius", 71), "sensor", "junction"),
		labelled(reading("amd_gpu_clock_hertz", "Hz", 2.1e9), "clock", "gfx"),
		labelled(reading("amd_gpu_throttle_active", "bool", 1), "reason", "power"), labelled(reading("amd_gpu_throttle_active", "bool", 0), "reason", "thermal"),
	}}}
	return n
}

// TestQuantities: names of all vendors and generations, and derived quantities.
func TestQuantities(t *testing.T) {
	f := func(n *fakeNode, device int, want map[quantity]float64) {
		t.Helper()
		s := testkit.Get(n.Fields(t.Context(), nil, names()))(t)
		r := rowsOf(&n.devices, s)[device]
		for q := range quantities {
			v, ok := want[q]
			testkit.ErrorIf(t, ok && !near(r.of[q], v) || !ok && r.of[q] == r.of[q], "%s: quantity %d is %v, want %v (known: %v)", n.devices.Hostname, q, r.of[q], v, ok)
		}
	}
	f(nvidiaNewNames(), 0, map[quantity]float64{util: 50, memoryUsed: 90 << 30, memoryTotal: 180 << 30, power: 900, powerLimit: 1000, temperature: 55, smClock: 1800})
	f(nvidiaNewNames(), 1, map[quantity]float64{util: 25})
	f(amd(), 0, map[quantity]float64{util: 80, memoryUsed: 100 << 30, memoryTotal: 192 << 30, power: 700, powerLimit: 750, temperature: 71, smClock: 2100})
	f(hopper(), 0, map[quantity]float64{
		util: 97, tensor: 62, dram: 40, memoryUsed: 61000 << 20, memoryFree: 20000 << 20, memoryReserved: 559 << 20, memoryTotal: 81559 << 20,
		power: 612, powerLimit: 700, temperature: 64, smClock: 1980, throttle: 4,
	})
	s, err := amd().Fields(t.Context(), nil, names())
	got := rowsOf(&amd().devices, s)[0].heldDown()
	testkit.ErrorIf(t, err != nil || got != "power", "AMD's GPU is held down by %q, want power", got)
	f(hopper(), 5, nil) // read 35 s ago
	f(hopper(), 6, nil) // lost
}

func near(a, b float64) bool { return a == b || (a-b)/b < 1e-6 && (b-a)/b < 1e-6 }

func TestKeys(t *testing.T) {
	m, s := watch(t, 100, 30, hopper(), amd())
	chosen := func() string {
		for _, l := range strings.Split(text(m), "\n") {
			if strings.HasPrefix(l, "> ") {
				return strings.Join(strings.Fields(l), " ")
			}
		}
		return ""
	}
	want := func(what, begins string) {
		t.Helper()
		if got := chosen(); !strings.HasPrefix(got, "> "+begins) {
			t.Errorf("%s: chosen %q, want %q\n%s", what, got, begins, text(m))
		}
	}
	want("at first", "node-7")
	press(m, "down")
	want("down", "node-amd")
	press(m, "enter")
	want("GPUs of a node", "node-amd")
	testkit.Lacks(t, "one node", text(m), "node-7")
	press(m, "esc", "up", "g", "end")
	want("all GPUs", "node-amd")
	press(m, "home", "down", "down")
	want("third", "node-7 2")
	for range 20 { // util is the fourth sortable column
		if m.sort[devicesScreen] == "UTIL" {
			break
		}
		press(m, "s")
	}
	want("it stays chosen when sorted", "node-7 2")
	press(m, "home")
	want("the largest first", "node-7 0")
	press(m, "r", "home")
	want("the smallest first, what is not known last", "node-7 7")
	press(m, "/")
	for _, r := range "gpu llm" {
		press(m, string(r))
	}
	shows(t, m, "filter: gpu llm_")
	press(m, "enter")
	want("filtered", "node-7 0")
	press(m, "/", "x", "enter")
	shows(t, m, "nothing matches the filter gpu llmx")
	press(m, "/", "esc", "r", "p")
	want("processes", "node-7 0 4242")
	press(m, "enter")
	testkit.ErrorIf(t, m.screen != detailScreen || m.device.device != "GPU-0", "enter on a process shows %v", m.device)
	s.tick(m, noon)
	testkit.ErrorIf(t, s.looked == nil || s.looked.device != "GPU-0" || s.looked.plots[util] != "DCGM_FI_DEV_GPU_UTIL", "details are asked of %+v", s.looked)
	press(m, "+", "+", "+")
	testkit.Equal(t, "span", 15*time.Minute, s.looked.span)
	press(m, "end", "pgdown")
	shows(t, m, "no such sensor")
	press(m, "esc")
	testkit.Equal(t, "details are still asked for", false, s.looked != nil)
	press(m, "space")
	s.nodes[0].(*fakeNode).devices.Devices[0].GPU = "changed"
	s.tick(m, noon.Add(time.Second))
	testkit.Lacks(t, "frozen", text(m), "changed")
	testkit.Has(t, "frozen", text(m), "frozen at")
	press(m, "space")
	m.Update(tick(noon.Add(time.Second)))
	testkit.Lacks(t, "no longer frozen", text(m), "frozen at")
	if _, cmd := m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil {
		t.Error("q does not quit")
	} else if _, ok := cmd().(tea.QuitMsg); !ok {
		t.Error("q does something else")
	}
}

// TestSizes: no screen size gives a line too long, too many lines, or a panic.
func TestSizes(t *testing.T) {
	for _, keys := range [][]string{nil, {"n"}, {"p"}, {"enter"}, {"?"}, {"a"}, {"/", "x"}, {"enter", "/", "q"}} {
		m, s := watch(t, 80, 24, hopper())
		press(m, keys...)
		s.poll(noon)
		for width := 0; width < 90; width += 1 + width/12 {
			for height := 0; height < 45; height += 1 + height/12 {
				m.Update(tea.WindowSizeMsg{Width: width, Height: height})
				lines := m.frame()
				testkit.FatalIf(t, len(lines) > height, "%v at %dx%d has %d lines", keys, width, height, len(lines))
				for _, l := range lines {
					n := ansi.StringWidth(l)
					testkit.FatalIf(t, n > width, "%v at %dx%d: line of %d cells %q", keys, width, height, n, l)
				}
			}
		}
	}
}

// TestGone: a GPU disappears from every screen without harm.
func TestGone(t *testing.T) {
	n := hopper()
	m, s := watch(t, 80, 24, n)
	press(m, "down", "enter")
	n.devices.Devices = n.devices.Devices[2:]
	s.tick(m, noon.Add(time.Second))
	shows(t, m, "the device is gone")
	press(m, "down", "esc")
	shows(t, m, "> 3 ") // second of the remaining lines
	n.devices.Devices = nil
	n.devices.Collectors = []apiv1.Collector{{Name: "nvml", Reason: "no NVIDIA GPU"}}
	s.tick(m, noon.Add(2*time.Second))
	shows(t, m, "no device; collector nvml: no NVIDIA GPU")
}

// keepSamples gives the node a history: 0 for half a minute, then 100.
func (n *fakeNode) keepSamples() {
	n.samples = map[string]apiv1.Samples{}
	for _, f := range n.fields.Devices[0].Fields {
		n.samples[f.Name] = apiv1.Samples{Until: noon.UnixMilli(), Step: 30_000, Series: []apiv1.SampledSeries{{Times: []int64{at(-60).UnixMilli(), at(-30).UnixMilli()}, Max: []*float64{value(0), value(100)}}}}
	}
}

// TestKeptSamples: plots show the node's history.
func TestKeptSamples(t *testing.T) {
	n := hopper()
	n.keepSamples()
	m, s := watch(t, 57, 24, n)
	press(m, "enter")
	s.tick(m, noon)
	shows(t, m, "UTIL        97%  "+strings.Repeat("▁", 20)+strings.Repeat("█", 20))
	testkit.Has(t, "requests", fmt.Sprint(n.asked), "samples of DCGM_FI_DEV_GPU_UTIL in 40 points")
}
