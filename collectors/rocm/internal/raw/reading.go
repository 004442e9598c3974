// Package raw is what lies between the collector and its two readers: which
// numbers the amdgpu driver can be asked for, in which unit, and how. A reader
// converts to the unit given here and to nothing else, so that both readers
// answer alike; what the numbers mean in DCGM's terms is the collector's.
package raw

// Kind is a quantity that the driver tells in a file of its own. What gpu_metrics
// has is not here: package gpumetrics decodes it, from /sys, with both readers.
type Kind uint8

// The kinds, with unit, file below /sys/class/drm/cardN/device and function of
// ROCm SMI. Where Index is not named it is 0. "-" is what a reader cannot have:
// its Has says so, and the other reader is asked.
const (
	Busy            Kind = iota // percent; gpu_busy_percent; rsmi_dev_busy_percent_get
	MemoryBusy                  // percent; mem_busy_percent; rsmi_dev_memory_busy_percent_get
	Clock                       // MHz, Index a Clock…; pp_dpm_*, the line with *; rsmi_dev_gpu_clk_freq_get
	ClockMax                    // MHz, Index a Clock…; pp_dpm_*, the highest line; the same function's highest
	Temperature                 // °C, Index a Sensor…; hwmon tempN_input; rsmi_dev_temp_metric_get
	TemperatureCrit             // °C, Index a Sensor…; hwmon tempN_crit; the same, RSMI_TEMP_CRITICAL
	TemperatureStop             // °C, Index a Sensor…; hwmon tempN_emergency; the same, RSMI_TEMP_EMERGENCY
	PowerAverage                // W; hwmon power1_average; rsmi_dev_power_ave_get
	PowerInput                  // W; hwmon power1_input; rsmi_dev_current_socket_power_get
	PowerCap                    // W; hwmon power1_cap; rsmi_dev_power_cap_get
	PowerCapMin                 // W; hwmon power1_cap_min; rsmi_dev_power_cap_range_get
	PowerCapMax                 // W; hwmon power1_cap_max; rsmi_dev_power_cap_range_get
	PowerCapDefault             // W; hwmon power1_cap_default; -
	Voltage                     // V; hwmon in0_input (vddgfx); rsmi_dev_volt_metric_get
	FanRPM                      // 1/min; hwmon fan1_input; rsmi_dev_fan_rpms_get
	FanDuty                     // 0 to 1; hwmon pwm1 / 255; rsmi_dev_fan_speed_get / 255
	MemoryTotal                 // bytes, Index a Memory…; mem_info_*_total; rsmi_dev_memory_total_get
	MemoryUsed                  // bytes, Index a Memory…; mem_info_*_used; rsmi_dev_memory_usage_get
	Replays                     // PCIe replays; pcie_replay_count; rsmi_dev_pci_replay_counter_get
	LinkSpeed                   // GT/s; current_link_speed; -
	LinkWidth                   // lanes; current_link_width; -
	LinkSpeedMax                // GT/s; max_link_speed; -
	LinkWidthMax                // lanes; max_link_width; -
	Correctable                 // RAS errors, Index a Block…; ras/*_err_count, ce; rsmi_dev_ecc_count_get
	Uncorrectable               // RAS errors, Index a Block…; ras/*_err_count, ue; rsmi_dev_ecc_count_get
	Deferred                    // RAS errors, Index a Block…; ras/*_err_count, de (newer kernels); -
	BadPages                    // pages, Index a Page…; ras/gpu_vram_bad_pages; rsmi_dev_memory_reserved_pages_get
	Processes                   // processes with memory, queues or waves there, Index an instance or Whole; kfd/proc; -
	ProcessMemory               // bytes, sum of their vram_ID, Index the same; kfd/proc; -
	ProcessUnits                // compute units, sum of their cu_occupancy, Index the same; kfd/proc; -
	InstanceTotal               // bytes, Index an instance; kfd nodes/K/mem_banks/*/properties; -
	Kinds                       // how many there are
)

// Whole is the Index of Processes … for all instances of a GPU together: a
// process that uses several of them counts once.
const Whole = 255

// Clocks.
const (
	ClockGraphics uint8 = iota // pp_dpm_sclk, RSMI_CLK_TYPE_SYS
	ClockMemory                // pp_dpm_mclk, RSMI_CLK_TYPE_MEM
	ClockFabric                // pp_dpm_fclk, RSMI_CLK_TYPE_DF
	ClockSystem                // pp_dpm_socclk, RSMI_CLK_TYPE_SOC
	ClockVideo                 // pp_dpm_vclk; -
	ClockDecode                // pp_dpm_dclk; -
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

// Blocks of RAS. Those that ROCm SMI knows come first.
const (
	BlockUMC uint8 = iota
	BlockSDMA
	BlockGFX
	BlockMMHub
	BlockPCIeBIF
	BlockHDP
	BlockXGMI
	BlockATHub
	BlockDF
	BlockSMN
	BlockSEM
	BlockMP0
	BlockMP1
	BlockFuse
	BlockMCA
	BlockVCN
	BlockJPEG
	BlockIH
	BlockMPIO
	Blocks
)

// BlockName is the block's name in ras/<name>_err_count.
func BlockName(block uint8) string {
	return [Blocks]string{
		"umc", "sdma", "gfx", "mmhub", "pcie_bif", "hdp", "xgmi_wafl", "athub", "df", "smn",
		"sem", "mp0", "mp1", "fuse", "mca", "vcn", "jpeg", "ih", "mpio",
	}[block]
}

// Reading is one number of one GPU.
type Reading struct {
	Kind  Kind
	Index uint8
}
