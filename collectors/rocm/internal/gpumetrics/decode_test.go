package gpumetrics_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	gm "warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
)

var must = testkit.Must

// odd gives every value a different number, so that tests detect swapped members.
func odd(s *rocmtest.State) {
	s.Util, s.MemUtil, s.MMUtil, s.Watts = 51, 52, 53, 54
	s.EdgeC, s.JunctionC, s.MemC, s.VRSocC = 61, 62, 63, 64
	s.HBMC = [4]uint64{65, 66, 67, 68}
	s.SclkMHz, s.MclkMHz, s.SocclkMHz, s.FclkMHz, s.VclkMHz, s.DclkMHz = 1001, 1002, 1003, 1004, 1005, 1006
	s.FanRPM, s.FanPWM, s.MilliVolts = 2001, 201, 801
	s.Energy, s.GfxAcc, s.MemAcc, s.Nanos = 3001, 3002, 3003, 30040
	s.Recoveries, s.Replays, s.Rollovers, s.NAKsSent, s.NAKsReceived = 4001, 4002, 4003, 4004, 4005
	s.PCIeAcc, s.PCIeMbits = 8000, 16000
	for i := range s.XGMIRead {
		s.XGMIRead[i], s.XGMIWrite[i], s.XGMIUp[i] = 5000+uint64(i), 5100+uint64(i), uint64(i%2)
	}
	s.Throttle = 1<<36 | 1<<3
	s.Cycles, s.Prochot, s.PPT, s.SocketThermal, s.VRThermal, s.HBMThermal = 6101, 6002, 6003, 6004, 6005, 6006
	s.BelowLimit = 7000
	for i := range s.VCN {
		s.VCN[i] = 21 + uint64(i)
	}
	for i := range s.JPEG {
		s.JPEG[i] = 31 + uint64(i)
	}
}

// file returns the metrics file of a board with a revision.
func file(t testing.TB, revision string) []byte {
	t.Helper()
	o := rocmtest.Options{Model: rocmtest.MI300X, Partition: "DPX", GPUs: 1, Metrics: revision}
	switch {
	case strings.HasPrefix(revision, "1") && revision < "1.4":
		o.Model, o.Partition = rocmtest.RX7900, ""
	case !strings.HasPrefix(revision, "1"):
		o.Model, o.Partition = rocmtest.APU, ""
	}
	tree := rocmtest.NewTree(t, o)
	tree.GPUs[0].Update(t, odd)
	b := testkit.Get(os.ReadFile(tree.GPUs[0].Path("gpu_metrics")))(t)
	return b
}

type reading struct {
	f gm.Field
	i int
}

// Values of a board in DPX mode, two partitions of four XCCs, by index; the other elements have none.
func divided(v float64) []float64 {
	nan := math.NaN()
	part := []float64{v, v, v, v, nan, nan, nan, nan}
	return slices.Concat(part, part, slices.Repeat([]float64{nan}, 48))
}

// counted returns n numbers from v on, then blanks up to room.
func counted(v float64, n, room int) (out []float64) {
	for i := range room {
		x := math.NaN()
		if i < n {
			x = v + float64(i)
		}
		out = append(out, x)
	}
	return out
}

// expected returns the values of odd in a revision. If a field has several rows, the last one counts.
func expected(revision string) map[reading]float64 {
	nan, w := math.NaN(), map[reading]float64{}
	all, none, lists := func(v float64) []float64 { return slices.Repeat([]float64{v}, 8) }, []float64{nan}, "1.9"
	for _, r := range []struct {
		from, to string
		f        gm.Field
		v        []float64
	}{
		{"1.0", "3.0", gm.SystemClockCounter, []float64{30040}},
		{"1.0", "1.9", gm.TemperatureHotspot, []float64{62}}, {"1.0", "1.9", gm.TemperatureMem, []float64{63}}, {"1.0", "1.9", gm.TemperatureVRSoc, []float64{64}},
		{"1.0", "1.9", gm.AverageGfxActivity, []float64{51}}, {"1.0", "1.9", gm.AverageUmcActivity, []float64{52}},
		{"1.0", "1.9", gm.CurrentUclk, []float64{1002}}, {"1.0", "1.9", gm.CurrentVclk0, []float64{1005}}, {"1.0", "1.9", gm.CurrentDclk0, []float64{1006}},
		{"1.0", "1.9", gm.PCIeLinkWidth, []float64{16}},
		{"1.1", "1.9", gm.GfxActivityAcc, []float64{3002}}, {"1.1", "1.9", gm.MemActivityAcc, []float64{3003}}, {"1.2", "1.9", gm.FirmwareTimestamp, []float64{3004}},

		{"1.0", "1.3", gm.EnergyByASIC, []float64{3001}}, {"1.0", "1.3", gm.EnergyAccumulator, none}, // its unit is not known
		{"1.0", "1.3", gm.TemperatureEdge, []float64{61}}, {"1.0", "1.3", gm.TemperatureVRGfx, []float64{45}}, {"1.0", "1.3", gm.TemperatureVRMem, []float64{46}},
		{"1.0", "1.3", gm.AverageMMActivity, []float64{53}}, {"1.0", "1.3", gm.AverageSocketPower, []float64{54}}, {"1.0", "1.3", gm.CurrentSocketPower, none},
		{"1.0", "1.3", gm.AverageGfxclk, []float64{1001}}, {"1.0", "1.3", gm.AverageSocclk, []float64{1003}}, {"1.0", "1.3", gm.AverageUclk, []float64{1002}},
		{"1.0", "1.3", gm.AverageVclk0, []float64{1005}}, {"1.0", "1.3", gm.AverageDclk0, []float64{1006}}, {"1.0", "1.3", gm.AverageVclk1, []float64{1005}},
		{"1.0", "1.3", gm.AverageDclk1, []float64{1006}}, {"1.0", "1.3", gm.CurrentVclk1, []float64{1005}}, {"1.0", "1.3", gm.CurrentDclk1, []float64{1006}},
		{"1.0", "1.3", gm.CurrentGfxclk, []float64{1001, nan}}, {"1.0", "1.3", gm.CurrentSocclk, []float64{1003, nan}},
		{"1.0", "1.3", gm.FanSpeed, []float64{2001}}, {"1.0", "1.3", gm.ThrottleStatus, []float64{8}}, {"1.0", "1.3", gm.PCIeLinkSpeed, []float64{16}},
		{"1.1", "1.3", gm.TemperatureHBM, []float64{nan, nan, nan, nan}}, // a Radeon has none
		{"1.3", "1.3", gm.VoltageSoc, none}, {"1.3", "1.3", gm.VoltageGfx, []float64{801}}, {"1.3", "1.3", gm.IndepThrottleStatus, []float64{1<<36 | 1<<3}},

		{"1.4", "1.9", gm.EnergyAccumulator, []float64{3001}}, {"1.4", "1.9", gm.TemperatureEdge, none}, {"1.4", "1.9", gm.TemperatureHBM, none},
		{"1.4", "1.9", gm.CurrentSocketPower, []float64{54}}, {"1.4", "1.9", gm.AverageSocketPower, none},
		{"1.4", "1.9", gm.PCIeLinkSpeed, []float64{32}}, {"1.4", "1.9", gm.XGMILinkWidth, []float64{16}}, {"1.4", "1.9", gm.XGMILinkSpeed, []float64{32}},
		{"1.4", "1.9", gm.PCIeBandwidthAcc, []float64{8000}}, {"1.4", "1.9", gm.PCIeBandwidthInst, []float64{16000}},
		{"1.4", "1.9", gm.PCIeL0ToRecovery, []float64{4001}}, {"1.4", "1.9", gm.PCIeReplay, []float64{4002}}, {"1.4", "1.9", gm.PCIeReplayRover, []float64{4003}},
		{"1.5", "1.9", gm.PCIeNAKSent, []float64{4004}}, {"1.5", "1.9", gm.PCIeNAKReceived, []float64{4005}},
		{"1.4", "1.9", gm.XGMIReadAcc, counted(5000, 8, 8)}, {"1.4", "1.9", gm.XGMIWriteAcc, counted(5100, 8, 8)},
		{"1.4", "1.9", gm.CurrentGfxclk, all(1001)}, {"1.4", "1.9", gm.CurrentSocclk, all(1003)[:4]},
		{"1.4", "1.5", gm.VCNActivity, counted(21, 4, 4)}, {"1.5", "1.5", gm.JPEGActivity, counted(31, 32, 32)},
		{"1.4", "1.5", gm.ThrottleStatus, []float64{8}}, {"1.4", "1.5", gm.GfxclkLockStatus, []float64{0}}, {"1.4", "1.5", gm.AccumulationCounter, none},

		{"1.6", "1.9", gm.AccumulationCounter, []float64{6101}}, {"1.6", "1.9", gm.ProchotResidency, []float64{6002}}, {"1.6", "1.9", gm.PPTResidency, []float64{6003}},
		{"1.6", "1.9", gm.SocketThmResidency, []float64{6004}}, {"1.6", "1.9", gm.VRThmResidency, []float64{6005}}, {"1.6", "1.9", gm.HBMThmResidency, []float64{6006}},
		{"1.6", "1.8", gm.NumPartition, []float64{2}}, {"1.6", "1.9", gm.PCIeOtherEnd, []float64{4001}}, {"1.6", "1.9", gm.VCNActivity, none},
		{"1.6", "1.8", gm.XCPGfxBusy, divided(51)}, {"1.6", "1.8", gm.XCPGfxBusyAcc, divided(3002)},
		{"1.6", "1.8", gm.XCPVCNBusy, slices.Concat(counted(21, 4, 4), counted(21, 4, 24))},
		{"1.6", "1.7", gm.XCPJPEGBusy, slices.Concat(counted(31, 32, 40), counted(31, 32, 240))},
		{"1.8", "1.8", gm.XCPJPEGBusy, slices.Concat(counted(31, 40, 40), counted(31, 40, 240))},
		{"1.7", "1.7", gm.XCPBelowHostLimit, divided(7000)}, {"1.8", "1.8", gm.XCPBelowLimitPPT, divided(7000)}, {"1.8", "1.8", gm.XCPBelowLimitThm, divided(3500)},
		{"1.8", "1.8", gm.XCPLowUtilization, divided(1750)}, {"1.8", "1.8", gm.XCPBelowLimitTotal, divided(10500)},
		{"1.7", "1.9", gm.MemMaxBandwidth, []float64{5300}}, {"1.7", "1.9", gm.XGMILinkStatus, []float64{0, 1, 0, 1, 0, 1, 0, 1}},

		{lists, lists, gm.NumPartition, none}, {lists, lists, gm.XCPBelowHostLimit, none}, // its engines are not divided
		{lists, lists, gm.XCPGfxBusy, append(all(51), nan)}, {lists, lists, gm.XCPGfxBusyAcc, append(all(3002), nan)},
		{lists, lists, gm.XCPVCNBusy, counted(21, 4, 5)}, {lists, lists, gm.XCPJPEGBusy, counted(31, 40, 41)},
		{lists, lists, gm.XCPBelowLimitPPT, all(7000)}, {lists, lists, gm.XCPBelowLimitThm, all(3500)}, {lists, lists, gm.XCPLowUtilization, all(1750)},
		{lists, lists, gm.XCPBelowLimitTotal, all(10500)},

		{"2.0", "3.0", gm.TemperatureGfx, []float64{61}}, {"2.0", "3.0", gm.TemperatureSoc, []float64{61}}, {"2.0", "3.0", gm.AverageGfxPower, []float64{27}},
		{"2.0", "3.0", gm.AverageGfxclk, []float64{1001}}, {"2.0", "3.0", gm.AverageSocclk, []float64{1003}}, {"2.0", "3.0", gm.AverageUclk, []float64{1002}},
		{"2.0", "3.0", gm.AverageFclk, []float64{1004}}, {"2.0", "3.0", gm.AverageVclk0, []float64{1005}}, {"2.0", "3.0", gm.AverageGfxActivity, none},
		{"2.0", "2.4", gm.AverageDclk0, []float64{1006}}, {"2.0", "2.4", gm.CurrentGfxclk, []float64{1001, nan}}, {"2.0", "2.4", gm.CurrentFclk, []float64{1004}},
		{"2.0", "2.4", gm.CurrentDclk0, []float64{1006}}, {"2.0", "2.4", gm.ThrottleStatus, []float64{8}}, {"2.0", "2.3", gm.AverageSocketPower, none},
		{"2.2", "2.4", gm.IndepThrottleStatus, []float64{1<<36 | 1<<3}}, {"2.4", "3.0", gm.AverageSocketPower, []float64{54}},
		{"2.4", "2.4", gm.AverageGfxActivity, []float64{51}}, {"2.4", "2.4", gm.AverageMMActivity, []float64{0.53}},
		{"2.4", "2.4", gm.VoltageSoc, []float64{900}}, {"2.4", "2.4", gm.VoltageGfx, []float64{801}},
	} {
		for i, v := range r.v {
			if r.from <= revision && revision <= r.to {
				w[reading{r.f, i}], w[reading{r.f, -1}], w[reading{r.f, r.f.Len()}] = v, nan, nan
			}
		}
	}
	return w
}

func revisions() []string {
	return []string{"1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9", "2.0", "2.1", "2.2", "2.3", "2.4", "3.0"}
}

// Encoder and decoder use separate copies of the kernel's structures, so the test detects a misplaced member in either.
// One Metrics decodes all revisions, in both orders, so the test also detects values left from the previous file.
func TestDecode(t *testing.T) {
	d, m := gm.New(), new(gm.Metrics)
	list := revisions()
	for i := range len(list) * 2 {
		revision := list[min(i, len(list)*2-1-i)]
		if err := d.Decode(file(t, revision), m); err != nil {
			t.Errorf("revision %s: %v", revision, err)
			continue
		}
		for r, want := range expected(revision) {
			got := m.Float(r.f, r.i)
			testkit.ErrorIf(t, math.Abs(got-want) > 1e-9 || math.IsNaN(got) != math.IsNaN(want), "revision %s: field %d[%d] = %v, want %v", revision, r.f, r.i, got, want)
		}
	}
}

// UINT_MAX in the energy means "not available".
func TestNoEnergy(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1})
	d, m := gm.New(), new(gm.Metrics)
	for energy, want := range map[uint64]uint64{math.MaxUint32: gm.NA, math.MaxUint64: gm.NA, math.MaxUint32 + 1: math.MaxUint32 + 1, 0: 0} {
		tree.GPUs[0].Update(t, func(s *rocmtest.State) { s.Energy = energy })
		b := testkit.Get(os.ReadFile(tree.GPUs[0].Path("gpu_metrics")))(t)
		must(t, d.Decode(b, m))
		testkit.Equal(t, fmt.Sprintf("energy %#x is read as", energy), want, m.Raw(gm.EnergyByASIC, 0))
	}
}

func TestRefused(t *testing.T) {
	d, m := gm.New(), new(gm.Metrics)
	good := file(t, "1.3")
	f := func(name string, b []byte, want error) {
		t.Helper()
		must(t, d.Decode(good, m))
		err := d.Decode(b, m)
		testkit.ErrorIf(t, !errors.Is(err, want), "%s: %v, want %v", name, err, want)
		v := m.Float(gm.TemperatureEdge, 0)
		testkit.ErrorIf(t, !math.IsNaN(v) || m.Has(gm.TemperatureEdge), "%s: a value of the file before is still there: %v", name, v)
	}
	with := func(at int, v byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = v
		return b
	}
	f("empty", nil, gm.ErrShort)
	f("torn header", good[:3], gm.ErrShort)
	f("torn", good[:119], gm.ErrShort)
	f("newer revision", with(3, 10), gm.ErrRevision)
	f("unknown format", with(2, 4), gm.ErrRevision)
	f("size of another revision", with(0, 104), gm.ErrRevision)
	f("size 0", with(0, 0), gm.ErrRevision)
	f("text", []byte("Query currently inaccessible\n"), gm.ErrShort)
}

func TestDecodeAllocatesNothing(t *testing.T) {
	d, m := gm.New(), new(gm.Metrics)
	for _, revision := range []string{"1.3", "1.8", "1.9", "3.0"} {
		b := file(t, revision)
		if n := testing.AllocsPerRun(100, func() {
			if d.Decode(b, m) != nil || d.Decode(b[:2], m) == nil {
				panic("not decoded")
			}
		}); n != 0 {
			t.Errorf("revision %s: %v allocations", revision, n)
		}
	}
}

// No file causes a panic or a value from beyond its end, and an error leaves no value.
func FuzzDecode(f *testing.F) {
	for _, revision := range revisions() {
		b := file(f, revision)
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	d := gm.New()
	f.Fuzz(func(t *testing.T, b []byte) {
		a, z := new(gm.Metrics), new(gm.Metrics)
		errA := d.Decode(b, a)
		errZ := d.Decode(append(append(make([]byte, 0, len(b)+64), b...), make([]byte, 64)...), z)
		if errA != nil {
			for field := range gm.Field(100) {
				testkit.FatalIf(t, a.Raw(field, 0) != gm.NA, "%v and yet field %d", errA, field)
			}
			return
		}
		testkit.FatalIf(t, errZ != nil, "bytes behind the file change the answer: %v", errZ)
		for field := range gm.Field(100) {
			for i := -1; i <= field.Len(); i++ {
				testkit.FatalIf(t, a.Raw(field, i) != z.Raw(field, i), "field %d[%d] depends on bytes behind the file", field, i)
			}
		}
	})
}
