package field

import (
	"strings"
	"sync"
)

// AMDName is a metric of AMD's exporter: where its value comes from, or why there is none.
type AMDName struct {
	Field string // as its configuration names it; the metric is that in small letters
	Help  string
	Unit  string
	Of    []AMDSource
	// Absent says why it is not served. If it is empty and Of, too, the exporter knows the
	// value itself (AMDNodes, AMDHealth).
	Absent string
}

// The fields that are no readings.
const (
	AMDNodes  = "GPU_NODES_TOTAL" // how many GPUs, or partitions, are reported; by hostname only
	AMDHealth = "GPU_HEALTH"      // 1 healthy, 0 not
)

// Metric returns the name of the metric.
func (n *AMDName) Metric(prefix string) string { return prefix + strings.ToLower(n.Field) }

// Text returns the help text, with the unit.
func (n *AMDName) Text() string {
	if n.Unit == "" {
		return n.Help
	}
	return n.Help + " (" + n.Unit + ")"
}

// AMDSource is a reading that is shown under a name of AMD's: those of its columns that have
// exactly the labels Where and Index.
type AMDSource struct {
	ID    ID
	Where []NameValue
	Index AMDIndex
	Add   []NameValue // further labels that the series has
	Scale float64     // value of the series = reading × Scale
}

// AMDIndex is a label with a number. Another name, and perhaps another number, has it in AMD's
// exporter. The zero AMDIndex is none.
type AMDIndex struct {
	From   string // label of the column
	Prefix string // of its value, which is not part of the number
	To     string // label of the series
	Plus   int    // added to the number
}

// Shorthands for the table.
func reading(id ID, scale float64) AMDSource { return AMDSource{ID: id, Scale: scale} }

func (s AMDSource) where(name, value string) AMDSource {
	s.Where = append(s.Where, NameValue{name, value})
	return s
}

func (s AMDSource) index(from, to string) AMDSource {
	s.Index.From, s.Index.To = from, to
	return s
}

// clock is a reading with the label clock, from Hz to MHz. AMD's exporter numbers a GPU's
// clocks through: 8 of graphics, memory, 4 of video, 4 of decoding, fabric, system
// (smi_fill_clock_status_ of https://github.com/ROCm/gpu-agent).
func clock(id ID, name, kind, number string) AMDSource {
	s := reading(id, 1e-6).where("clock", name)
	s.Add = []NameValue{{"clock_index", number}, {"clock_type", kind}}
	return s
}

func clocks(id ID, from string, kind string, plus int) AMDSource {
	s := reading(id, 1e-6)
	s.Index = AMDIndex{From: from, To: "clock_index", Plus: plus}
	s.Add = []NameValue{{"clock_type", kind}}
	return s
}

func clockLimits(id ID) []AMDSource {
	return []AMDSource{
		clock(id, "gfx", "system", "0"), clock(id, "mem", "memory", "8"), clock(id, "video", "video", "9"),
		clock(id, "decode", "data", "13"), clock(id, "fabric", "fabric", "17"), clock(id, "soc", "soc", "18"),
	}
}

func afids(severity string) AMDSource {
	s := reading(AMDAFID, 1).where("severity", severity).index("index", "afid_index")
	s.Add = []NameValue{{"severity", severity}}
	return s
}

func of(sources ...AMDSource) []AMDSource { return sources }

// Why names are absent.
const (
	amdProfiler = "the profiler allows one client at a time; it is not used"
	amdNeighbor = "counters of the data fabric that a program has to set up; gpu_xgmi_link_rx and gpu_xgmi_link_tx have the data of each link"
	amdUpcoming = "AMD's exporter does not fill it either"
)

// amdBlocks are the blocks of RAS under AMD's names and the driver's.
var amdBlocks = [...]NameValue{
	{"SDMA", "sdma"}, {"GFX", "gfx"}, {"MMHUB", "mmhub"}, {"ATHUB", "athub"}, {"BIF", "pcie_bif"}, {"HDP", "hdp"},
	{"XGMI_WAFL", "xgmi_wafl"}, {"DF", "df"}, {"SMN", "smn"}, {"SEM", "sem"}, {"MP0", "mp0"}, {"MP1", "mp1"},
	{"FUSE", "fuse"}, {"UMC", "umc"}, {"MCA", "mca"}, {"VCN", "vcn"}, {"JPEG", "jpeg"}, {"IH", "ih"}, {"MPIO", "mpio"},
}

// amdThrottles are AMD's names of what holds a GPU back, and the reasons of ours.
var amdThrottles = [...]NameValue{
	{"PROCESSOR_HOT", "prochot"}, {"PPT", "ppt"}, {"SOCKET_THERMAL", "socket_thermal"}, {"VR_THERMAL", "vr_thermal"}, {"HBM_THERMAL", "hbm_thermal"},
}

// amdBelowLimits are the same of a chiplet's clock.
var amdBelowLimits = [...]NameValue{
	{"GFX_CLOCK_BELOW_HOST_LIMIT_POWER", "power"}, {"GFX_CLOCK_BELOW_HOST_LIMIT_THERMAL", "thermal"},
	{"LOW_UTILIZATION", "low_utilization"}, {"GFX_CLOCK_BELOW_HOST_LIMIT_TOTAL", "any"},
}

// AMDNames returns all metrics of GPUs that AMD's exporter documents, in its order
// (docs/configuration/metricslist.md); units are those of its help texts. The slice must not
// be changed.
func AMDNames() []AMDName { return amdNames() }

var amdNames = sync.OnceValue(func() (out []AMDName) {
	add := func(field, unit, help string, sources ...AMDSource) {
		out = append(out, AMDName{Field: field, Unit: unit, Help: help, Of: sources})
	}
	none := func(field, help, why string) { out = append(out, AMDName{Field: field, Help: help, Absent: why}) }
	hbm := reading(AMDTemperature, 1).index("sensor", "hbm_index")
	hbm.Index.Prefix = "hbm"
	const toMB = 1.0 / (1 << 20)

	add(AMDNodes, "", "GPUs that are reported, partitions each as one")
	add(AMDHealth, "", "Health of the GPU: 1 healthy, 0 unhealthy")
	add("GPU_EDGE_TEMPERATURE", "celsius", "Edge temperature", reading(AMDTemperature, 1).where("sensor", "edge"))
	add("GPU_JUNCTION_TEMPERATURE", "celsius", "Junction (hotspot) temperature", reading(AMDTemperature, 1).where("sensor", "junction"))
	add("GPU_MEMORY_TEMPERATURE", "celsius", "Memory temperature", reading(AMDTemperature, 1).where("sensor", "mem"))
	add("GPU_HBM_TEMPERATURE", "celsius", "Temperature of a stack of HBM", hbm)
	add("GPU_PACKAGE_POWER", "W", "Present power of the socket", reading(dcgmPowerInstant, 1))
	add("GPU_AVERAGE_PACKAGE_POWER", "W", "Average power of the socket", reading(AMDPowerAverage, 1))
	add("GPU_POWER_USAGE", "W", "Power of the socket, average if the board has it, else present", reading(dcgmPower, 1))
	add("GPU_ENERGY_CONSUMED", "µJ", "Energy since the driver was loaded", reading(dcgmEnergy, 1000))
	add("GPU_GFX_ACTIVITY", "%", "Utilisation of the graphics engine", reading(dcgmGPUUtil, 1))
	add("GPU_UMC_ACTIVITY", "%", "Utilisation of the memory controller", reading(dcgmMemUtil, 1))
	add("GPU_MMA_ACTIVITY", "%", "Utilisation of the busiest video engine", reading(dcgmEncUtil, 1))
	add("GPU_VCN_ACTIVITY", "%", "Utilisation of a video engine", reading(AMDVCNBusy, 100).index("instance", "vcn_index"))
	add("GPU_JPEG_ACTIVITY", "%", "Utilisation of a JPEG engine", reading(AMDJPEGBusy, 100).index("instance", "jpeg_index"))
	add("GPU_GFX_BUSY_INSTANTANEOUS", "%", "Utilisation of a chiplet with compute units", reading(AMDXCCBusy, 100).index("xcc", "xcc_index"))
	add("GPU_VCN_BUSY_INSTANTANEOUS", "%", "Utilisation of a video engine", reading(AMDVCNBusy, 100).index("instance", "xcc_index"))
	add("GPU_JPEG_BUSY_INSTANTANEOUS", "%", "Utilisation of a JPEG engine", reading(AMDJPEGBusy, 100).index("instance", "xcc_index"))
	none("GPU_PROCESS_CU_OCCUPANCY", "Compute units of a process", "each process would make new series; amd_gpu_compute_unit_occupancy_ratio is that of the GPU, /api/v1/devices lists processes")
	add("GPU_VOLTAGE", "mV", "Voltage of the SoC", reading(AMDVoltage, 1000).where("rail", "soc"))
	add("GPU_GFX_VOLTAGE", "mV", "Voltage of graphics", reading(AMDVoltage, 1000).where("rail", "gfx"))
	add("GPU_MEMORY_VOLTAGE", "mV", "Voltage of memory", reading(AMDVoltage, 1000).where("rail", "mem"))
	add("PCIE_SPEED", "GT/s", "Speed of a lane of PCIe", reading(AMDPCIeSpeed, 1e-9))
	add("PCIE_MAX_SPEED", "GT/s", "Highest speed of a lane of PCIe", reading(AMDPCIeSpeedMax, 1e-9))
	add("PCIE_BANDWIDTH", "Mb/s", "PCIe data in both directions", reading(AMDPCIeThroughput, 8e-6))
	add("PCIE_REPLAY_COUNT", "", "PCIe replays", reading(dcgmReplays, 1))
	add("PCIE_RECOVERY_COUNT", "", "Times the PCIe link had to recover", reading(AMDPCIeRecoveries, 1))
	add("PCIE_REPLAY_ROLLOVER_COUNT", "", "PCIe replays that led to another training of the link", reading(AMDPCIeRollovers, 1))
	add("PCIE_NACK_SENT_COUNT", "", "PCIe packets that the GPU refused", reading(AMDPCIeNAKs, 1).where("direction", "sent"))
	add("PCIE_NACK_RECEIVED_COUNT", "", "PCIe packets of the GPU that were refused", reading(AMDPCIeNAKs, 1).where("direction", "received"))
	none("PCIE_RX", "Data received over PCIe", amdUpcoming)
	none("PCIE_TX", "Data sent over PCIe", amdUpcoming)
	none("PCIE_BIDIRECTIONAL_BANDWIDTH", "Accumulated PCIe data", "the firmware adds up rates in GB/s at an interval that no source names; pcie_bandwidth is the present rate")
	add("GPU_CLOCK", "MHz", "Clock by type", append(of(
		clocks(AMDXCCClock, "xcc", "system", 0), clock(AMDClock, "mem", "memory", "8"),
		clocks(AMDEngineClock, "instance", "video", 9).where("clock", "video"), clocks(AMDEngineClock, "instance", "data", 13).where("clock", "decode"),
		clock(AMDClock, "fabric", "fabric", "17")), clock(AMDClock, "soc", "soc", "18"))...)
	add("GPU_MIN_CLOCK", "MHz", "Lowest clock by type", clockLimits(AMDClockMin)...)
	add("GPU_MAX_CLOCK", "MHz", "Highest clock by type", clockLimits(AMDClockMax)...)
	add("GPU_TOTAL_VRAM", "MB", "Size of VRAM", reading(dcgmFBTotal, 1))
	add("GPU_USED_VRAM", "MB", "VRAM in use", reading(dcgmFBUsed, 1))
	add("GPU_FREE_VRAM", "MB", "VRAM that is free", reading(dcgmFBFree, 1))
	for _, m := range []NameValue{{"VISIBLE_VRAM", "visible"}, {"GTT", "gtt"}} {
		what := map[string]string{"visible": "VRAM that the CPU reaches", "gtt": "host memory as the GPU maps it"}[m.Value]
		add("GPU_TOTAL_"+m.Name, "MB", "Size of "+what, reading(AMDMemorySize, toMB).where("memory", m.Value))
		add("GPU_USED_"+m.Name, "MB", "In use of "+what, reading(AMDMemoryUsed, toMB).where("memory", m.Value))
		add("GPU_FREE_"+m.Name, "MB", "Free of "+what, reading(AMDMemoryFree, toMB).where("memory", m.Value))
	}
	add("GPU_VRAM_MAX_BANDWIDTH", "GB/s", "Bandwidth of memory at its highest clock", reading(AMDMaxBandwidth, 1e-9))
	add("GPU_ECC_CORRECT_TOTAL", "", "Corrected errors", reading(dcgmSBE, 1))
	add("GPU_ECC_UNCORRECT_TOTAL", "", "Uncorrected errors", reading(dcgmDBE, 1))
	add("GPU_ECC_DEFERRED_TOTAL", "", "Deferred errors", reading(AMDDeferred, 1))
	for _, b := range amdBlocks {
		for _, k := range []struct{ name, severity, text string }{{"CORRECT", "ce", "Corrected"}, {"UNCORRECT", "ue", "Uncorrected"}, {"DEFERRED", "de", "Deferred"}} {
			add("GPU_ECC_"+k.name+"_"+b.Name, "", k.text+" errors of block "+b.Value, reading(AMDRASErrors, 1).where("block", b.Value).where("severity", k.severity))
		}
	}
	for _, n := range []string{"0", "1"} {
		for _, what := range []string{"NOP", "REQ", "RESP", "BEATS"} {
			none("GPU_XGMI_NBR_"+n+"_"+what+"_TX", what+" to neighbor "+n, amdNeighbor)
		}
	}
	for _, n := range []string{"0", "1", "2", "3", "4", "5"} {
		none("GPU_XGMI_NBR_"+n+"_TX_THRPUT", "Beats to neighbor "+n, amdNeighbor)
	}
	add("GPU_XGMI_LINK_RX", "KB", "Data read over an XGMI link", reading(AMDXGMIBytes, 1.0/1024).where("direction", "read").index("link", "link_index"))
	add("GPU_XGMI_LINK_TX", "KB", "Data written over an XGMI link", reading(AMDXGMIBytes, 1.0/1024).where("direction", "write").index("link", "link_index"))
	add("GPU_VIOLATION_CURRENT_ACCUMULATED_COUNTER", "cycles", "Firmware cycles in all", reading(AMDAccumulationCycles, 1))
	for _, t := range amdThrottles {
		add("GPU_VIOLATION_"+t.Name+"_RESIDENCY_ACCUMULATED", "cycles", "Firmware cycles in which the GPU was held back: "+t.Value, reading(AMDThrottleResidency, 1).where("reason", t.Value))
	}
	for _, t := range amdThrottles {
		add("GPU_VIOLATION_"+t.Name+"_RESIDENCY_PERCENTAGE", "%", "Time in which the GPU was held back: "+t.Value, reading(AMDThrottleShare, 100).where("reason", t.Value))
	}
	for _, t := range amdBelowLimits {
		add("GPU_VIOLATION_"+t.Name+"_ACCUMULATED", "cycles", "Firmware cycles with a chiplet's clock below the host's limit: "+t.Value, reading(AMDBelowLimit, 1).where("reason", t.Value).index("xcc", "xcc_index"))
		add("GPU_VIOLATION_"+t.Name+"_PERCENTAGE", "%", "Time with a chiplet's clock below the host's limit: "+t.Value, reading(AMDBelowLimitShare, 100).where("reason", t.Value).index("xcc", "xcc_index"))
	}
	add("GPU_AFID_ERRORS", "", "AMD field identifiers of the last record of errors, with --rocm-source=amdsmi", afids("fatal"), afids("non_fatal_uncorrected"), afids("non_fatal_corrected"))
	none("GPU_PROF_*", "Counters of the profiler", amdProfiler)
	return out
})
