package amd

import (
	"strings"
	"sync"

	"warpgauge/pkg/field"
)

// Metric is a metric of AMD's exporter, with the sources of its value or the reason for its absence.
type Metric struct {
	Field   string // name in AMD's configuration; lower case in the metric's name
	Help    string
	Unit    string
	Sources []Source
	// Absent says why the metric is not served. If Absent and Sources are both empty, the exporter
	// computes the value itself (Nodes, Health).
	Absent string
}

// Fields without a reading.
const (
	Nodes  = "GPU_NODES_TOTAL" // number of GPUs or partitions; its only label is hostname
	Health = "GPU_HEALTH"      // 1: healthy; 0: not
)

// Name returns the name of the metric.
func (m *Metric) Name(prefix string) string { return prefix + strings.ToLower(m.Field) }

// help returns the help text, with the unit.
func (m *Metric) help() string {
	return strings.TrimSuffix(m.Help+" ("+m.Unit+")", " ()")
}

// Source is a reading that AMD's exporter also has. Columns with exactly the labels Where and Index become series of
// the metric.
type Source struct {
	ID    field.ID
	Where []Pair
	Index Index
	Add   []Pair  // additional labels of the series
	Scale float64 // value of the series = reading × Scale
	Each  *Source // if the device has columns of this source, a series for each of them, with its labels
}

// Index is a numeric label that AMD's exporter names, and may count, in another way. The zero Index means no such label.
type Index struct {
	From   string // our label
	Prefix string // prefix of its value, before the number
	To     string // AMD's label
	Plus   int    // added to the number
}

// IDs of the DCGM fields that AMD's exporter also has.
const (
	idDriver       field.ID = 1
	idName         field.ID = 50
	idSerial       field.ID = 53
	idVBIOS        field.ID = 85
	idPower        field.ID = 155
	idEnergy       field.ID = 156
	idPowerInstant field.ID = 157
	idReplays      field.ID = 202
	idGPUUtil      field.ID = 203
	idMemUtil      field.ID = 204
	idEncUtil      field.ID = 206
	idFBTotal      field.ID = 250
	idFBFree       field.ID = 251
	idFBUsed       field.ID = 252
	idSBE          field.ID = 310
	idDBE          field.ID = 311
)

// Shorthands for the table.
func reading(id field.ID, scale float64) Source { return Source{ID: id, Scale: scale} }

func (s Source) where(name, value string) Source {
	s.Where = append(s.Where, Pair{name, value})
	return s
}

func (s Source) index(from, to string) Source {
	s.Index.From, s.Index.To = from, to
	return s
}

func (s Source) add(labels ...Pair) Source { s.Add = labels; return s }

func (s Source) each(o *Source) Source { s.Each = o; return s }

// clock returns a reading with the label clock, converted from Hz to MHz. AMD's exporter numbers all clocks of a GPU: 8
// graphics, 1 memory, 4 video, 4 decoder, fabric, system (smi_fill_clock_status_ of https://github.com/ROCm/gpu-agent).
func clock(id field.ID, name, kind, number string) Source {
	return reading(id, 1e-6).where("clock", name).add(Pair{"clock_index", number}, Pair{"clock_type", kind})
}

func clocks(id field.ID, from string, kind string, plus int) Source {
	s := reading(id, 1e-6).index(from, "clock_index").add(Pair{"clock_type", kind})
	s.Index.Plus = plus
	return s
}

var (
	chipletClocks = clocks(field.AMDXCCClock, "xcc", "system", 0)
	videoClocks   = clocks(field.AMDEngineClock, "instance", "video", 9).where("clock", "video")
	decodeClocks  = clocks(field.AMDEngineClock, "instance", "data", 13).where("clock", "decode")
)

// clockLimits returns the range of each type of clock. The driver tells one for all clocks of a type, AMD's exporter repeats it for
// each of them.
func clockLimits(id field.ID) []Source {
	return []Source{
		clock(id, "gfx", "system", "0").each(&chipletClocks), clock(id, "mem", "memory", "8"), clock(id, "video", "video", "9").each(&videoClocks),
		clock(id, "decode", "data", "13").each(&decodeClocks), clock(id, "fabric", "fabric", "17"), clock(id, "soc", "soc", "18"),
	}
}

func afids(severity string) Source {
	return reading(field.AMDAFID, 1).where("severity", severity).index("index", "afid_index").add(Pair{"severity", severity})
}

// Reasons for absent metrics.
const (
	noProfiler  = "the profiler allows one client at a time; it is not used"
	noNeighbors = "counters of the data fabric that a program has to set up; gpu_xgmi_link_rx and gpu_xgmi_link_tx have the data of each link"
	notFilled   = "AMD's exporter does not fill it either"
)

// blocks maps AMD's names of RAS blocks to the driver's names.
var blocks = [...]Pair{
	{"SDMA", "sdma"}, {"GFX", "gfx"}, {"MMHUB", "mmhub"}, {"ATHUB", "athub"}, {"BIF", "pcie_bif"}, {"HDP", "hdp"},
	{"XGMI_WAFL", "xgmi_wafl"}, {"DF", "df"}, {"SMN", "smn"}, {"SEM", "sem"}, {"MP0", "mp0"}, {"MP1", "mp1"},
	{"FUSE", "fuse"}, {"UMC", "umc"}, {"MCA", "mca"}, {"VCN", "vcn"}, {"JPEG", "jpeg"}, {"IH", "ih"}, {"MPIO", "mpio"},
}

// throttles maps AMD's throttling causes to our reason labels.
var throttles = [...]Pair{
	{"PROCESSOR_HOT", "prochot"}, {"PPT", "ppt"}, {"SOCKET_THERMAL", "socket_thermal"}, {"VR_THERMAL", "vr_thermal"}, {"HBM_THERMAL", "hbm_thermal"},
}

// belowLimits maps AMD's causes of a chiplet's low clock to our reason labels.
var belowLimits = [...]Pair{
	{"GFX_CLOCK_BELOW_HOST_LIMIT_POWER", "power"}, {"GFX_CLOCK_BELOW_HOST_LIMIT_THERMAL", "thermal"},
	{"LOW_UTILIZATION", "low_utilization"}, {"GFX_CLOCK_BELOW_HOST_LIMIT_TOTAL", "any"},
}

// Metrics returns all documented GPU metrics of AMD's exporter, in the order of docs/configuration/metricslist.md, with the
// units of its help texts. The slice must not be changed.
func Metrics() []Metric { return metrics() }

var metrics = sync.OnceValue(func() (out []Metric) {
	add := func(field, unit, help string, sources ...Source) {
		out = append(out, Metric{Field: field, Unit: unit, Help: help, Sources: sources})
	}
	none := func(field, help, why string) { out = append(out, Metric{Field: field, Help: help, Absent: why}) }
	hbm := reading(field.AMDTemperature, 1).index("sensor", "hbm_index")
	hbm.Index.Prefix = "hbm"
	const toMB = 1.0 / (1 << 20)

	add(Nodes, "", "GPUs that are reported, partitions each as one")
	add(Health, "", "Health of the GPU: 1 healthy, 0 unhealthy")
	add("GPU_EDGE_TEMPERATURE", "celsius", "Edge temperature", reading(field.AMDTemperature, 1).where("sensor", "edge"))
	add("GPU_JUNCTION_TEMPERATURE", "celsius", "Junction (hotspot) temperature", reading(field.AMDTemperature, 1).where("sensor", "junction"))
	add("GPU_MEMORY_TEMPERATURE", "celsius", "Memory temperature", reading(field.AMDTemperature, 1).where("sensor", "mem"))
	add("GPU_HBM_TEMPERATURE", "celsius", "Temperature of a stack of HBM", hbm)
	add("GPU_PACKAGE_POWER", "W", "Present power of the socket", reading(idPowerInstant, 1))
	add("GPU_AVERAGE_PACKAGE_POWER", "W", "Average power of the socket", reading(field.AMDPowerAverage, 1))
	add("GPU_POWER_USAGE", "W", "Power of the socket, average if the board has it, else present", reading(idPower, 1))
	add("GPU_ENERGY_CONSUMED", "µJ", "Energy since the driver was loaded", reading(idEnergy, 1000))
	add("GPU_GFX_ACTIVITY", "%", "Utilisation of the graphics engine", reading(idGPUUtil, 1))
	add("GPU_UMC_ACTIVITY", "%", "Utilisation of the memory controller", reading(idMemUtil, 1))
	add("GPU_MMA_ACTIVITY", "%", "Utilisation of the video engines, in the mean", reading(idEncUtil, 1))
	add("GPU_VCN_ACTIVITY", "%", "Utilisation of a video engine", reading(field.AMDVCNBusy, 100).index("instance", "vcn_index"))
	add("GPU_JPEG_ACTIVITY", "%", "Utilisation of a JPEG engine", reading(field.AMDJPEGBusy, 100).index("instance", "jpeg_index"))
	add("GPU_GFX_BUSY_INSTANTANEOUS", "%", "Utilisation of a chiplet with compute units", reading(field.AMDXCCBusy, 100).index("xcc", "xcc_index"))
	add("GPU_VCN_BUSY_INSTANTANEOUS", "%", "Utilisation of a video engine", reading(field.AMDVCNBusy, 100).index("instance", "xcc_index"))
	add("GPU_JPEG_BUSY_INSTANTANEOUS", "%", "Utilisation of a JPEG engine", reading(field.AMDJPEGBusy, 100).index("instance", "xcc_index"))
	none("GPU_PROCESS_CU_OCCUPANCY", "Compute units of a process", "each process would make new series; amd_gpu_compute_unit_occupancy_ratio shows the GPU's, /api/v1/devices lists processes")
	add("GPU_VOLTAGE", "mV", "Voltage of the SoC", reading(field.AMDVoltage, 1000).where("rail", "soc"))
	add("GPU_GFX_VOLTAGE", "mV", "Voltage of graphics", reading(field.AMDVoltage, 1000).where("rail", "gfx"))
	add("GPU_MEMORY_VOLTAGE", "mV", "Voltage of memory", reading(field.AMDVoltage, 1000).where("rail", "mem"))
	add("PCIE_SPEED", "GT/s", "Speed of a lane of PCIe", reading(field.AMDPCIeSpeed, 1e-9))
	add("PCIE_MAX_SPEED", "GT/s", "Highest speed of a lane of PCIe", reading(field.AMDPCIeSpeedMax, 1e-9))
	add("PCIE_BANDWIDTH", "Mb/s", "PCIe data in both directions", reading(field.AMDPCIeThroughput, 8e-6))
	add("PCIE_REPLAY_COUNT", "", "PCIe replays", reading(idReplays, 1))
	add("PCIE_RECOVERY_COUNT", "", "Times the PCIe link had to recover", reading(field.AMDPCIeRecoveries, 1))
	add("PCIE_REPLAY_ROLLOVER_COUNT", "", "PCIe replays that led to another training of the link", reading(field.AMDPCIeRollovers, 1))
	add("PCIE_NACK_SENT_COUNT", "", "PCIe packets that the GPU refused", reading(field.AMDPCIeNAKs, 1).where("direction", "sent"))
	add("PCIE_NACK_RECEIVED_COUNT", "", "PCIe packets of the GPU that were refused", reading(field.AMDPCIeNAKs, 1).where("direction", "received"))
	none("PCIE_RX", "Data received over PCIe", notFilled)
	none("PCIE_TX", "Data sent over PCIe", notFilled)
	none("PCIE_BIDIRECTIONAL_BANDWIDTH", "Accumulated PCIe data", "the firmware adds up rates in Mb/s at an interval that no source names; pcie_bandwidth is the present rate")
	add("GPU_CLOCK", "MHz", "Clock by type",
		chipletClocks, clock(field.AMDClock, "mem", "memory", "8"), videoClocks, decodeClocks,
		clock(field.AMDClock, "fabric", "fabric", "17"), clock(field.AMDClock, "soc", "soc", "18"))
	add("GPU_MIN_CLOCK", "MHz", "Lowest clock by type", clockLimits(field.AMDClockMin)...)
	add("GPU_MAX_CLOCK", "MHz", "Highest clock by type", clockLimits(field.AMDClockMax)...)
	add("GPU_TOTAL_VRAM", "MB", "Size of VRAM", reading(idFBTotal, 1))
	add("GPU_USED_VRAM", "MB", "VRAM in use", reading(idFBUsed, 1))
	add("GPU_FREE_VRAM", "MB", "VRAM that is free", reading(idFBFree, 1))
	for _, m := range []Pair{{"VISIBLE_VRAM", "visible"}, {"GTT", "gtt"}} {
		what := map[string]string{"visible": "VRAM that the CPU reaches", "gtt": "host memory as the GPU maps it"}[m.Value]
		add("GPU_TOTAL_"+m.Name, "MB", "Size of "+what, reading(field.AMDMemorySize, toMB).where("memory", m.Value))
		add("GPU_USED_"+m.Name, "MB", "In use of "+what, reading(field.AMDMemoryUsed, toMB).where("memory", m.Value))
		add("GPU_FREE_"+m.Name, "MB", "Free of "+what, reading(field.AMDMemoryFree, toMB).where("memory", m.Value))
	}
	add("GPU_VRAM_MAX_BANDWIDTH", "GB/s", "Bandwidth of memory at its highest clock", reading(field.AMDMaxBandwidth, 1e-9))
	add("GPU_ECC_CORRECT_TOTAL", "", "Corrected errors", reading(idSBE, 1))
	add("GPU_ECC_UNCORRECT_TOTAL", "", "Uncorrected errors", reading(idDBE, 1))
	add("GPU_ECC_DEFERRED_TOTAL", "", "Deferred errors", reading(field.AMDDeferred, 1))
	for _, b := range blocks {
		for _, k := range []struct{ name, severity, text string }{{"CORRECT", "ce", "Corrected"}, {"UNCORRECT", "ue", "Uncorrected"}, {"DEFERRED", "de", "Deferred"}} {
			add("GPU_ECC_"+k.name+"_"+b.Name, "", k.text+" errors of block "+b.Value, reading(field.AMDRASErrors, 1).where("block", b.Value).where("severity", k.severity))
		}
	}
	for _, n := range []string{"0", "1"} {
		for _, what := range []string{"NOP", "REQ", "RESP", "BEATS"} {
			none("GPU_XGMI_NBR_"+n+"_"+what+"_TX", what+" to neighbor "+n, noNeighbors)
		}
	}
	for _, n := range []string{"0", "1", "2", "3", "4", "5"} {
		none("GPU_XGMI_NBR_"+n+"_TX_THRPUT", "Beats to neighbor "+n, noNeighbors)
	}
	add("GPU_XGMI_LINK_RX", "KB", "Data read over an XGMI link", reading(field.AMDXGMIBytes, 1.0/1024).where("direction", "read").index("link", "link_index"))
	add("GPU_XGMI_LINK_TX", "KB", "Data written over an XGMI link", reading(field.AMDXGMIBytes, 1.0/1024).where("direction", "write").index("link", "link_index"))
	add("GPU_VIOLATION_CURRENT_ACCUMULATED_COUNTER", "cycles", "Firmware cycles in all", reading(field.AMDAccumulationCycles, 1))
	for _, t := range throttles {
		add("GPU_VIOLATION_"+t.Name+"_RESIDENCY_ACCUMULATED", "cycles", "Firmware cycles in which the GPU was held back: "+t.Value, reading(field.AMDThrottleResidency, 1).where("reason", t.Value))
	}
	for _, t := range throttles {
		add("GPU_VIOLATION_"+t.Name+"_RESIDENCY_PERCENTAGE", "%", "Time in which the GPU was held back: "+t.Value, reading(field.AMDThrottleShare, 100).where("reason", t.Value))
	}
	for _, t := range belowLimits {
		add("GPU_VIOLATION_"+t.Name+"_ACCUMULATED", "cycles", "Firmware cycles with a chiplet's clock below the host's limit: "+t.Value, reading(field.AMDBelowLimit, 1).where("reason", t.Value).index("xcc", "xcc_index"))
		add("GPU_VIOLATION_"+t.Name+"_PERCENTAGE", "%", "Time with a chiplet's clock below the host's limit: "+t.Value, reading(field.AMDBelowLimitShare, 100).where("reason", t.Value).index("xcc", "xcc_index"))
	}
	add("GPU_AFID_ERRORS", "", "AMD field identifiers of the last record of errors, with --rocm-source=amdsmi", afids("fatal"), afids("non_fatal_uncorrected"), afids("non_fatal_corrected"))
	none("GPU_PROF_*", "Counters of the profiler", noProfiler)
	return out
})
