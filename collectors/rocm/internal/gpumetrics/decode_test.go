package gpumetrics_test

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/rocmtest"
)

// odd gives every value a different number, so that tests detect swapped members.
func odd(s *rocmtest.State) {
	s.Util, s.MemUtil, s.MMUtil, s.Watts = 51, 52, 53, 54
	s.EdgeC, s.JunctionC, s.MemC, s.VRSocC = 61, 62, 63, 64
	s.HBMC = [4]uint64{65, 66, 67, 68}
	s.SclkMHz, s.MclkMHz, s.SocclkMHz, s.FclkMHz, s.VclkMHz, s.DclkMHz = 1001, 1002, 1003, 1004, 1005, 1006
	s.FanRPM, s.FanPWM, s.MilliVolts = 2001, 201, 801
	s.Energy, s.GfxAcc, s.MemAcc, s.Nanos = 3001, 3002, 3003, 30040
	s.Recoveries, s.Replays, s.Rollovers, s.NAKsSent, s.NAKsReceived = 4001, 4002, 4003, 4004, 4005
	s.PCIeAcc, s.PCIeGBs = 8000, 16000
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
	b, err := os.ReadFile(tree.GPUs[0].Path("gpu_metrics"))
	must(t, err)
	return b
}

type reading struct {
	f gpumetrics.Field
	i int
}

// Values that a revision has in addition to those of all revisions of its kind.
func expected(revision string) map[reading]float64 {
	nan := math.NaN()
	w := map[reading]float64{{gpumetrics.SystemClockCounter, 0}: 30040}
	set := func(f gpumetrics.Field, v ...float64) {
		for i, x := range v {
			w[reading{f, i}] = x
		}
	}
	board, socket := strings.HasPrefix(revision, "1"), revision >= "1.4" && revision < "2"
	energy := gpumetrics.EnergyAccumulator
	if !socket {
		energy = gpumetrics.EnergyByASIC
	}
	if board {
		set(energy, 3001)
		set(gpumetrics.TemperatureHotspot, 62)
		set(gpumetrics.TemperatureMem, 63)
		set(gpumetrics.TemperatureVRSoc, 64)
		set(gpumetrics.AverageGfxActivity, 51)
		set(gpumetrics.AverageUmcActivity, 52)
		set(gpumetrics.PCIeLinkWidth, 16)
		set(gpumetrics.CurrentGfxclk, 1001)
		set(gpumetrics.CurrentUclk, 1002)
		set(gpumetrics.CurrentSocclk, 1003)
		set(gpumetrics.CurrentVclk0, 1005)
		set(gpumetrics.CurrentDclk0, 1006)
		set(gpumetrics.PCIeLinkSpeed, 16)
	}
	if board && !socket {
		set(gpumetrics.TemperatureEdge, 61)
		set(gpumetrics.TemperatureVRGfx, 45)
		set(gpumetrics.TemperatureVRMem, 46)
		set(gpumetrics.AverageMMActivity, 53)
		set(gpumetrics.AverageSocketPower, 54)
		set(gpumetrics.AverageGfxclk, 1001)
		set(gpumetrics.AverageSocclk, 1003)
		set(gpumetrics.AverageUclk, 1002)
		set(gpumetrics.AverageVclk0, 1005)
		set(gpumetrics.AverageDclk0, 1006)
		set(gpumetrics.AverageVclk1, 1005)
		set(gpumetrics.AverageDclk1, 1006)
		set(gpumetrics.CurrentVclk1, 1005)
		set(gpumetrics.CurrentDclk1, 1006)
		set(gpumetrics.FanSpeed, 2001)
		set(gpumetrics.ThrottleStatus, 8)
		set(gpumetrics.CurrentSocketPower, nan)
	}
	if board && revision > "1.0" {
		set(gpumetrics.GfxActivityAcc, 3002)
		set(gpumetrics.MemActivityAcc, 3003)
	}
	if board && !socket && revision > "1.0" {
		set(gpumetrics.TemperatureHBM, nan, nan, nan, nan) // a Radeon has none
		set(gpumetrics.EnergyAccumulator, nan)             // its unit is unknown
	}
	if board && revision >= "1.2" {
		set(gpumetrics.FirmwareTimestamp, 3004)
	}
	if revision == "1.3" {
		set(gpumetrics.VoltageSoc, nan)
		set(gpumetrics.VoltageGfx, 801)
		set(gpumetrics.IndepThrottleStatus, 1<<36|1<<3)
	}
	if socket {
		set(gpumetrics.TemperatureEdge, nan)
		set(gpumetrics.CurrentSocketPower, 54)
		set(gpumetrics.AverageSocketPower, nan)
		set(gpumetrics.PCIeLinkSpeed, 32)
		set(gpumetrics.XGMILinkWidth, 16)
		set(gpumetrics.XGMILinkSpeed, 32)
		set(gpumetrics.PCIeBandwidthAcc, 8000)
		set(gpumetrics.PCIeBandwidthInst, 16000)
		set(gpumetrics.PCIeL0ToRecovery, 4001)
		set(gpumetrics.PCIeReplay, 4002)
		set(gpumetrics.PCIeReplayRover, 4003)
		for i := range 8 {
			w[reading{gpumetrics.XGMIReadAcc, i}] = float64(5000 + i)
			w[reading{gpumetrics.XGMIWriteAcc, i}] = float64(5100 + i)
			w[reading{gpumetrics.CurrentGfxclk, i}] = 1001
		}
		set(gpumetrics.CurrentSocclk, 1003, 1003, 1003, 1003)
	}
	if socket && revision >= "1.5" {
		set(gpumetrics.PCIeNAKSent, 4004)
		set(gpumetrics.PCIeNAKReceived, 4005)
	}
	if revision == "1.4" || revision == "1.5" {
		set(gpumetrics.VCNActivity, 21, 22, 23, 24)
		set(gpumetrics.ThrottleStatus, 8)
		set(gpumetrics.GfxclkLockStatus, 0)
		set(gpumetrics.AccumulationCounter, nan)
	}
	if revision == "1.5" {
		w[reading{gpumetrics.JPEGActivity, 0}] = 31
		w[reading{gpumetrics.JPEGActivity, 31}] = 62
	}
	if socket && revision >= "1.6" && revision < "1.9" {
		partitioned(revision, w)
	}
	if revision == "1.9" {
		listed(w)
	}
	if strings.HasPrefix(revision, "2") || strings.HasPrefix(revision, "3") {
		set(gpumetrics.TemperatureGfx, 61)
		set(gpumetrics.TemperatureSoc, 61)
		set(gpumetrics.AverageGfxPower, 27)
		set(gpumetrics.AverageGfxclk, 1001)
		set(gpumetrics.AverageSocclk, 1003)
		set(gpumetrics.AverageUclk, 1002)
		set(gpumetrics.AverageFclk, 1004)
		set(gpumetrics.AverageVclk0, 1005)
		set(gpumetrics.AverageGfxActivity, nan)
	}
	if strings.HasPrefix(revision, "2") {
		set(gpumetrics.AverageDclk0, 1006)
		set(gpumetrics.CurrentGfxclk, 1001, nan)
		set(gpumetrics.CurrentFclk, 1004)
		set(gpumetrics.CurrentDclk0, 1006)
		set(gpumetrics.ThrottleStatus, 8)
		set(gpumetrics.AverageSocketPower, nan)
	}
	if strings.HasPrefix(revision, "2") && revision >= "2.2" {
		set(gpumetrics.IndepThrottleStatus, 1<<36|1<<3)
	}
	if revision == "2.4" {
		set(gpumetrics.AverageSocketPower, 54)
		set(gpumetrics.AverageGfxActivity, 51)
		set(gpumetrics.AverageMMActivity, 0.53)
		set(gpumetrics.VoltageSoc, 900)
		set(gpumetrics.VoltageGfx, 801)
	}
	if revision == "3.0" {
		set(gpumetrics.AverageSocketPower, 54)
	}
	return w
}

// partitioned is what 1.6 and later say; the board is in DPX mode, two
// partitions of four XCCs.
func partitioned(revision string, w map[reading]float64) {
	nan := math.NaN()
	for f, v := range map[gpumetrics.Field]float64{
		gpumetrics.AccumulationCounter: 6101, gpumetrics.ProchotResidency: 6002, gpumetrics.PPTResidency: 6003,
		gpumetrics.SocketThmResidency: 6004, gpumetrics.VRThmResidency: 6005, gpumetrics.HBMThmResidency: 6006,
		gpumetrics.NumPartition: 2, gpumetrics.PCIeOtherEnd: 4001, gpumetrics.VCNActivity: nan,
	} {
		w[reading{f, 0}] = v
	}
	cells := func(f gpumetrics.Field, v float64) {
		for _, i := range []int{0, 3, 8, 11} {
			w[reading{f, i}] = v
		}
		for _, i := range []int{4, 7, 12, 16, 63, 64, -1} {
			w[reading{f, i}] = nan
		}
	}
	cells(gpumetrics.XCPGfxBusy, 51)
	cells(gpumetrics.XCPGfxBusyAcc, 3002)
	for i, v := range map[int]float64{0: 21, 3: 24, 4: 21, 7: 24, 8: nan} {
		w[reading{gpumetrics.XCPVCNBusy, i}] = v
	}
	last := 62.0
	if revision == "1.8" {
		last = 70
	}
	for i, v := range map[int]float64{0: 31, 31: 62, 40: 31, 71: 62, 80: nan} {
		w[reading{gpumetrics.XCPJPEGBusy, i}] = v
	}
	w[reading{gpumetrics.XCPJPEGBusy, 39}] = nan
	if last == 70 {
		w[reading{gpumetrics.XCPJPEGBusy, 39}], w[reading{gpumetrics.XCPJPEGBusy, 79}] = last, last
	}
	switch revision {
	case "1.7":
		cells(gpumetrics.XCPBelowHostLimit, 7000)
	case "1.8":
		cells(gpumetrics.XCPBelowLimitPPT, 7000)
		cells(gpumetrics.XCPBelowLimitThm, 3500)
		cells(gpumetrics.XCPLowUtilization, 1750)
		cells(gpumetrics.XCPBelowLimitTotal, 10500)
	}
	if revision >= "1.7" {
		w[reading{gpumetrics.MemMaxBandwidth, 0}] = 5300
		w[reading{gpumetrics.XGMILinkStatus, 0}] = 0
		w[reading{gpumetrics.XGMILinkStatus, 7}] = 1
	}
}

// listed returns the values in 1.9's list for the same board, whose engines are not divided.
func listed(w map[reading]float64) {
	nan := math.NaN()
	for f, v := range map[gpumetrics.Field]float64{
		gpumetrics.AccumulationCounter: 6101, gpumetrics.ProchotResidency: 6002, gpumetrics.PPTResidency: 6003,
		gpumetrics.SocketThmResidency: 6004, gpumetrics.VRThmResidency: 6005, gpumetrics.HBMThmResidency: 6006,
		gpumetrics.NumPartition: nan, gpumetrics.PCIeOtherEnd: 4001, gpumetrics.VCNActivity: nan, gpumetrics.MemMaxBandwidth: 5300,
		gpumetrics.XGMILinkStatus: 0, gpumetrics.XCPGfxBusy: 51, gpumetrics.XCPGfxBusyAcc: 3002, gpumetrics.XCPVCNBusy: 21, gpumetrics.XCPJPEGBusy: 31,
		gpumetrics.XCPBelowLimitPPT: 7000, gpumetrics.XCPBelowLimitThm: 3500, gpumetrics.XCPLowUtilization: 1750, gpumetrics.XCPBelowLimitTotal: 10500,
		gpumetrics.XCPBelowHostLimit: nan, gpumetrics.TemperatureHBM: nan,
	} {
		w[reading{f, 0}] = v
	}
	w[reading{gpumetrics.XCPGfxBusy, 7}], w[reading{gpumetrics.XCPGfxBusy, 8}] = 51, nan
	w[reading{gpumetrics.XCPJPEGBusy, 39}], w[reading{gpumetrics.XCPJPEGBusy, 40}] = 70, nan
	w[reading{gpumetrics.XGMILinkStatus, 7}] = 1
}

func revisions() []string {
	return []string{"1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9", "2.0", "2.1", "2.2", "2.3", "2.4", "3.0"}
}

// Encoder and decoder use separate copies of the kernel's structures, so the test
// detects a misplaced member in either. One Metrics decodes all revisions, in both
// orders, so the test also detects values left from the previous file.
func TestDecode(t *testing.T) {
	d, m := gpumetrics.New(), new(gpumetrics.Metrics)
	list := revisions()
	for i := range len(list) * 2 {
		revision := list[min(i, len(list)*2-1-i)]
		if err := d.Decode(file(t, revision), m); err != nil {
			t.Errorf("revision %s: %v", revision, err)
			continue
		}
		for r, want := range expected(revision) {
			got := m.Float(r.f, r.i)
			if math.Abs(got-want) > 1e-9 || math.IsNaN(got) != math.IsNaN(want) {
				t.Errorf("revision %s: field %d[%d] = %v, want %v", revision, r.f, r.i, got, want)
			}
		}
	}
}

// The first form of 1.6 differs from the second in its size.
func TestEarly16(t *testing.T) {
	b := make([]byte, 384)
	copy(b, []byte{0x80, 0x01, 1, 6})
	put16 := func(at int, v uint16) { binary.LittleEndian.PutUint16(b[at:], v) }
	put16(4, 62)                                   // temperature_hotspot
	put16(16, 21)                                  // vcn_activity[0]
	binary.LittleEndian.PutUint32(b[104:], 6101)   // accumulation_counter
	binary.LittleEndian.PutUint64(b[160:], 800000) // pcie_bandwidth_inst, Mb/s
	put16(376, 1002)                               // current_uclk
	m := new(gpumetrics.Metrics)
	must(t, gpumetrics.New().Decode(b, m))
	for f, want := range map[gpumetrics.Field]float64{
		gpumetrics.TemperatureHotspot: 62, gpumetrics.VCNActivity: 21, gpumetrics.AccumulationCounter: 6101,
		gpumetrics.PCIeBandwidthInst: 100, gpumetrics.CurrentUclk: 1002,
	} {
		if got := m.Float(f, 0); got != want {
			t.Errorf("field %d = %v, want %v", f, got, want)
		}
	}
}

// UINT_MAX in the energy means "not available".
func TestNoEnergy(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1})
	d, m := gpumetrics.New(), new(gpumetrics.Metrics)
	for energy, want := range map[uint64]uint64{math.MaxUint32: gpumetrics.NA, math.MaxUint64: gpumetrics.NA, math.MaxUint32 + 1: math.MaxUint32 + 1, 0: 0} {
		tree.GPUs[0].Update(t, func(s *rocmtest.State) { s.Energy = energy })
		b, err := os.ReadFile(tree.GPUs[0].Path("gpu_metrics"))
		must(t, err)
		must(t, d.Decode(b, m))
		if got := m.Raw(gpumetrics.EnergyByASIC, 0); got != want {
			t.Errorf("energy %#x is read as %#x", energy, got)
		}
	}
}

func TestRefused(t *testing.T) {
	d, m := gpumetrics.New(), new(gpumetrics.Metrics)
	good := file(t, "1.3")
	f := func(name string, b []byte, want error) {
		t.Helper()
		must(t, d.Decode(good, m))
		if err := d.Decode(b, m); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if v := m.Float(gpumetrics.TemperatureEdge, 0); !math.IsNaN(v) || m.Has(gpumetrics.TemperatureEdge) {
			t.Errorf("%s: a value of the file before is still there: %v", name, v)
		}
	}
	with := func(at int, v byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = v
		return b
	}
	f("empty", nil, gpumetrics.ErrShort)
	f("torn header", good[:3], gpumetrics.ErrShort)
	f("torn", good[:119], gpumetrics.ErrShort)
	f("newer revision", with(3, 10), gpumetrics.ErrRevision)
	f("unknown format", with(2, 4), gpumetrics.ErrRevision)
	f("size of another revision", with(0, 104), gpumetrics.ErrRevision)
	f("size 0", with(0, 0), gpumetrics.ErrRevision)
	f("text", []byte("Query currently inaccessible\n"), gpumetrics.ErrShort)
}

func TestWraps(t *testing.T) {
	d, m := gpumetrics.New(), new(gpumetrics.Metrics)
	if m.Wraps(gpumetrics.GfxActivityAcc) || m.Raw(gpumetrics.GfxActivityAcc, 0) != gpumetrics.NA {
		t.Error("the zero value has something")
	}
	must(t, d.Decode(file(t, "1.5"), m))
	if !m.Wraps(gpumetrics.GfxActivityAcc) || m.Wraps(gpumetrics.EnergyAccumulator) || m.Wraps(gpumetrics.TemperatureHBM) {
		t.Error("Wraps is not that of revision 1.5")
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	d, m := gpumetrics.New(), new(gpumetrics.Metrics)
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
	f.Add([]byte{0x80, 0x01, 1, 6})
	d := gpumetrics.New()
	f.Fuzz(func(t *testing.T, b []byte) {
		a, z := new(gpumetrics.Metrics), new(gpumetrics.Metrics)
		errA := d.Decode(b, a)
		errZ := d.Decode(append(append(make([]byte, 0, len(b)+64), b...), make([]byte, 64)...), z)
		if errA != nil {
			for field := range gpumetrics.Field(100) {
				if a.Raw(field, 0) != gpumetrics.NA {
					t.Fatalf("%v and yet field %d", errA, field)
				}
			}
			return
		}
		if errZ != nil {
			t.Fatalf("bytes behind the file change the answer: %v", errZ)
		}
		for field := range gpumetrics.Field(100) {
			for i := -1; i <= field.Len(); i++ {
				if a.Raw(field, i) != z.Raw(field, i) {
					t.Fatalf("field %d[%d] depends on bytes behind the file", field, i)
				}
			}
		}
	})
}

// must ends the test on an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
