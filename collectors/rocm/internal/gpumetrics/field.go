package gpumetrics

// Field is one member of gpu_metrics, or an array of members, under one name for all revisions. The comment behind each
// gives the unit of Metrics.Float. Counters of 32 bits wrap: see Wraps.
type Field uint8

// The members that are read. Those of processor cores and paddings are not.
const (
	TemperatureEdge    Field = iota // °C
	TemperatureHotspot              // °C
	TemperatureMem                  // °C
	TemperatureVRGfx                // °C, voltage regulator
	TemperatureVRSoc                // °C
	TemperatureVRMem                // °C
	TemperatureHBM                  // °C, [12] stacks
	TemperatureGfx                  // °C, of an APU
	TemperatureSoc                  // °C, of an APU

	AverageGfxActivity // percent
	AverageUmcActivity // percent, memory controller
	AverageMMActivity  // percent, multimedia: UVD or VCN
	VCNActivity        // percent, [4] instances
	JPEGActivity       // percent, [32]

	AverageSocketPower // W; with an APU and a board on one limit, both together
	CurrentSocketPower // W
	AverageGfxPower    // W, of an APU's graphics

	EnergyAccumulator  // counter, 2⁻¹⁶ J, 64 bits: of MI300 and later (1.4 and later)
	EnergyByASIC       // counter of 1.0 to 1.3: unit and width depend on the ASIC; of MI200 as above
	SystemClockCounter // counter, ns, the driver's clock
	FirmwareTimestamp  // counter, 10 ns
	GfxActivityAcc     // counter, percent × ms
	MemActivityAcc     // counter, percent × ms

	AverageGfxclk // MHz
	AverageSocclk // MHz
	AverageUclk   // MHz, memory
	AverageFclk   // MHz, fabric
	AverageVclk0  // MHz, video
	AverageDclk0  // MHz, video
	AverageVclk1  // MHz
	AverageDclk1  // MHz
	CurrentGfxclk // MHz, [8] XCCs
	CurrentSocclk // MHz, [4]
	CurrentUclk   // MHz, [2] dies
	CurrentFclk   // MHz
	CurrentVclk0  // MHz, [4]
	CurrentDclk0  // MHz, [4]
	CurrentVclk1  // MHz
	CurrentDclk1  // MHz

	ThrottleStatus      // bits whose meaning depends on the ASIC
	IndepThrottleStatus // bits: 0–7 power, 16–23 current, 32–45 temperature, 46–47 PROCHOT (amdgpu_smu.h)
	GfxclkLockStatus    // bits, one a clock

	FanSpeed // revolutions per minute

	VoltageSoc // mV
	VoltageGfx // mV
	VoltageMem // mV

	PCIeLinkWidth     // lanes
	PCIeLinkSpeed     // GT/s
	XGMILinkWidth     // lanes
	XGMILinkSpeed     // Gb/s
	PCIeBandwidthAcc  // sum of PCIeBandwidthInst, [2]
	PCIeBandwidthInst // Mb/s, both directions, [2] dies whose sum is the link's (docs/verified.md has the unit's sources)
	PCIeL0ToRecovery  // counter
	PCIeReplay        // counter
	PCIeReplayRover   // counter, replays that went round
	PCIeNAKSent       // counter
	PCIeNAKReceived   // counter
	PCIeOtherEnd      // counter, recoveries that the link's other end asked for
	XGMIReadAcc       // counter, kB, [9]: 8 links, or behind them the sum over all
	XGMIWriteAcc      // counter, kB, [9]
	XGMILinkStatus    // 1 = up, 0 = down, [8] links

	MemMaxBandwidth     // GB/s
	AccumulationCounter // counter, cycles of the residencies
	ProchotResidency    // counter, cycles
	PPTResidency        // counter, cycles: power limit
	SocketThmResidency  // counter, cycles
	VRThmResidency      // counter, cycles
	HBMThmResidency     // counter, cycles

	NumPartition // partitions in use
	// Engines of the partitions. Index: partition × 8 + XCC; for the video engines partition × 4 + instance, partition
	// × 40 + engine.
	XCPGfxBusy               // percent, [8 × 8]
	XCPJPEGBusy              // percent, [8 × 40]
	XCPVCNBusy               // percent, [8 × 4]
	XCPGfxBusyAcc            // counter, percent × ms, [8 × 8]
	XCPBelowHostLimit        // counter, cycles with the clock below the host's limit, [8 × 8]
	XCPBelowLimitPPT         // counter, of these for power, [8 × 8]
	XCPBelowLimitThm         // counter, for heat, [8 × 8]
	XCPLowUtilization        // counter, for want of work, [8 × 8]
	XCPBelowLimitTotal       // counter, for any reason, [8 × 8]
	fields                   // how many there are
	none               Field = 255
)

// Bounds of the arrays.
const (
	HBMStacks  = 12
	Dies       = 2
	XGMILinks  = 8
	GfxClocks  = 8
	Clocks     = 4
	VCNs       = 4
	JPEGs      = 32
	Partitions = 8
	XCCs       = 8  // of a partition
	JPEGsOfXCP = 40 // of a partition; 32 before revision 1.8
)

// Len is how many values a field has at most.
func (f Field) Len() int {
	switch f {
	case TemperatureHBM:
		return HBMStacks
	case VCNActivity:
		return VCNs
	case JPEGActivity:
		return JPEGs
	case CurrentUclk, PCIeBandwidthAcc, PCIeBandwidthInst:
		return Dies
	case CurrentGfxclk:
		return GfxClocks
	case CurrentSocclk, CurrentVclk0, CurrentDclk0:
		return Clocks
	case XGMIReadAcc, XGMIWriteAcc:
		return XGMILinks + 1
	case XGMILinkStatus:
		return XGMILinks
	case XCPGfxBusy, XCPGfxBusyAcc, XCPBelowHostLimit, XCPBelowLimitPPT, XCPBelowLimitThm, XCPLowUtilization, XCPBelowLimitTotal:
		return Partitions * XCCs
	case XCPVCNBusy:
		return Partitions * VCNs
	case XCPJPEGBusy:
		return Partitions * JPEGsOfXCP
	default:
		return 1
	}
}
