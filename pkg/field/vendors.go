package field

// Readings of NVIDIA's driver that DCGM has no field for. Names and units follow Prometheus.
const (
	NVIDIAJPEGBusy ID = 9500 + iota
	NVIDIAOFABusy
	NVIDIAComputeProcesses
	NVIDIAGraphicsProcesses
	NVLinkPackets        // by direction
	NVLinkBytes          // by direction
	NVLinkErrors         // by kind
	NVLinkRecoveries     // by result
	NVLinkRecoveryEvents //
	NVLinkBER            // by kind
	NVLinkFEC            // by corrected
)

// nvidiaFields lists these fields by ascending id.
var nvidiaFields = [...]Descriptor{
	{ID: NVIDIAJPEGBusy, Name: "nvidia_gpu_jpeg_busy_ratio", Kind: Double, Level: GPU, Unit: "ratio", Max: 1.1, Help: "Utilisation of the JPEG engines"},
	{ID: NVIDIAOFABusy, Name: "nvidia_gpu_ofa_busy_ratio", Kind: Double, Level: GPU, Unit: "ratio", Max: 1.1, Help: "Utilisation of the optical flow engines"},
	{ID: NVIDIAComputeProcesses, Name: "nvidia_gpu_compute_processes", Kind: Int64, Level: Instance, Max: 1e6, Help: "Processes that compute on the GPU"},
	{ID: NVIDIAGraphicsProcesses, Name: "nvidia_gpu_graphics_processes", Kind: Int64, Level: Instance, Max: 1e6, Help: "Processes that draw on the GPU"},
	{ID: NVLinkPackets, Name: "nvidia_nvlink_packets_total", Kind: Int64, Level: Link, Max: maxCycles, Help: "Packets over the link by direction: tx, rx"},
	{ID: NVLinkBytes, Name: "nvidia_nvlink_bytes_total", Kind: Int64, Level: Link, Meanings: []Meaning{{Role: RoleLinkSent, Label: "tx"}, {Role: RoleLinkReceived, Label: "rx"}}, Unit: "bytes", Max: maxCycles, Help: "Data over the link by direction: tx, rx"},
	{ID: NVLinkErrors, Name: "nvidia_nvlink_errors_total", Kind: Int64, Level: Link, Meanings: []Meaning{{Role: RoleLinkErrors, Label: AnyLabel}}, Cost: Slow, Max: maxCycles, Help: "Errors of the link by kind: malformed_packet, buffer_overrun, receive, remote, general, integrity, transmit_discard, symbol, effective"},
	{ID: NVLinkRecoveries, Name: "nvidia_nvlink_recoveries_total", Kind: Int64, Level: Link, Meanings: []Meaning{{Role: RoleLinkErrors, Label: AnyLabel}}, Cost: Slow, Max: maxCycles, Help: "Recoveries of the link by result: successful, failed"},
	{ID: NVLinkRecoveryEvents, Name: "nvidia_nvlink_recovery_events_total", Kind: Int64, Level: Link, Cost: Slow, Max: maxCycles, Help: "Times the link went into recovery, whatever came of it"},
	{ID: NVLinkBER, Name: "nvidia_nvlink_bit_error_ratio", Kind: Double, Level: Link, Cost: Slow, Max: 1, Help: "Bit error rate of the link by kind: symbol, effective"},
	{ID: NVLinkFEC, Name: "nvidia_nvlink_fec_blocks_total", Kind: Int64, Level: Link, Cost: Slow, Max: maxCycles, Help: "Blocks over the link by symbols that were corrected in them: 0 to 15"},
}

// Readings that only AMD's GPUs have. Names and units follow Prometheus: base units, and _total for counters.
// Fields with a DCGM name keep that name.
const (
	AMDTemperature        ID = 10000 + iota // by sensor
	AMDBusySeconds                          // by engine
	AMDVCNBusy                              // by instance
	AMDJPEGBusy                             // by instance
	AMDXCCBusy                              // by xcc
	AMDXCCBusySeconds                       // by xcc
	AMDClock                                // by clock
	AMDXCCClock                             // by xcc
	AMDVoltage                              // by rail
	AMDFan                                  //
	AMDMemoryUsed                           // by memory
	AMDMemorySize                           // by memory
	AMDXGMIBytes                            // by direction, link; SMU 15 by direction
	AMDXGMILinkUp                           // by link
	AMDXGMILinkWidth                        //
	AMDXGMILinkSpeed                        //
	AMDPCIeThroughput                       //
	AMDPCIeRecoveries                       //
	AMDPCIeRollovers                        //
	AMDPCIeNAKs                             // by direction
	AMDThrottleResidency                    // by reason
	AMDAccumulationCycles                   //
	AMDThrottleActive                       // by reason
	AMDBelowLimit                           // by reason, xcc
	AMDRASErrors                            // by block, severity
	AMDBadPages                             // by state
	AMDProcesses                            //
	AMDProcessMemory                        //
	AMDComputeUnits                         //
	AMDOccupancy                            //
	AMDPartition                            // by compute, memory
	AMDUnread                               // by what
	AMDUniqueID                             // a text, as the next four
	AMDComputePartition
	AMDMemoryPartition
	AMDCard
	AMDRenderNode
	// Readings for the names of AMD's exporter, see AMDNames.
	AMDModelNumber     // a text, as the next three
	AMDVendor          //
	AMDUUID            //
	AMDDeployment      //
	AMDPowerAverage    //
	AMDMemoryFree      // by memory
	AMDMaxBandwidth    //
	AMDEngineClock     // by clock, instance
	AMDClockMin        // by clock
	AMDClockMax        // by clock
	AMDPCIeSpeed       //
	AMDPCIeSpeedMax    //
	AMDDeferred        //
	AMDThrottleShare   // by reason
	AMDBelowLimitShare // by reason, xcc
)

// Plausible ranges of several fields.
const (
	maxCycles  = 9e18
	maxBytes   = 1e18
	maxSeconds = 1e10
	maxCelsius = 150
)

// amdFields lists these fields by ascending id.
var amdFields = [...]Descriptor{
	{ID: AMDTemperature, Name: "amd_gpu_temperature_celsius", Kind: Double, Level: GPU, Meanings: []Meaning{{Role: RoleTemperature, Label: "edge"}, {Role: RoleTemperature, Label: "junction"}, {Role: RoleMemoryTemperature, Label: "mem"}}, Unit: "celsius", Min: -50, Max: maxCelsius, Help: "Temperature by sensor: edge, junction, mem, hbm0 to hbm11, vrgfx, vrsoc, vrmem, soc"},
	{ID: AMDBusySeconds, Name: "amd_gpu_busy_seconds_total", Kind: Double, Level: GPU, Unit: "s", Max: maxSeconds, Help: "Busy time as the firmware adds it up every millisecond; by engine: gfx, umc"},
	{ID: AMDVCNBusy, Name: "amd_gpu_vcn_busy_ratio", Kind: Double, Level: Instance, Unit: "ratio", Max: 1.1, Help: "Utilisation of a video engine, which encodes and decodes"},
	{ID: AMDJPEGBusy, Name: "amd_gpu_jpeg_busy_ratio", Kind: Double, Level: Instance, Unit: "ratio", Max: 1.1, Help: "Utilisation of a JPEG engine"},
	{ID: AMDXCCBusy, Name: "amd_gpu_xcc_busy_ratio", Kind: Double, Level: Instance, Unit: "ratio", Max: 1.1, Help: "Utilisation of a chiplet with compute units"},
	{ID: AMDXCCBusySeconds, Name: "amd_gpu_xcc_busy_seconds_total", Kind: Double, Level: Instance, Unit: "s", Max: maxSeconds, Help: "Busy time of a chiplet with compute units; added up every millisecond"},
	{ID: AMDClock, Name: "amd_gpu_clock_hertz", Kind: Double, Level: GPU, Meanings: []Meaning{{Role: RoleClock, Label: "gfx"}, {Role: RoleMemoryClock, Label: "mem"}}, Unit: "Hz", Max: 2e10, Help: "Clock: gfx, mem, fabric, soc, video, decode"},
	{ID: AMDXCCClock, Name: "amd_gpu_xcc_clock_hertz", Kind: Double, Level: GPU, Unit: "Hz", Max: 2e10, Help: "Clock of a chiplet with compute units"},
	{ID: AMDVoltage, Name: "amd_gpu_voltage_volts", Kind: Double, Level: GPU, Unit: "V", Max: 100, Help: "Voltage by rail: gfx, soc, mem"},
	{ID: AMDFan, Name: "amd_gpu_fan_speed_rpm", Kind: Double, Level: GPU, Unit: "1/min", Max: 1e5, Help: "Revolutions of the fan per minute"},
	{ID: AMDMemoryUsed, Name: "amd_gpu_memory_used_bytes", Kind: Double, Level: GPU, Meanings: []Meaning{{Role: RoleMemoryUsed, Label: "vram"}}, Unit: "bytes", Max: maxBytes, Help: "Memory in use: vram; visible, the part of it that the CPU reaches; gtt, the host's as the GPU maps it"},
	{ID: AMDMemorySize, Name: "amd_gpu_memory_size_bytes", Kind: Double, Level: GPU, Meanings: []Meaning{{Role: RoleMemoryTotal, Label: "vram"}}, Unit: "bytes", Max: maxBytes, Cost: Slow, Help: "Size of memory: vram, visible, gtt"},
	{ID: AMDXGMIBytes, Name: "amd_gpu_xgmi_bytes_total", Kind: Double, Level: GPU, Meanings: []Meaning{{Role: RoleLinkSent, Label: "write"}, {Role: RoleLinkReceived, Label: "read"}}, Unit: "bytes", Max: maxBytes, Help: "Data over an XGMI link by direction: read, write; without a link, over all of them"},
	{ID: AMDXGMILinkUp, Name: "amd_gpu_xgmi_link_up", Kind: Int64, Level: GPU, Meanings: []Meaning{{Role: RoleLinkUp, Label: AnyLabel}}, Unit: "bool", Max: 1, Help: "The XGMI link is up"},
	{ID: AMDXGMILinkWidth, Name: "amd_gpu_xgmi_link_width_lanes", Kind: Int64, Level: GPU, Unit: "lanes", Max: 1024, Help: "Lanes of an XGMI link"},
	{ID: AMDXGMILinkSpeed, Name: "amd_gpu_xgmi_link_speed_bits_per_second", Kind: Double, Level: GPU, Unit: "bit/s", Max: 1e15, Help: "Speed of a lane of XGMI"},
	{ID: AMDPCIeThroughput, Name: "amd_gpu_pcie_throughput_bytes_per_second", Kind: Double, Level: GPU, Unit: "bytes/s", Max: 2.8e11, Help: "PCIe data in both directions, as firmware estimates it"},
	{ID: AMDPCIeRecoveries, Name: "amd_gpu_pcie_recoveries_total", Kind: Int64, Level: GPU, Max: maxCycles, Help: "Times the PCIe link had to recover"},
	{ID: AMDPCIeRollovers, Name: "amd_gpu_pcie_replay_rollovers_total", Kind: Int64, Level: GPU, Max: maxCycles, Help: "PCIe replays that were repeated so often that the link was trained again"},
	{ID: AMDPCIeNAKs, Name: "amd_gpu_pcie_naks_total", Kind: Int64, Level: GPU, Max: maxCycles, Help: "PCIe packets that were refused, by direction of the refusal: sent, received"},
	{ID: AMDThrottleResidency, Name: "amd_gpu_throttle_residency_total", Kind: Int64, Level: GPU, Unit: "cycles", Max: maxCycles, Help: "Firmware cycles in which something held the GPU back, by reason; as a share of amd_gpu_accumulation_cycles_total"},
	{ID: AMDAccumulationCycles, Name: "amd_gpu_accumulation_cycles_total", Kind: Int64, Level: GPU, Unit: "cycles", Max: maxCycles, Help: "Firmware cycles in all"},
	{ID: AMDThrottleActive, Name: "amd_gpu_throttle_active", Kind: Int64, Level: GPU, Meanings: []Meaning{{Role: RoleThrottling, Label: AnyLabel}}, Unit: "bool", Max: 1, Help: "Something holds the GPU back now, by reason: power, current, thermal, prochot"},
	{ID: AMDBelowLimit, Name: "amd_gpu_gfxclk_below_limit_total", Kind: Int64, Level: Instance, Unit: "cycles", Max: maxCycles, Help: "Firmware cycles with a chiplet's clock below the host's limit, by reason: host_limit, power, thermal, low_utilization, any"},
	{ID: AMDRASErrors, Name: "amd_gpu_ras_errors_total", Kind: Int64, Level: GPU, Cost: Slow, Max: maxCycles, Help: "Errors by block and severity: ce corrected, ue uncorrected, de deferred"},
	{ID: AMDBadPages, Name: "amd_gpu_bad_pages", Kind: Int64, Level: GPU, Cost: Slow, Max: 1e9, Help: "Bad memory pages by state: retired, pending, failed"},
	{ID: AMDProcesses, Name: "amd_gpu_processes", Kind: Int64, Level: Instance, Cost: Slow, Max: 1e7, Help: "Processes that compute on the GPU"},
	{ID: AMDProcessMemory, Name: "amd_gpu_process_memory_bytes", Kind: Double, Level: Instance, Unit: "bytes", Cost: Slow, Max: maxBytes, Help: "Memory of all processes that compute on the GPU"},
	{ID: AMDComputeUnits, Name: "amd_gpu_compute_units", Kind: Int64, Level: Instance, Cost: Static, Max: 1e5, Help: "Compute units"},
	{ID: AMDOccupancy, Name: "amd_gpu_compute_unit_occupancy_ratio", Kind: Double, Level: Instance, Unit: "ratio", Cost: Slow, Max: 1.1, Help: "Compute units that have waves of a process, as a share of all"},
	{ID: AMDPartition, Name: "amd_gpu_partition_info", Kind: Int64, Level: GPU, Cost: Static, Max: 1, Help: "How the GPU is divided: label compute is SPX, DPX, TPX, QPX or CPX; memory is NPS1, NPS2, NPS4 or NPS8"},
	{ID: AMDUnread, Name: "amd_gpu_unread", Kind: Int64, Level: GPU, Max: 1e4, Help: "What is there and not read: gpu_metrics, 1 if its revision is not known; attributes, those of it that are not known or not read whole; partitions, those that the device control group hides"},
	{ID: AMDUniqueID, Name: "amd_gpu_unique_id", Kind: String, Level: GPU, Cost: Static, Help: "Unique id, 16 hexadecimal digits"},
	{ID: AMDComputePartition, Name: "amd_gpu_compute_partition", Kind: String, Level: GPU, Cost: Static, Help: "Compute partition mode"},
	{ID: AMDMemoryPartition, Name: "amd_gpu_memory_partition", Kind: String, Level: GPU, Cost: Static, Help: "Memory partition mode"},
	{ID: AMDCard, Name: "amd_gpu_card", Kind: String, Level: GPU, Cost: Static, Help: "Name of the DRM card, card1"},
	{ID: AMDRenderNode, Name: "amd_gpu_render_node", Kind: String, Level: Instance, Cost: Static, Help: "Name of the DRM render node, renderD128"},
	{ID: AMDModelNumber, Name: "amd_gpu_model_number", Kind: String, Level: GPU, Cost: Static, Help: "Number of the board's model, 102-G30211-00"},
	{ID: AMDVendor, Name: "amd_gpu_vendor", Kind: String, Level: GPU, Cost: Static, Help: "Vendor of the board"},
	{ID: AMDUUID, Name: "amd_gpu_smi_uuid", Kind: String, Level: Instance, Cost: Static, Help: "UUID as AMD SMI makes it of the unique id, the PCI device id and the partition"},
	{ID: AMDDeployment, Name: "amd_gpu_deployment_mode", Kind: String, Level: GPU, Cost: Static, Help: "How the node has the GPU: baremetal; in a virtual machine vm_vf, a virtual function, or vm_pf, the whole GPU"},
	{ID: AMDPowerAverage, Name: "amd_gpu_average_power_watts", Kind: Double, Level: GPU, Meanings: []Meaning{{Role: RolePower}}, Unit: "W", Max: 1e5, Help: "Power as a mean over time; MI300 and later have none"},
	{ID: AMDMemoryFree, Name: "amd_gpu_memory_free_bytes", Kind: Double, Level: GPU, Meanings: []Meaning{{Role: RoleMemoryFree, Label: "vram"}}, Unit: "bytes", Max: maxBytes, Help: "Memory that is free: vram, visible, gtt"},
	{ID: AMDMaxBandwidth, Name: "amd_gpu_memory_max_bandwidth_bytes_per_second", Kind: Double, Level: GPU, Unit: "bytes/s", Max: 1e15, Cost: Slow, Help: "Bandwidth of memory at its highest clock"},
	{ID: AMDEngineClock, Name: "amd_gpu_engine_clock_hertz", Kind: Double, Level: GPU, Unit: "Hz", Max: 2e10, Help: "Clock of each video engine: video, decode"},
	{ID: AMDClockMin, Name: "amd_gpu_min_clock_hertz", Kind: Double, Level: GPU, Unit: "Hz", Max: 2e10, Cost: Slow, Help: "Lowest level of a clock: gfx, mem, fabric, soc, video, decode"},
	{ID: AMDClockMax, Name: "amd_gpu_max_clock_hertz", Kind: Double, Level: GPU, Meanings: []Meaning{{Role: RoleMaxClock, Label: "gfx"}}, Unit: "Hz", Max: 2e10, Cost: Slow, Help: "Highest level of a clock: gfx, mem, fabric, soc, video, decode"},
	{ID: AMDPCIeSpeed, Name: "amd_gpu_pcie_link_speed_transfers_per_second", Kind: Double, Level: GPU, Unit: "1/s", Max: 1e12, Help: "Speed of a lane of PCIe"},
	{ID: AMDPCIeSpeedMax, Name: "amd_gpu_pcie_max_link_speed_transfers_per_second", Kind: Double, Level: GPU, Unit: "1/s", Max: 1e12, Cost: Slow, Help: "Highest speed of a lane of PCIe"},
	{ID: AMDDeferred, Name: "amd_gpu_ras_deferred_errors_total", Kind: Int64, Level: GPU, Cost: Slow, Max: maxCycles, Help: "Deferred errors of all blocks"},
	{ID: AMDThrottleShare, Name: "amd_gpu_throttle_ratio", Kind: Double, Level: GPU, Unit: "ratio", Max: 1.1, Help: "Share of time since the last sample in which something held the GPU back, by reason"},
	{ID: AMDBelowLimitShare, Name: "amd_gpu_gfxclk_below_limit_ratio", Kind: Double, Level: Instance, Unit: "ratio", Max: 1.1, Help: "Share of time since the last sample with a chiplet's clock below the host's limit, by reason: power, thermal, low_utilization, any"},
}

// Readings that only AMD SMI has.
const (
	AMDRecords      ID = 10500 + iota // by severity
	AMDRecordTime                     // by severity
	AMDRecordAge                      // by severity
	AMDAFID                           // by index, severity
	AMDMemoryWidth                    //
	AMDManufacturer                   // a text, as the next six
	AMDFRU
	AMDVBIOSName
	AMDVBIOSDate
	AMDVBIOSPart
	AMDMemoryKind
	AMDMemoryMaker
	AMDRecordsUndated // by severity
)

// amdSMIFields lists these fields by ascending id.
var amdSMIFields = [...]Descriptor{
	{ID: AMDRecords, Name: "amd_gpu_cper_records", Kind: Int64, Level: GPU, Cost: Slow, Max: 1e6, Help: "Records of errors (CPER) that the driver keeps, by severity: fatal, non_fatal_uncorrected, non_fatal_corrected"},
	{ID: AMDRecordTime, Name: "amd_gpu_cper_timestamp_seconds", Kind: Int64, Level: GPU, Unit: "s", Cost: Slow, Max: maxSeconds, Help: "Time of the newest record of errors by severity, in Unix seconds"},
	{ID: AMDRecordAge, Name: "amd_gpu_cper_age_seconds", Kind: Double, Level: GPU, Unit: "s", Cost: Slow, Max: maxSeconds, Help: "Age of the newest record of errors by severity"},
	{ID: AMDAFID, Name: "amd_gpu_cper_afid", Kind: Int64, Level: GPU, Cost: Slow, Max: 1e6, Help: "AMD field ids of the newest record of errors, by severity and index: 0 to 11"},
	{ID: AMDMemoryWidth, Name: "amd_gpu_memory_bus_width_bits", Kind: Int64, Level: GPU, Unit: "bits", Cost: Slow, Max: 1e6, Help: "Width of the memory bus"},
	{ID: AMDManufacturer, Name: "amd_gpu_board_manufacturer", Kind: String, Level: GPU, Cost: Static, Help: "Manufacturer of the board"},
	{ID: AMDFRU, Name: "amd_gpu_board_fru_id", Kind: String, Level: GPU, Cost: Static, Help: "Id of the board as a replaceable unit"},
	{ID: AMDVBIOSName, Name: "amd_gpu_vbios_name", Kind: String, Level: GPU, Cost: Static, Help: "Name of the VBIOS"},
	{ID: AMDVBIOSDate, Name: "amd_gpu_vbios_build_date", Kind: String, Level: GPU, Cost: Static, Help: "Date of the VBIOS"},
	{ID: AMDVBIOSPart, Name: "amd_gpu_vbios_part_number", Kind: String, Level: GPU, Cost: Static, Help: "Part number of the VBIOS"},
	{ID: AMDMemoryKind, Name: "amd_gpu_memory_type", Kind: String, Level: GPU, Cost: Static, Help: "Kind of memory: HBM3, GDDR6"},
	{ID: AMDMemoryMaker, Name: "amd_gpu_memory_vendor", Kind: String, Level: GPU, Cost: Static, Help: "Manufacturer of the memory"},
	{ID: AMDRecordsUndated, Name: "amd_gpu_cper_undated", Kind: Int64, Level: GPU, Cost: Slow, Max: 1, Help: "1 if the driver keeps records of errors of that severity and none has a valid time"},
}
