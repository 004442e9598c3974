package fake

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// TestDeterminism wants two nodes of one seed to be equal at any time, and
// nodes of two seeds to differ.
func TestDeterminism(t *testing.T) {
	rows := func(o Options, at ...time.Duration) (out [][]float64, devices []collector.Device) {
		clock := newClock()
		o.Now = clock.now
		n := openNode(t, newWorld(t, o), collectortest.Fields())
		begin := clock.t
		for _, d := range at {
			clock.t = begin.Add(d)
			for _, s := range n.sources {
				row, err := sampleRow(s)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, row)
			}
		}
		for _, s := range n.sources {
			devices = append(devices, s.Devices()...)
		}
		return out, devices
	}
	for _, name := range Profiles() {
		times := []time.Duration{0, 10 * time.Millisecond, 3 * time.Second, 26 * time.Hour}
		a, devicesA := rows(Options{Profile: name, Seed: 1}, times...)
		b, devicesB := rows(Options{Profile: name, Seed: 1}, times...)
		if diff := cmp.Diff(devicesA, devicesB); diff != "" || !equalRows(a, b) {
			t.Errorf("%s: two nodes of one seed differ:\n%s", name, diff)
		}
		c, devicesC := rows(Options{Profile: name, Seed: 2}, times...)
		if equalRows(a, c) || devicesA[0].ID == devicesC[0].ID {
			t.Errorf("%s: nodes of two seeds are equal", name)
		}
		// A value is a function of time, and for means since the last reading of the time
		// of that, not of what was read before.
		last, _ := rows(Options{Profile: name, Seed: 1}, times[2:]...)
		if !onlyEventsDiffer(a[3*len(a)/4:], last[len(last)/2:]) {
			t.Errorf("%s: values depend on earlier samples", name)
		}
	}
}

func equalRows(a, b [][]float64) bool {
	return slices.EqualFunc(a, b, func(x, y []float64) bool {
		return slices.EqualFunc(x, y, func(v, w float64) bool { return v == w || math.IsNaN(v) && math.IsNaN(w) })
	})
}

// onlyEventsDiffer reports whether two sets of rows differ in nothing but cells
// that are NaN in one of them: each reader gets an event once.
func onlyEventsDiffer(a, b [][]float64) bool {
	for i := range a {
		for j := range a[i] {
			if a[i][j] != b[i][j] && !math.IsNaN(a[i][j]) && !math.IsNaN(b[i][j]) {
				return false
			}
		}
	}
	return true
}

// TestRestart wants counters to continue when the exporter starts again.
func TestRestart(t *testing.T) {
	clock := newClock()
	l := list(t, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
	before := openNode(t, newWorld(t, Options{Now: clock.now}), l).read(0, 0)[156]
	clock.advance(time.Second)
	after := openNode(t, newWorld(t, Options{Now: clock.now}), l).read(0, 0)[156]
	if joules := (after - before) / 1e3; joules < 60 || joules > 710 {
		t.Errorf("energy over a restart of one second: %v J, want that of one second", joules)
	}
}

// TestEnergyIsIntegral integrates the power in steps as fine as the curves'.
func TestEnergyIsIntegral(t *testing.T) {
	l := list(t, "DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
	check := func(profile, shape string) {
		t.Helper()
		clock := newClock()
		w := newWorld(t, Options{Profile: profile, Now: clock.now, Spec: &Spec{Loads: []Load{{All(), Shape(shape)}}}})
		n := openNode(t, w, l)
		const step, steps = time.Millisecond, 20000
		begin := n.read(0, 0)[156]
		var joules float64
		for range steps {
			joules += n.read(0, 0)[157] * step.Seconds()
			clock.advance(step)
		}
		if got := (n.read(0, 0)[156] - begin) / 1e3; math.Abs(got-joules) > joules/1000 {
			t.Errorf("%s, %s: energy grew by %v J, the sum of power × time is %v J", profile, shape, got, joules)
		}
	}
	for _, shape := range Shapes() {
		check("dgx-h100", shape)
		check("dgx-a100-mig", shape) // a board whose load is that of its instances
	}
}

// TestCountersGrow samples at uneven steps: a counter never goes back.
func TestCountersGrow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range Profiles() {
		clock := newClock()
		n := openNode(t, newWorld(t, Options{Profile: name, Now: clock.now}), collectortest.Fields())
		s := n.sources[0].(*source)
		last, err := sampleRow(s)
		if err != nil {
			t.Fatal(err)
		}
		counters, moved := 0, false
		for range 2000 {
			clock.advance(time.Duration(r.Int64N(int64(40 * time.Millisecond))))
			row, err := sampleRow(s)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range s.cells {
				if c.op < firstCounter {
					continue
				}
				counters++
				moved = moved || row[i] > last[i]
				if row[i] < last[i] {
					t.Fatalf("%s: field %d went from %v back to %v", name, s.columns[i].Field, last[i], row[i])
				}
			}
			last = row
		}
		if counters == 0 || !moved {
			t.Errorf("%s: %d counters, moving: %v", name, counters, moved)
		}
	}
}

// TestCoupling wants the readings of a board to fit each other at any time.
func TestCoupling(t *testing.T) {
	l := list(t, "DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
		"DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_USED_PERCENT",
		"DCGM_FI_DEV_GPU_TEMP")
	b := h100()
	for _, shape := range Shapes() {
		clock := newClock()
		w := newWorld(t, Options{Now: clock.now, Spec: &Spec{Loads: []Load{{All(), Shape(shape)}}}})
		n := openNode(t, w, l)
		seen := map[float64]int{}
		for range 5000 {
			v := n.read(0, 0)
			clock.advance(37 * time.Millisecond)
			watts, mhz, mask := v[157], v[100], v[112]
			seen[mask]++
			busy := n.sources[0].(*source).points[0].load
			switch {
			case v[251]+v[252]+v[253] != v[250]:
				t.Fatalf("%s: memory %v free + %v used + %v reserved is not %v", shape, v[251], v[252], v[253], v[250])
			case math.Abs(v[254]-v[252]/(v[250]-v[253])) > 1e-12:
				t.Fatalf("%s: memory ratio %v of %v MiB", shape, v[254], v[252])
			case busy < idleLoad && (mask != reasonGPUIdle || mhz != b.idleMHz || watts > 1.1*b.idleWatts+1):
				t.Fatalf("%s: idle at %v MHz, %v W, reasons %v", shape, mhz, watts, mask)
			case busy >= 0.93 && (mask != reasonPowerCap || mhz >= b.maxMHz || watts < 0.97*b.limitWatts):
				t.Fatalf("%s: at the limit with %v MHz, %v W, reasons %v", shape, mhz, watts, mask)
			case busy > idleLoad && busy < 0.93 && (mask != 0 || mhz != b.maxMHz):
				t.Fatalf("%s: busy at %v with %v MHz, reasons %v", shape, busy, mhz, mask)
			case watts > b.limitWatts || watts < 0.96*b.idleWatts:
				t.Fatalf("%s: %v W", shape, watts)
			}
		}
		want := map[Shape][]float64{Idle: {reasonGPUIdle}, Training: {reasonPowerCap, 0}, Inference: {0}, Bursts: {reasonPowerCap, reasonGPUIdle}}
		for _, mask := range want[Shape(shape)] {
			if seen[mask] == 0 {
				t.Errorf("%s: never saw reasons %v in %v", shape, mask, seen)
			}
		}
	}
}

// TestTemperatureLags wants the temperature to follow the power, late.
func TestTemperatureLags(t *testing.T) {
	c := newCurve(time.Second, slices.Concat(make([]int64, 300), slices.Repeat([]int64{full}, 300)))
	at := func(s int64) float64 { return c.at(s * 1e6).warmth }
	if cold, hot := at(299), at(599); cold > 0.01 || hot < 0.97 {
		t.Errorf("warmth is %v after 5 minutes at rest and %v after 5 minutes at full load", cold, hot)
	}
	if early, later := at(301), at(320); early > 0.15 || later < 0.5 || later > 0.75 {
		t.Errorf("warmth is %v one second into the load and %v after 20, want a lag of 20 s", early, later)
	}
	if begin, end := at(0), c.at(600*1e6-1).warmth; math.Abs(begin-end) > 0.01 {
		t.Errorf("warmth jumps from %v to %v where the curve begins again", end, begin)
	}
}

// TestMIG wants a board to be the sum of its instances.
func TestMIG(t *testing.T) {
	clock := newClock()
	n := openNode(t, newWorld(t, Options{Profile: "dgx-a100-mig", Now: clock.now}),
		list(t, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"))
	devices := n.sources[0].Devices()
	want := []string{"", "3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"}
	compute := []float64{7, 3, 2, 1, 1}
	if len(devices) != len(want) {
		t.Fatalf("GPU 0 has %d devices, want itself and 4 instances", len(devices))
	}
	for range 100 {
		clock.advance(700 * time.Millisecond)
		_ = n.read(0, 0) // from which the means of the following begin
		var sum float64
		for i := range devices[1:] {
			sum += n.read(0, i+1)[1001] * compute[i+1] / 7
		}
		if got := n.read(0, 0)[1001]; math.Abs(got-sum) > 1e-9 {
			t.Fatalf("board at %v, its instances at %v", got, sum)
		}
	}
	uuids := map[string]bool{}
	for _, d := range devices[1:] {
		if !strings.HasPrefix(d.Instance.UUID, "MIG-fa4e") || uuids[d.Instance.UUID] {
			t.Errorf("instance %s has the MIG UUID %q, which is none or another's", d.Instance.ID, d.Instance.UUID)
		}
		uuids[d.Instance.UUID] = true
	}
	for i, d := range devices {
		if d.Instance.Profile != want[i] || d.UUID != devices[0].UUID || (d.Level == field.Instance) != (i > 0) {
			t.Errorf("device %d of GPU 0: %+v", i, d)
		}
	}
	if v := n.read(0, 1); v[250] != 20480 || len(v) != 2 {
		t.Errorf("instance 3g.20gb: got %v, want 20480 MiB, its activity and nothing of the board's", v)
	}
	if v := n.read(0, 0); len(v) != 3 {
		t.Errorf("board in MIG mode: got %v, want no utilisation", v)
	}
	if v := n.read(4, 0); len(v) != 4 {
		t.Errorf("whole board: got %v, want utilisation, too", v)
	}
}

// TestProfiles says what each profile has and lacks.
func TestProfiles(t *testing.T) {
	const (
		ecc, prof, nvlink, fan, memTemp = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_MEMORY_TEMP"
		xid, energy, switchTemp, cpu    = "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", "DCGM_FI_DEV_CPU_TEMP_CURRENT"
		core, perLink, reserved, c2c    = "DCGM_FI_DEV_CPU_UTIL_TOTAL", "DCGM_FI_DEV_NVLINK_TX_THROUGHPUT_PER_LINK", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_PROF_C2C_TX_ALL_BYTES"
	)
	all := []string{ecc, prof, nvlink, fan, memTemp, xid, energy, switchTemp, cpu, core, perLink, reserved, c2c}
	for name, want := range map[string]map[string]int{
		"dgx-h100":     {ecc: 8, prof: 8, nvlink: 8, memTemp: 8, xid: 8, energy: 8, switchTemp: 4, perLink: 144, reserved: 8},
		"dgx-a100-mig": {ecc: 8, prof: 8 + 14, nvlink: 8, memTemp: 8, xid: 8, energy: 8, switchTemp: 6, perLink: 96, reserved: 8 + 14},
		"gb200":        {ecc: 4, prof: 4, nvlink: 4, memTemp: 4, xid: 4, energy: 4, cpu: 2, core: 144, perLink: 72, reserved: 4, c2c: 4},
		"mi300x":       {ecc: 8, nvlink: 8, memTemp: 8, energy: 8, perLink: 56},
		"rtx4090":      {fan: 2, xid: 2, energy: 2, reserved: 2},
	} {
		for _, f := range all {
			l := list(t, f)
			columns := 0
			for _, s := range openNode(t, newWorld(t, Options{Profile: name}), l).sources {
				columns += len(s.Columns())
			}
			if columns != want[f] {
				t.Errorf("%s: %d columns of %s, want %d", name, columns, f, want[f])
			}
		}
	}
}

// TestFacts wants every label row of dcgm-exporter's counters files, texts and numbers, under the name in the list.
func TestFacts(t *testing.T) {
	l := list(t, "DCGM_FI_DRIVER_VERSION", "DCGM_FI_NVML_VERSION", "DCGM_FI_DEV_BRAND", "DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_OEM_INFOROM_VER",
		"DCGM_FI_DEV_ECC_INFOROM_VER", "DCGM_FI_DEV_INFOROM_IMAGE_VER", "DCGM_FI_DEV_VBIOS_VERSION", "DCGM_FI_DEV_MINOR_NUMBER",
		"DCGM_FI_DEV_POWER_MGMT_LIMIT", temperature)
	for i := range l.Fields {
		l.Fields[i].Name, l.Fields[i].Type = "x_"+l.Fields[i].Name, field.Label
	}
	got := map[string]string{}
	for _, fact := range openNode(t, newWorld(t, Options{Seed: 3}), l).sources[1].Devices()[0].Facts {
		got[fact.Name] = fact.Value
	}
	if serial := got["x_DCGM_FI_DEV_SERIAL"]; !strings.HasPrefix(serial, "SIM") {
		t.Errorf("serial %q does not say that it is simulated", serial)
	}
	delete(got, "x_DCGM_FI_DEV_SERIAL")
	if celsius, err := strconv.ParseFloat(got["x_DCGM_FI_DEV_GPU_TEMP"], 64); err != nil || celsius < 20 || celsius > 90 {
		t.Errorf("temperature at Open is %q, want a number", got["x_DCGM_FI_DEV_GPU_TEMP"])
	}
	delete(got, "x_DCGM_FI_DEV_GPU_TEMP")
	want := map[string]string{
		"x_DCGM_FI_DRIVER_VERSION": "550.54.15-simulated", "x_DCGM_FI_NVML_VERSION": "12.550.54.15-simulated",
		"x_DCGM_FI_DEV_BRAND": "NVIDIA", "x_DCGM_FI_DEV_OEM_INFOROM_VER": "2.1", "x_DCGM_FI_DEV_ECC_INFOROM_VER": "7.16",
		"x_DCGM_FI_DEV_INFOROM_IMAGE_VER": "G520.0200.00.05", "x_DCGM_FI_DEV_VBIOS_VERSION": "96.00.89.00.01",
		"x_DCGM_FI_DEV_MINOR_NUMBER": "1", "x_DCGM_FI_DEV_POWER_MGMT_LIMIT": "700",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

// TestPeers looks at the columns of a board's peers: its group of eight.
func TestPeers(t *testing.T) {
	var peers []string
	for _, c := range openNode(t, newWorld(t, Options{Devices: 10}), list(t, "DCGM_EXP_P2P_STATUS")).sources[2].Columns() {
		peers = append(peers, c.Labels[0].Value+" "+c.Labels[1].Value)
	}
	if diff := cmp.Diff([]string{"OK 0", "OK 1", "OK 3", "OK 4", "OK 5", "OK 6", "OK 7"}, peers); diff != "" {
		t.Errorf("peers of GPU 2 (-want +got):\n%s", diff)
	}
}

// TestManyDevices wants thousands of boards, all distinct.
func TestManyDevices(t *testing.T) {
	const boards = 4000
	n := openNode(t, newWorld(t, Options{Devices: boards}), list(t, "DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_P2P_STATUS"))
	if len(n.sources) != boards {
		t.Fatalf("%d sources, want %d", len(n.sources), boards)
	}
	seen := map[string]bool{}
	for _, s := range n.sources {
		d := s.Devices()[0]
		for _, key := range []string{d.ID, d.PCIBusID, d.Node, d.GPU} {
			if seen[key] {
				t.Fatalf("%q occurs twice", key)
			}
			seen[key] = true
		}
		if !strings.HasSuffix(d.Model, modelSuffix) {
			t.Fatalf("model %q does not say that it is simulated", d.Model)
		}
	}
}

func TestBadOptions(t *testing.T) {
	f := func(o Options, want string) {
		t.Helper()
		if _, err := Factory(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Factory(%+v): got error %v, want %q", o, err, want)
		}
	}
	f(Options{Profile: "dgx-h1000"}, `find profile "dgx-h1000"`)
	f(Options{Devices: -1}, "-1 devices")
	f(Options{Devices: maxDevices + 1}, "devices")
	f(Options{Spec: &Spec{Faults: []Fault{{Kind: Hang, GPUs: index(8)}}}}, "device 8: the node has 8")
	f(Options{Spec: &Spec{Faults: []Fault{{Kind: Lost, Switches: index(4), line: 7}}}}, "line 7: fault \"lost\": switch 4")
	f(Options{Spec: &Spec{Faults: []Fault{{Kind: "what"}}}}, "unknown kind")
}

func BenchmarkSample(b *testing.B) {
	for _, name := range Profiles() {
		b.Run(name, func(b *testing.B) {
			s := openNode(b, newWorld(b, Options{Profile: name}), collectortest.Fields()).sources[0]
			row, due := make([]float64, len(s.Columns())), slices.Repeat([]bool{true}, len(s.Columns()))
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Sample(row, due); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(row)), "ns/cell")
			b.ReportMetric(float64(len(row)), "cells")
		})
	}
}
