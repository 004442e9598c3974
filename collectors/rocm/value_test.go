package rocm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// simulated is a collector of all fields with a tree.
type simulated struct {
	*opened
	tree *rocmtest.Tree
}

func simulate(t *testing.T, o rocmtest.Options) *simulated {
	t.Helper()
	tree := rocmtest.NewTree(t, o)
	return &simulated{mustOpen(t, Options{Root: tree.Root, Source: SourceSysfs}, collectortest.Fields()), tree}
}

// want compares a value of GPU gpu. NaN means blank, and absent means that no column exists.
func (s *simulated) want(gpu int, name, labels string, want float64) {
	s.t.Helper()
	s.wantOf(uuidOf(s.tree.GPUs[gpu]), name, labels, want)
}

func (s *simulated) wantOf(device, name, labels string, want float64) {
	s.t.Helper()
	got, ok := s.value(device, name, labels)
	switch {
	case want == absent:
		testkit.ErrorIf(s.t, ok, "%s{%s} of %s is %v, want no column", name, labels, device, got)
	case !ok:
		s.t.Errorf("%s{%s} of %s: no column", name, labels, device)
	case math.IsNaN(want) != math.IsNaN(got) || math.Abs(got-want) > 1e-9*math.Abs(want):
		s.t.Errorf("%s{%s} of %s = %v, want %v", name, labels, device, got, want)
	}
}

var (
	nan    = math.NaN()
	absent = math.Inf(1)
)

// state changes the state of all GPUs.
func (s *simulated) state(f func(s *rocmtest.State)) {
	s.t.Helper()
	for _, g := range s.tree.GPUs {
		g.Update(s.t, f)
	}
}

// TestDCGMValues checks values with DCGM's names and units for each model.
func TestDCGMValues(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.MI250X})
	s.state(func(s *rocmtest.State) {
		s.Util, s.MemUtil, s.MMUtil, s.Watts, s.Energy = 37, 22, 9, 401, 65536*7
		s.EdgeC, s.JunctionC, s.MemC, s.SclkMHz, s.MclkMHz, s.VRAMUsed = 51, 63, 58, 1234, 1600, 5<<20
		s.Replays, s.Correctable, s.Uncorrectable = 11, 5, 2
	})
	s.sample()
	for name, want := range map[string]float64{
		"DCGM_FI_DEV_SM_CLOCK": 1234, "DCGM_FI_DEV_MEM_CLOCK": 1600, "DCGM_FI_DEV_MAX_SM_CLOCK": 1700,
		"DCGM_FI_DEV_GPU_TEMP": 51, "DCGM_FI_DEV_MEMORY_TEMP": 58, "DCGM_FI_DEV_SLOWDOWN_TEMP": 100, "DCGM_FI_DEV_SHUTDOWN_TEMP": 105,
		"DCGM_FI_DEV_POWER_USAGE": 401, "DCGM_FI_DEV_POWER_MGMT_LIMIT": 560, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 7000,
		"DCGM_FI_DEV_GPU_UTIL": 37, "DCGM_FI_DEV_MEM_COPY_UTIL": 22, "DCGM_FI_DEV_ENC_UTIL": 9, "DCGM_FI_DEV_DEC_UTIL": 9,
		"DCGM_FI_DEV_FB_USED": 5, "DCGM_FI_DEV_FB_TOTAL": 65520, "DCGM_FI_DEV_FB_FREE": 65515,
		"DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 11, "DCGM_FI_DEV_PCIE_LINK_GEN": 4, "DCGM_FI_DEV_PCIE_LINK_WIDTH": 16,
		"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 5, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 2,
		"DCGM_FI_DEV_RETIRED_DBE": 1, "DCGM_FI_DEV_RETIRED_PENDING": 1, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
		"DCGM_FI_DEV_COUNT": 2, "DCGM_FI_DEV_NVML_INDEX": 0,
		"DCGM_FI_DEV_FAN_SPEED": absent, "DCGM_FI_DEV_XID_ERRORS": absent, "DCGM_FI_DEV_FB_RESERVED": absent,
		"DCGM_FI_PROF_PCIE_TX_BYTES": absent, // no row names an interval
	} {
		s.want(0, name, "", want)
	}
	// Only the first die reports the package's power.
	s.want(1, "DCGM_FI_DEV_POWER_USAGE", "", nan)
	s.want(1, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "", nan)
	s.want(1, "DCGM_FI_DEV_GPU_UTIL", "", 37)
	s.want(0, "amd_gpu_temperature_celsius", "sensor=junction", 63)
	s.want(0, "amd_gpu_ras_errors_total", "block=umc,severity=ce", 5)
	s.want(0, "amd_gpu_clock_hertz", "clock=gfx", 1234e6)
}

// TestJunctionInsteadOfEdge checks that MI300, which has no edge sensor, shows the junction's
// temperature instead, and also with its own label. All ones mean "not available".
func TestJunctionInsteadOfEdge(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.MI300X})
	s.state(func(s *rocmtest.State) {
		s.JunctionC, s.Watts, s.VRSocC, s.VCN[2] = 71, 512, math.MaxUint16, math.MaxUint16
	})
	s.sample()
	s.want(0, "DCGM_FI_DEV_GPU_TEMP", "", 71)
	s.want(0, "amd_gpu_temperature_celsius", "sensor=junction", 71)
	s.want(0, "amd_gpu_temperature_celsius", "sensor=edge", absent)
	s.want(0, "amd_gpu_temperature_celsius", "sensor=vrsoc", nan)
	s.want(0, "amd_gpu_vcn_busy_ratio", "instance=2", nan)
	s.want(0, "DCGM_FI_DEV_POWER_USAGE", "", 512)
	s.want(0, "DCGM_FI_DEV_POWER_USAGE_INSTANT", "", 512)

	// A board with an edge sensor never shows another sensor instead.
	s = simulate(t, rocmtest.Options{Model: rocmtest.MI250X, Metrics: "1.1"})
	s.tree.GPUs[0].Set(t, "hwmon/temp1_input", "")
	s.state(func(s *rocmtest.State) { s.EdgeC, s.JunctionC = math.MaxUint16, 90 })
	s.sample()
	s.want(0, "DCGM_FI_DEV_GPU_TEMP", "", nan)
}

// TestUnsupportedIsDecidedPerSample checks that a file that is empty now may have a value later.
func TestUnsupportedIsDecidedPerSample(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.MI300X})
	g := s.tree.GPUs[0]
	key := "ras/umc_err_count"
	g.Set(t, "hwmon/power1_input", "0\n")
	g.Update(t, func(s *rocmtest.State) { s.Watts, s.Correctable = 0, 3 })
	s.sample()
	s.want(0, "DCGM_FI_DEV_POWER_USAGE", "", nan)
	s.want(0, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "", 3)
	g.Reset(t, "hwmon/power1_input")
	g.Update(t, func(s *rocmtest.State) { s.Watts = 300 })
	g.Set(t, key, rocmtest.Inaccessible)
	s.sample()
	s.want(0, "DCGM_FI_DEV_POWER_USAGE", "", 300)
	s.want(0, "amd_gpu_ras_errors_total", "block=umc,severity=ce", nan)
	s.want(0, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "", 3) // the sum does not go back while a block resets
	g.Reset(t, key)
	s.sample()
	s.want(0, "amd_gpu_ras_errors_total", "block=umc,severity=ce", 3)
}

// TestSharesOfTime checks the sums that the firmware updates each millisecond: no burst is
// lost, and 32-bit counters may wrap.
func TestSharesOfTime(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.7"})
	const start = math.MaxUint32 - 30_000
	s.state(func(s *rocmtest.State) { s.GfxAcc, s.MemAcc, s.Util = start, 0, 0 })
	s.sample()
	s.want(0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "", nan)
	step := func(ms, percent uint64) {
		s.state(func(s *rocmtest.State) {
			s.Nanos += ms * 1e6
			s.GfxAcc = (s.GfxAcc + ms*percent) & math.MaxUint32
			s.MemAcc += ms * percent / 2
			for i := range s.XGMIWrite {
				s.XGMIWrite[i] += 1000 * ms // KiB
			}
		})
		s.sample()
	}
	step(500, 40)
	s.want(0, "DCGM_FI_DEV_GPU_UTIL", "", 0) // the current value
	s.want(0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "", 0.4)
	s.want(0, "DCGM_FI_PROF_DRAM_ACTIVE", "", 0.2)
	s.want(0, "DCGM_FI_PROF_NVLINK_TX_BYTES", "", 8*1000*1000*1024)
	s.want(0, "DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_TOTAL", "", 8000)
	s.wantOf(uuidOf(s.tree.GPUs[0])+"/link0", "DCGM_FI_DEV_NVLINK_TX_THROUGHPUT_PER_LINK", "", 1000)
	step(400, 90) // wraps
	s.want(0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "", 0.9)
	s.sample() // no time has passed, so the last rate stays
	s.want(0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "", 0.9)
	step(800, 10) // over a second: the firmware's stamp is in use now
	step(1000, 60)
	s.want(0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "", 0.6)

	s.state(func(s *rocmtest.State) { s.Nanos, s.GfxAcc = 5e6, 0 }) // the GPU was reset
	s.sample()
	s.want(0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "", nan)
	step(1000, 30)
	s.want(0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "", 0.3)
}

// TestThrottling checks the throttled time from residencies.
func TestThrottling(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.7"})
	s.state(func(s *rocmtest.State) { s.Cycles, s.PPT, s.Prochot = 1000, 50, 0 })
	s.sample()
	s.want(0, "DCGM_FI_DEV_POWER_VIOLATION", "", 0)
	s.want(0, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "", nan)
	s.state(func(s *rocmtest.State) {
		s.Nanos += 1e9
		s.Cycles += 1000
		s.PPT += 250
		s.HBMThermal, s.VRThermal = s.HBMThermal+100, s.VRThermal+300
	})
	s.sample()
	s.want(0, "DCGM_FI_DEV_POWER_VIOLATION", "", 0.25e9)
	s.want(0, "DCGM_FI_DEV_THERMAL_VIOLATION", "", 0.3e9)
	s.want(0, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "", reasonPower|reasonThermal)
	s.want(0, "amd_gpu_throttle_residency_total", "reason=ppt", 300)
	s.want(0, "amd_gpu_throttle_active", "reason=prochot", 0)
	s.want(0, "amd_gpu_throttle_active", "reason=thermal", 1)

	// Older boards report bits.
	s = simulate(t, rocmtest.Options{Model: rocmtest.MI250X})
	for bits, want := range map[uint64]float64{
		0: 0, 1: reasonPower, 1 << 16: reasonSlow, 1 << 36: reasonThermal, 1 << 46: reasonSlow | reasonBrake, 1<<7 | 1<<34: reasonPower | reasonThermal,
	} {
		s.state(func(s *rocmtest.State) { s.Throttle = bits })
		s.sample()
		s.want(0, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "", want)
	}
	s.want(0, "DCGM_FI_DEV_POWER_VIOLATION", "", absent)
}

// TestThrottlingIsConfirmed checks that a temperature's throttle bit counts only near the sensor's
// limit, because Radeons always set the hotspot's bit.
func TestThrottlingIsConfirmed(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1})
	f := func(bits, edge, junction, memory uint64, want float64) {
		t.Helper()
		s.state(func(s *rocmtest.State) { s.Throttle, s.EdgeC, s.JunctionC, s.MemC = bits, edge, junction, memory })
		s.sample()
		s.want(0, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "", want)
		thermal := math.NaN()
		if want == want { //nolint:gocritic // not NaN
			thermal = min(float64(int(want)&reasonThermal), 1)
		}
		s.want(0, "amd_gpu_throttle_active", "reason=thermal", thermal)
		s.want(0, "amd_gpu_throttle_active", "reason=power", float64(bits&1))
	}
	const hotspot, edge, memory, vr = 1 << 36, 1 << 35, 1 << 34, 1 << 38
	f(hotspot, 38, 41, 57, 0) // idle: limits are 100 °C
	f(hotspot|1, 38, 94, 57, reasonPower)
	f(hotspot, 38, 95, 57, reasonThermal)
	f(hotspot|edge|memory, 94, 94, 94, 0)
	f(edge, 96, 41, 57, reasonThermal)
	f(memory, 38, 41, 96, reasonThermal)
	f(vr, 38, 41, 57, reasonThermal) // no known limit, so the bit counts
	f(hotspot, 38, math.MaxUint16, 57, nan)
	f(0, 38, math.MaxUint16, 57, 0)
	s.tree.GPUs[0].Set(t, "hwmon/temp2_crit", "")
	f(hotspot, 38, 41, 57, nan)
	f(memory, 38, 41, 57, 0)
}

// TestResidenciesAreUnknown checks that unavailable residencies are not 0 and do not make others 0.
func TestResidenciesAreUnknown(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.6", GPUs: 1})
	for range 3 {
		s.state(func(s *rocmtest.State) {
			s.Nanos += 1e9
			s.Cycles += 1000
			s.PPT, s.HBMThermal = s.Cycles, s.Cycles
		})
		s.sample()
	}
	s.want(0, "DCGM_FI_DEV_POWER_VIOLATION", "", nan)
	s.want(0, "DCGM_FI_DEV_THERMAL_VIOLATION", "", nan)
	s.want(0, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "", nan)
	s.want(0, "amd_gpu_throttle_active", "reason=power", nan)
	s.want(0, "amd_gpu_throttle_active", "reason=thermal", nan)
	s.want(0, "amd_gpu_throttle_active", "reason=prochot", 0)
	s.want(0, "amd_gpu_throttle_residency_total", "reason=ppt", nan)
	s.want(0, "amd_gpu_throttle_residency_total", "reason=vr_thermal", 0)
	s.state(func(s *rocmtest.State) {
		s.Nanos += 1e9
		s.Cycles += 1000
		s.PPT, s.HBMThermal, s.VRThermal = s.Cycles, s.Cycles, 7
	})
	s.sample()
	s.want(0, "amd_gpu_throttle_active", "reason=thermal", 1) // one is enough

	old := simulate(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.3", GPUs: 1}) // its bits mean nothing
	old.sample()
	old.want(0, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "", absent)
	old.want(0, "amd_gpu_throttle_active", "reason=power", absent)
}

// TestCountersContinue checks that 32-bit counters continue when they wrap, and start again after a reset.
func TestCountersContinue(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.7", GPUs: 1})
	const wrap = 1 << 32
	count := uint64(wrap - 60_000)
	f := func(ms, busy uint64, want float64) {
		t.Helper()
		count += busy
		s.state(func(s *rocmtest.State) { s.Nanos, s.GfxAcc, s.Cycles = s.Nanos+ms*1e6, count%wrap, s.Cycles+ms })
		s.sample()
		s.want(0, "amd_gpu_busy_seconds_total", "engine=gfx", want/1e5)
	}
	f(0, 0, wrap-60_000)
	f(1000, 50_000, wrap-10_000)
	f(1000, 50_000, wrap+40_000)
	f(0, 0, wrap+40_000)
	f(500, 10_000, wrap+50_000)
	count = 0
	f(1000, 300, 300) // 4.29e9 % × ms in a second is impossible, so it was reset
	f(1000, 100_000, 100_300)
	f(2*maxGap*1000, 100, 100_400) // after a gap in which it may wrap: the raw value
}

// TestUnread checks that unknown attributes and revisions are counted, and that other files are still read.
func TestUnread(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.9", GPUs: 3})
	file := []byte(readFile(t, tree.GPUs[0].Path("gpu_metrics")))
	odd := slices.Clone(file)
	odd[8+1], odd[8+2] = 0xfc, odd[8+2]&0xf0|0xf // the first attribute becomes number 1023
	tree.GPUs[0].Set(t, "gpu_metrics", string(odd))
	for _, g := range tree.GPUs[1:] {
		newer := slices.Clone(file)
		newer[3] = 10
		g.Set(t, "gpu_metrics", string(newer))
	}
	s := &simulated{mustOpen(t, Options{Root: tree.Root, Source: SourceSysfs, Log: zap.New(core)}, collectortest.Fields()), tree}
	for range 3 {
		s.sample()
	}
	s.want(0, "amd_gpu_unread", "what=attributes", 1)
	s.want(0, "amd_gpu_unread", "what=gpu_metrics", 0)
	s.want(0, "amd_gpu_unread", "what=partitions", 0)
	for i := 1; i < 3; i++ {
		s.want(i, "amd_gpu_unread", "what=attributes", nan)
		s.want(i, "amd_gpu_unread", "what=gpu_metrics", 1)
		s.want(i, "DCGM_FI_DEV_GPU_TEMP", "", float64(tree.GPUs[i].State.JunctionC))
		s.want(i, "DCGM_FI_DEV_POWER_USAGE", "", float64(tree.GPUs[i].State.Watts))
		s.want(i, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "", nan)
	}
	unknown := logs.FilterField(zap.Int("attributes", 1)).Len()
	if revision := logs.FilterMessageSnippet("unknown revision"); logs.Len() != 2 || unknown != 1 || revision.Len() != 1 || !strings.Contains(revision.All()[0].ContextMap()["error"].(string), "revision 1.10") {
		t.Errorf("logged %v, want one warning of each", logs.All())
	}
	tree.GPUs[1].Reset(t, "gpu_metrics")
	s.sample()
	s.want(1, "amd_gpu_unread", "what=gpu_metrics", 0)
	tree.GPUs[0].Set(t, "gpu_metrics", "cut")
	s.sample()
	testkit.Equal(t, "reason", "blank: gpu_metrics cannot be read: the log says why", s.reason("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"))
}

func (s *simulated) reason(name string) string {
	s.t.Helper()
	return collectortest.ReasonOf(s.t, s.sources[0], s.rows[0], 0, name)
}

// TestClockWithoutLevel checks an idle Radeon: no level of its clock is marked, and gpu_metrics has an old value.
func TestClockWithoutLevel(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1})
	s.state(func(s *rocmtest.State) { s.SclkMHz = 2605 })
	s.tree.GPUs[0].Set(t, "pp_dpm_sclk", "0: 500Mhz\n1: 2605Mhz\n")
	s.tree.GPUs[0].Set(t, "hwmon/freq1_input", "20000000\n")
	s.sample()
	s.want(0, "DCGM_FI_DEV_SM_CLOCK", "", 20)
	s.want(0, "amd_gpu_clock_hertz", "clock=gfx", 20e6)
	s.tree.GPUs[0].Remove(t, "hwmon/freq1_input")
	s.sample()
	s.want(0, "DCGM_FI_DEV_SM_CLOCK", "", 2605)
}

// TestKernelsLists checks that the lists of three kernels give the same values. SMU 15 has XGMI's data over all links only.
func TestKernelsLists(t *testing.T) {
	of := func(revision string) *simulated {
		s := simulate(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: revision, GPUs: 1})
		for range 2 { // rates need two samples
			s.state(func(s *rocmtest.State) {
				s.GfxAcc, s.MemAcc, s.PPT, s.PCIeMbits, s.Nanos = 123_000, 45_000, 678, 283, s.Nanos+1e9
				s.XGMIRead[2], s.XGMIWrite[5] = s.XGMIRead[2]+8e6, s.XGMIWrite[5]+24e6
			})
			s.sample()
		}
		return s
	}
	before, wide, smu15 := of("1.9"), of("1.9, wide"), of("1.9, SMU 15")
	sums := map[string]float64{}
	for _, c := range before.sources[0].Columns() {
		d, _ := field.ByID(c.Field)
		labels, id := text(c.Labels), before.sources[0].Devices()[c.Device].ID
		want, _ := before.value(id, d.Name, labels)
		wide.wantOf(id, d.Name, labels, want)
		if direction, _, perLink := strings.Cut(labels, ",link="); perLink {
			sums[direction] += want
		} else if d.Level != field.Link && labels != "what=attributes" && c.Field != field.AMDXGMIBytes {
			smu15.wantOf(id, d.Name, labels, want)
		}
	}
	for direction, sum := range sums {
		smu15.want(0, "amd_gpu_xgmi_bytes_total", direction, sum)
	}
	before.want(0, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "", 8*4e6*1024/1024000)
	smu15.want(0, "amd_gpu_temperature_celsius", "sensor=hbm11", float64(smu15.tree.GPUs[0].State.HBMC[3]))
	smu15.want(0, "amd_gpu_unread", "what=attributes", 3)
	before.want(0, "amd_gpu_pcie_throughput_bytes_per_second", "", 283e6/8) // an MI325X's mean; as GB/s more than twice what its link carries
}

// TestLinkLimits checks that the session drops rates that links of 64 GB/s in each direction cannot carry.
func TestLinkLimits(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.9", GPUs: 1})
	for mbits, want := range map[uint64]string{1e6: "[1.25e+11 2.8672e+11 +Inf]", 1.3e6: "[+Inf +Inf +Inf]"} {
		for range 2 { // rates need two samples; kB in a second
			s.state(func(s *rocmtest.State) {
				s.PCIeMbits, s.Nanos, s.XGMIRead[3] = mbits, s.Nanos+1e9, s.XGMIRead[3]+map[uint64]uint64{1e6: 280e6, 1.3e6: 800e6}[mbits]
			})
			s.sample()
		}
		pcie, _ := s.value(uuidOf(s.tree.GPUs[0]), "amd_gpu_pcie_throughput_bytes_per_second", "")
		xgmi, _ := s.value(uuidOf(s.tree.GPUs[0]), "DCGM_FI_PROF_NVLINK_RX_BYTES", "")
		link, _ := s.value(uuidOf(s.tree.GPUs[0]), "amd_gpu_xgmi_bytes_total", "direction=read,link=3")
		testkit.Equal(t, fmt.Sprintf("%d Mb/s over PCIe, and over XGMI", mbits), want, fmt.Sprint([]float64{pcie, xgmi, link}))
	}
}

// TestHiddenPartitions checks partitions that the device control group hides: the others keep number
// and values, a metric counts the hidden ones, and one warning names the cause.
func TestHiddenPartitions(t *testing.T) {
	for revision, firmware := range map[string]bool{"1.8": true, "1.9": true, "1.3": false} {
		core, logs := observer.New(zap.WarnLevel)
		tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: revision, GPUs: 2, Partition: "CPX"})
		for i := range 8 {
			if i != 5 {
				tree.GPUs[0].Hide(t, i)
			}
		}
		tree.AsUser(t, func() {
			s := &simulated{mustOpen(t, Options{Root: tree.Root, Source: SourceSysfs, Log: zap.New(core)}, collectortest.Fields()), tree}
			s.sample()
			board := uuidOf(tree.GPUs[0])
			d := s.sources[0].Devices()[1]
			testkit.ErrorIf(t, d.ID != board+"/5" || d.Node != tree.GPUs[0].Instances[5].Render, "%+v, want instance 5", d)
			s.want(0, "amd_gpu_xcc_busy_ratio", "xcc=0", absent)
			if !firmware { // the number of partitions in CPX mode is unknown
				s.want(0, "amd_gpu_unread", "what=partitions", nan)
				return
			}
			s.want(0, "amd_gpu_unread", "what=partitions", 7)
			s.want(1, "amd_gpu_unread", "what=partitions", 0)
			s.wantOf(board+"/5", "amd_gpu_xcc_busy_ratio", "xcc=0", float64(tree.GPUs[0].State.Util)/100)
			s.wantOf(board+"/5", "DCGM_FI_DEV_FB_TOTAL", "", 206141652992/8>>20)
		})
		testkit.ErrorIf(t, logs.Len() != 1 || logs.All()[0].ContextMap()["devices"] != int64(7), "logged %v, want one warning with 7 devices", logs.All())
	}
}

// TestPartitionFiles checks the separate files of partitions in revision 1.9.
func TestPartitionFiles(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.9", GPUs: 1, Partition: "QPX"})
	g := s.tree.GPUs[0]
	file := func(i int) string {
		return s.tree.Path("class/drm/" + g.Instances[i].Render + "/device/xcp/xcp_metrics")
	}
	part := func(i int) string { return uuidOf(g) + "/" + strconv.Itoa(i) }
	other := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.9", GPUs: 1, Partition: "QPX"})
	other.GPUs[0].Update(t, func(s *rocmtest.State) { s.Util, s.VCN[1], s.BelowLimit, s.GfxAcc = 77, 13, 400, 12345 })
	replace := func(i int, text string) {
		t.Helper()
		must(t, os.WriteFile(file(i), []byte(text), 0o600))
	}
	replace(2, readFile(t, other.Path("class/drm/"+other.GPUs[0].Instances[2].Render+"/device/xcp/xcp_metrics")))
	replace(3, "")
	s.sample()
	s.wantOf(part(2), "amd_gpu_xcc_busy_ratio", "xcc=1", 0.77)
	s.wantOf(part(2), "amd_gpu_xcc_busy_ratio", "xcc=2", nan) // each partition has two chiplets
	s.wantOf(part(2), "amd_gpu_xcc_busy_seconds_total", "xcc=0", 0.12345)
	s.wantOf(part(2), "amd_gpu_vcn_busy_ratio", "instance=1", 0.13)
	s.wantOf(part(2), "amd_gpu_gfxclk_below_limit_total", "reason=thermal,xcc=0", 200)
	s.wantOf(part(0), "amd_gpu_xcc_busy_ratio", "xcc=1", float64(g.State.Util)/100)
	s.wantOf(part(3), "amd_gpu_xcc_busy_ratio", "xcc=0", nan) // not from the GPU's file
	s.want(0, "amd_gpu_unread", "what=attributes", 0)
	replace(3, string([]byte{8, 0, 1, 7, 0, 0, 0, 0})) // another revision
	s.sample()
	s.want(0, "amd_gpu_unread", "what=attributes", 1)
	s.wantOf(part(2), "amd_gpu_xcc_busy_ratio", "xcc=1", 0.77)
}

func TestPartitions(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.8", Partition: "CPX", Memory: "NPS4"})
	s.tree.Start(t, rocmtest.Process{PID: 7, Uses: []rocmtest.Use{{GPU: 1, Instance: 3, VRAM: 2 << 30, CUs: 19}}})
	s.sample()
	board := uuidOf(s.tree.GPUs[1])
	devices := s.sources[1].Devices()
	at := slices.IndexFunc(devices, func(d collector.Device) bool { return d.ID == board+"/3" })
	testkit.FatalIf(t, at < 0, "no instance 3 among %+v", devices)
	d := devices[at]
	if d.Level != field.Instance || d.Parent != board || d.Instance.ID != "3" || d.Instance.Profile != "cpx" || d.UUID != board || d.Node != s.tree.GPUs[1].Instances[3].Render {
		t.Errorf("instance 3 is %+v", d)
	}
	s.wantOf(d.ID, "DCGM_FI_DEV_FB_TOTAL", "", 206141652992/8>>20)
	s.wantOf(d.ID, "DCGM_FI_DEV_FB_USED", "", 2048)
	s.wantOf(d.ID, "amd_gpu_processes", "", 1)
	s.wantOf(d.ID, "amd_gpu_compute_unit_occupancy_ratio", "", 0.5)
	s.wantOf(d.ID, "amd_gpu_xcc_busy_ratio", "xcc=0", float64(s.tree.GPUs[1].State.Util)/100)
	s.wantOf(d.ID, "DCGM_FI_DEV_POWER_USAGE", "", absent) // the board's
	s.want(1, "amd_gpu_xcc_busy_ratio", "xcc=0", absent)  // the instances'
	s.want(1, "amd_gpu_partition_info", "compute=CPX,memory=NPS4", 1)
	s.want(1, "amd_gpu_processes", "", 1)
	s.state(func(s *rocmtest.State) { s.Nanos, s.GfxAcc = s.Nanos+1e9, s.GfxAcc+25_000 })
	s.sample()
	s.wantOf(d.ID, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "", 0.25)
}

func TestBoardWithoutUniqueID(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.APU, GPUs: 1})
	d := s.sources[0].Devices()[0]
	testkit.ErrorIf(t, d.ID != "GPU-0000:41:00.0" || d.UUID != d.ID || d.PCIBusID != "00000000:41:00.0" || d.Model == "", "device %+v", d)
}

// TestSuspended checks that a suspended board is not read, because that would wake it.
func TestSuspended(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1})
	s.sample()
	g := s.tree.GPUs[0]
	s.want(0, "DCGM_FI_DEV_GPU_UTIL", "", float64(g.State.Util))
	g.Set(t, "power/runtime_status", "suspended\n")
	pipe := g.FIFO(t, "gpu_metrics") // makes readers hang
	s.sample()
	s.want(0, "DCGM_FI_DEV_GPU_UTIL", "", nan)
	pipe.Close()
	g.Reset(t, "gpu_metrics")
	g.Set(t, "power/runtime_status", "active\n")
	s.sample()
	s.want(0, "DCGM_FI_DEV_GPU_UTIL", "", float64(g.State.Util))
}

// TestStalled checks the error of firmware that has stopped measuring while the driver keeps running.
func TestStalled(t *testing.T) {
	s := simulate(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.7", GPUs: 1})
	src := s.sources[0].(*source)
	for range 3 {
		s.tree.Step(t, time.Second)
		s.sample()
	}
	testkit.FatalIf(t, !src.time.firmware, "the firmware's stamp keeps time, and is not used")
	src.time.at -= frozenForNow + 1 // as if the stamp had been frozen for so long
	row := slices.Clone(s.rows[0])
	err := src.Sample(row, slices.Repeat([]bool{true}, len(row)))
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrStalled), "Sample = %v, want ErrStalled", err)
	s.tree.Step(t, time.Second)
	s.sample()
}

// TestBus checks that pcie_bw, in which the driver sleeps, is read only for rows with an interval, and never by Sample.
func TestBus(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1})
	tree.GPUs[0].Set(t, "pcie_bw", "300 700 256\n")
	device := uuidOf(tree.GPUs[0])
	o := mustOpen(t, Options{Root: tree.Root, Source: SourceSysfs}, list(t, "DCGM_FI_PROF_PCIE_TX_BYTES, gauge, t", "DCGM_FI_DEV_GPU_UTIL, gauge, u"))
	_, ok := o.value(device, "DCGM_FI_PROF_PCIE_TX_BYTES", "")
	testkit.ErrorIf(t, ok, "pcie_bw is read though no row names an interval")
	synctest.Test(t, func(t *testing.T) {
		o := mustOpen(t, Options{Root: tree.Root, Source: SourceSysfs}, list(t,
			"DCGM_FI_PROF_PCIE_TX_BYTES, gauge, t, interval=5s", "DCGM_FI_DEV_PCIE_RX_THROUGHPUT, gauge, r, interval=10s"))
		synctest.Wait()
		o.sample()
		check := func(name string, want float64) {
			t.Helper()
			v, ok := o.value(device, name, "")
			testkit.ErrorIf(t, !ok || math.IsNaN(v) != math.IsNaN(want) || v != want && !math.IsNaN(want), "%s = %v, %v, want %v", name, v, ok, want)
		}
		check("DCGM_FI_PROF_PCIE_TX_BYTES", 300*256)
		check("DCGM_FI_DEV_PCIE_RX_THROUGHPUT", 179) // 700 × 256 / 1000
		tree.GPUs[0].Set(t, "pcie_bw", "")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		o.sample()
		check("DCGM_FI_PROF_PCIE_TX_BYTES", nan)
	})
}
