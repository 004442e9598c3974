// Package sysfs reads the amdgpu driver's files under /sys: Reader.Find finds the GPUs, and Handle reads their values
// from files that stay open. The package owns the list of raw readings with their units. Its caller, package rocm, maps
// them to DCGM's fields. It opens no device node, writes nothing, loads no library and starts no goroutine.
//
// A Handle belongs to one goroutine, except for methods that say otherwise. Reading allocates nothing in steady state.
package sysfs

// Kind is a quantity outside gpu_metrics, which package gpumetrics decodes.
type Kind uint8

// The kinds, with unit and file below /sys/class/drm/cardN/device. Index is 0 unless mentioned.
const (
	Busy            Kind = iota // percent; gpu_busy_percent
	MemoryBusy                  // percent; mem_busy_percent
	Clock                       // MHz, Index a Clock…; pp_dpm_*, the line with *
	ClockMax                    // MHz, Index a Clock…; pp_dpm_*, the highest line
	ClockMin                    // MHz, Index a Clock…; pp_dpm_*, the lowest line
	ClockSensor                 // MHz, Index ClockGraphics or ClockMemory; hwmon freqN_input
	Temperature                 // °C, Index a Sensor…; hwmon tempN_input
	TemperatureCrit             // °C, Index a Sensor…; hwmon tempN_crit
	TemperatureStop             // °C, Index a Sensor…; hwmon tempN_emergency
	PowerAverage                // W; hwmon power1_average
	PowerInput                  // W; hwmon power1_input
	PowerCap                    // W; hwmon power1_cap
	PowerCapMin                 // W; hwmon power1_cap_min
	PowerCapMax                 // W; hwmon power1_cap_max
	PowerCapDefault             // W; hwmon power1_cap_default
	Voltage                     // V; hwmon in0_input (vddgfx)
	FanRPM                      // 1/min; hwmon fan1_input
	FanDuty                     // 0 to 1; hwmon pwm1 / 255
	MemoryTotal                 // bytes, Index a Memory…; mem_info_*_total
	MemoryUsed                  // bytes, Index a Memory…; mem_info_*_used
	Replays                     // PCIe replays; pcie_replay_count
	LinkSpeed                   // GT/s; current_link_speed
	LinkWidth                   // lanes; current_link_width
	LinkSpeedMax                // GT/s; max_link_speed
	LinkWidthMax                // lanes; max_link_width
	Correctable                 // RAS errors, Index a block; ras/*_err_count, ce
	Uncorrectable               // RAS errors, Index a block; ras/*_err_count, ue
	Deferred                    // RAS errors, Index a block; ras/*_err_count, de (newer kernels)
	BadPages                    // pages, Index a Page…; ras/gpu_vram_bad_pages
	Kinds                       // number of kinds
)

// Clocks.
const (
	ClockGraphics uint8 = iota // pp_dpm_sclk
	ClockMemory                // pp_dpm_mclk
	ClockFabric                // pp_dpm_fclk
	ClockSystem                // pp_dpm_socclk
	ClockVideo                 // pp_dpm_vclk
	ClockDecode                // pp_dpm_dclk
	Clocks
)

// Sensors of hwmon, found by tempN_label.
const (
	SensorEdge     uint8 = iota // edge
	SensorJunction              // junction
	SensorMemory                // mem
	Sensors
)

// Memories.
const (
	MemoryVRAM    uint8 = iota // mem_info_vram_*
	MemoryVisible              // mem_info_vis_vram_*: visible to the CPU
	MemoryGTT                  // mem_info_gtt_*: host memory that the GPU has mapped
	Memories
)

// States of bad pages.
const (
	PageRetired uint8 = iota // R: retired
	PagePending              // P: will be retired
	PageFailed               // F: cannot be retired
	Pages
)

// Blocks is the number of blocks that report RAS errors.
const Blocks = uint8(len(blockNames))

var blockNames = [...]string{
	"umc", "sdma", "gfx", "mmhub", "pcie_bif", "hdp", "xgmi_wafl", "athub", "df", "smn",
	"sem", "mp0", "mp1", "fuse", "mca", "vcn", "jpeg", "ih", "mpio",
}

// BlockName returns the block's name in ras/<name>_err_count.
func BlockName(block uint8) string { return blockNames[block] }

// Reading identifies one number of one GPU.
type Reading struct {
	Kind  Kind
	Index uint8
}

// GPU is one PCI device of the amdgpu driver. Unknown properties are empty.
type GPU struct {
	PCI    string // "0000:41:00.0"
	Card   string // "card1"
	Render string // "renderD128"
	Path   string // resolved directory of the PCI device

	Device   uint16 // PCI device id
	UniqueID uint64 // 0 for a board without one
	Serial   string // serial number of the package: its two dies share it
	Model    string // market name or the closest match
	Number   string // model number: product_number
	Virtual  bool   // the node is a virtual machine
	VBIOS    string
	Bus      float64 // bytes per second that its PCIe link can carry in each direction; 0 or NaN if unknown

	Compute string // current_compute_partition: "SPX", "DPX", "TPX", "QPX", "CPX"; "" if the board has no such mode
	Memory  string // current_memory_partition: "NPS1" …
	// Instances lists the KFD devices by partition: one for an undivided board, none without KFD. It lacks the devices
	// that KFD hides.
	Instances []Instance
}

// Partitioned reports whether the board is divided, even if some partitions are hidden.
func (g *GPU) Partitioned() bool {
	return g.Compute != "" && g.Compute != "SPX" || len(g.Instances) > 1
}

// Instance is one KFD device.
type Instance struct {
	ID     int    // partition, from 0; used as Reading.Index
	Node   int    // kfd/topology/nodes/<Node>
	KFD    uint64 // gpu_id
	Render string
	Name   string // platform device of a partition, "amdgpu_xcp_1"; empty for the first, which is the PCI device
	Units  int    // compute units; 0 if unknown
	Memory uint64 // bytes; 0 if unknown
}
