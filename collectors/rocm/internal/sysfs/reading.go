// Package sysfs reads what the amdgpu driver shows under /sys: which GPUs there
// are (Reader.Find) and, from files that are kept open, what they measure (Handle).
// It owns the list of raw readings with their units; what the numbers mean in
// DCGM's terms is decided in package rocm, which calls it. Nothing here opens a
// device node, writes, loads a library or starts a goroutine.
//
// A Handle belongs to one goroutine, but for the methods that say otherwise.
// Steady reading allocates nothing.
package sysfs

import "slices"

// Kind is a quantity that has a file. What gpu_metrics has is not here: package
// gpumetrics decodes it, whatever the source.
type Kind uint8

// The kinds, with unit and file below /sys/class/drm/cardN/device. Where Index is
// not named it is 0.
const (
	Busy            Kind = iota // percent; gpu_busy_percent
	MemoryBusy                  // percent; mem_busy_percent
	Clock                       // MHz, Index a Clock…; pp_dpm_*, the line with *
	ClockMax                    // MHz, Index a Clock…; pp_dpm_*, the highest line
	ClockMin                    // MHz, Index a Clock…; pp_dpm_*, the lowest line
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
	Processes                   // processes with memory, queues or waves there, Index an instance or Whole; kfd/proc
	ProcessMemory               // bytes, sum of their vram_ID, Index the same; kfd/proc
	ProcessUnits                // compute units, sum of their cu_occupancy, Index the same; kfd/proc
	InstanceTotal               // bytes, Index an instance; kfd nodes/K/mem_banks/*/properties
	Kinds                       // how many there are
)

// Whole is the Index of Processes … for all instances of a GPU together: a
// process that uses several of them counts once.
const Whole = 255

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

// Sensors are those of hwmon, found by tempN_label.
const (
	SensorEdge     uint8 = iota // edge
	SensorJunction              // junction
	SensorMemory                // mem
	Sensors
)

// Memories.
const (
	MemoryVRAM    uint8 = iota // mem_info_vram_*
	MemoryVisible              // mem_info_vis_vram_*: what the CPU reaches
	MemoryGTT                  // mem_info_gtt_*: the host's, as the GPU maps it
	Memories
)

// Bad pages by what the driver did with them.
const (
	PageRetired uint8 = iota // R: not used any more
	PagePending              // P: will be retired
	PageFailed               // F: could not be
	Pages
)

// Blocks is how many blocks of a GPU report RAS errors.
const Blocks = uint8(len(blockNames))

var blockNames = [...]string{
	"umc", "sdma", "gfx", "mmhub", "pcie_bif", "hdp", "xgmi_wafl", "athub", "df", "smn",
	"sem", "mp0", "mp1", "fuse", "mca", "vcn", "jpeg", "ih", "mpio",
}

// BlockName is the block's name in ras/<name>_err_count.
func BlockName(block uint8) string { return blockNames[block] }

// Reading is one number of one GPU.
type Reading struct {
	Kind  Kind
	Index uint8
}

// GPU is one PCI device of the amdgpu driver, as /sys shows it. What is not
// known is empty.
type GPU struct {
	PCI    string // "0000:41:00.0"
	Card   string // "card1"
	Render string // "renderD128"
	Path   string // resolved directory of the PCI device

	Device   uint16 // PCI device id
	UniqueID uint64 // 0: the board has none
	Serial   string // of the package: two dies of one share it
	Model    string // market name, or what comes closest
	Number   string // of the model: product_number
	Virtual  bool   // the node is a virtual machine
	VBIOS    string

	Compute string // current_compute_partition: "SPX", "DPX", "TPX", "QPX", "CPX"; "" where boards have none
	Memory  string // current_memory_partition: "NPS1" …
	// Instances are the devices of the compute side in the order of partitions: one
	// where the board is whole, none without KFD. Those that KFD hides are missing.
	Instances []Instance
}

// Partitioned reports whether the board is divided, be all its partitions visible
// or not.
func (g *GPU) Partitioned() bool {
	return g.Compute != "" && g.Compute != "SPX" || len(g.Instances) > 1
}

// instance is the position of a partition among Instances, -1 if it is not visible.
func (g *GPU) instance(id int) int {
	return slices.IndexFunc(g.Instances, func(i Instance) bool { return i.ID == id })
}

// Instance is one device of the compute side: a KFD node.
type Instance struct {
	ID     int    // partition, from 0; index of Reading.Index
	Node   int    // kfd/topology/nodes/<Node>
	KFD    uint64 // gpu_id
	Render string
	Name   string // platform device of a partition, "amdgpu_xcp_1"; empty for the first, which is the PCI device
	Units  int    // compute units, 0: not known
}
