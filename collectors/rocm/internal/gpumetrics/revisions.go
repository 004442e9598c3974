package gpumetrics

// The structures of boards, gpu_metrics_v1_0 to v1_8 in
// https://github.com/torvalds/linux/blob/master/drivers/gpu/drm/amd/include/kgd_pp_interface.h

func v10(b *builder) {
	b.u64(SystemClockCounter)
	b.temperatures()
	b.u16(AverageGfxActivity, AverageUmcActivity, AverageMMActivity, AverageSocketPower)
	b.u32(EnergyByASIC)
	b.boardClocks()
	b.u32(ThrottleStatus)
	b.u16(FanSpeed)
	b.u8(PCIeLinkWidth, PCIeLinkSpeed)
	b.unit(0.1, PCIeLinkSpeed)
}

// v11 is 1.1, 1.2 and 1.3, which only grow at the end.
func v11(b *builder, content uint8) {
	b.temperatures()
	b.u16(AverageGfxActivity, AverageUmcActivity, AverageMMActivity, AverageSocketPower)
	b.u64(EnergyByASIC, SystemClockCounter)
	b.boardClocks()
	b.u32(ThrottleStatus)
	b.u16(FanSpeed, PCIeLinkWidth, PCIeLinkSpeed)
	b.skip(2, 1)
	b.u32(GfxActivityAcc, MemActivityAcc)
	b.u16s(4, TemperatureHBM)
	b.unit(0.1, PCIeLinkSpeed)
	if content >= 2 {
		b.u64(FirmwareTimestamp)
	}
	if content >= 3 {
		b.u16(VoltageSoc, VoltageGfx, VoltageMem)
		b.skip(2, 1)
		b.u64(IndepThrottleStatus)
	}
}

func (b *builder) temperatures() {
	b.u16(TemperatureEdge, TemperatureHotspot, TemperatureMem, TemperatureVRGfx, TemperatureVRSoc, TemperatureVRMem)
}

func (b *builder) boardClocks() {
	b.u16(AverageGfxclk, AverageSocclk, AverageUclk, AverageVclk0, AverageDclk0, AverageVclk1, AverageDclk1)
	b.u16(CurrentGfxclk, CurrentSocclk, CurrentUclk, CurrentVclk0, CurrentDclk0, CurrentVclk1, CurrentDclk1)
}

// v14 is 1.4 and 1.5.
func v14(b *builder, content uint8) {
	b.socket()
	b.u16s(VCNs, VCNActivity)
	if content >= 5 {
		b.u16s(JPEGs, JPEGActivity)
	}
	b.u64(EnergyAccumulator, SystemClockCounter)
	b.u32(ThrottleStatus, GfxclkLockStatus)
	b.links()
	if content >= 5 {
		b.u32(PCIeNAKSent, PCIeNAKReceived)
	}
	b.xgmi()
	b.socketClocks()
	b.skip(2, 1)
}

// v16 is 1.6, 1.7 and 1.8, which differ in the members of a partition.
func v16(b *builder, content uint8) {
	b.socket()
	if content >= 7 {
		b.u64(MemMaxBandwidth)
	}
	b.u64(EnergyAccumulator, SystemClockCounter)
	b.u32(AccumulationCounter, ProchotResidency, PPTResidency, SocketThmResidency, VRThmResidency, HBMThmResidency)
	b.u32(GfxclkLockStatus)
	b.links()
	b.u32(PCIeNAKSent, PCIeNAKReceived)
	b.xgmi()
	if content >= 7 {
		b.u16s(XGMILinks, XGMILinkStatus)
		b.skip(2, 1)
	}
	b.socketClocks()
	b.u16(NumPartition)
	for i := range Partitions {
		b.partition(content, i)
	}
	b.u32(PCIeOtherEnd)
}

func (b *builder) socket() {
	b.u16(TemperatureHotspot, TemperatureMem, TemperatureVRSoc, CurrentSocketPower, AverageGfxActivity, AverageUmcActivity)
}

func (b *builder) links() {
	b.u16(PCIeLinkWidth, PCIeLinkSpeed, XGMILinkWidth, XGMILinkSpeed)
	b.u32(GfxActivityAcc, MemActivityAcc)
	b.unit(0.1, PCIeLinkSpeed)
	b.u64(PCIeBandwidthAcc, PCIeBandwidthInst, PCIeL0ToRecovery, PCIeReplay, PCIeReplayRover)
}

func (b *builder) xgmi() {
	b.u64s(XGMILinks, XGMIReadAcc)
	b.u64s(XGMILinks, XGMIWriteAcc)
}

func (b *builder) socketClocks() {
	b.u64(FirmwareTimestamp)
	b.u16s(GfxClocks, CurrentGfxclk)
	b.u16s(Clocks, CurrentSocclk)
	b.u16s(Clocks, CurrentVclk0)
	b.u16s(Clocks, CurrentDclk0)
	b.u16(CurrentUclk)
}

// partition is amdgpu_xcp_metrics (1.6), _v1_1 (1.7) or _v1_2 (1.8). Each starts
// where eight bytes are aligned, as it has members of that width.
func (b *builder) partition(content uint8, i int) {
	b.at = (b.at + 7) &^ 7
	jpegs := JPEGs
	if content >= 8 {
		jpegs = JPEGsOfXCP
	}
	b.put(4, XCCs, XCPGfxBusy, i*XCCs)
	b.put(2, jpegs, XCPJPEGBusy, i*JPEGsOfXCP)
	b.put(2, VCNs, XCPVCNBusy, i*VCNs)
	b.put(8, XCCs, XCPGfxBusyAcc, i*XCCs)
	switch content {
	case 7:
		b.put(8, XCCs, XCPBelowHostLimit, i*XCCs)
	case 8:
		for _, f := range []Field{XCPBelowLimitPPT, XCPBelowLimitThm, XCPLowUtilization, XCPBelowLimitTotal} {
			b.put(8, XCCs, f, i*XCCs)
		}
	}
}

// The structures of APUs, gpu_metrics_v2_0 to v2_4 and v3_0. The drivers copy the firmware's numbers, whose units
// differed between processors until 2.4 defined them. So only the values that are alike everywhere are decoded:
// temperatures in hundredths of a degree, graphics power in milliwatts, clocks in MHz. Not decoded are activities
// (percent, or hundredths of it), socket power (Renoir's firmware changed from W to mW) and fan duty, which the driver
// converts to one unit in gpu_busy_percent and hwmon. Nor are the residencies of 3.0: the kernel calls them "ASIC
// dependent", and no counter has all cycles.

func v20(b *builder, content uint8) {
	if content == 0 {
		b.u64(SystemClockCounter)
	}
	b.u16(TemperatureGfx, TemperatureSoc)
	b.skip(2, 8+2) // of cores and caches
	if content >= 4 {
		b.u16(AverageGfxActivity, AverageMMActivity)
		b.unit(0.01, AverageGfxActivity, AverageMMActivity)
	} else {
		b.skip(2, 2)
	}
	if content > 0 {
		b.u64(SystemClockCounter)
	}
	if content >= 4 {
		b.u16(AverageSocketPower)
		b.unit(0.001, AverageSocketPower)
	} else {
		b.skip(2, 1)
	}
	b.skip(2, 2) // of cores and system
	b.u16(AverageGfxPower)
	b.skip(2, 8)
	b.u16(AverageGfxclk, AverageSocclk, AverageUclk, AverageFclk, AverageVclk0, AverageDclk0)
	b.u16(CurrentGfxclk, CurrentSocclk, CurrentUclk, CurrentFclk, CurrentVclk0, CurrentDclk0)
	b.skip(2, 8+2)
	b.u32(ThrottleStatus)
	b.skip(2, 1) // fan
	b.unit(0.01, TemperatureGfx, TemperatureSoc)
	b.unit(0.001, AverageGfxPower)
	if content == 0 {
		b.skip(2, 1)
		return
	}
	b.skip(2, 3)
	if content >= 2 {
		b.u64(IndepThrottleStatus)
	}
	if content >= 3 {
		b.skip(2, 2+8+2) // average temperatures
	}
	if content >= 4 {
		b.skip(2, 1)
		b.u16(VoltageSoc, VoltageGfx)
		b.skip(2, 3) // currents
	}
}

func v30(b *builder) {
	b.u16(TemperatureGfx, TemperatureSoc)
	b.skip(2, 16+1)     // of cores and case
	b.skip(2, 2+8+16+4) // activities, memory bandwidth of the inference unit
	b.u64(SystemClockCounter)
	b.u32(AverageSocketPower)
	b.skip(2, 1)
	b.skip(4, 1)
	b.u32(AverageGfxPower)
	b.skip(4, 2)
	b.skip(2, 16+3) // of cores, system, limits
	b.u16(AverageGfxclk, AverageSocclk)
	b.skip(2, 2)
	b.u16(AverageFclk, AverageVclk0, AverageUclk)
	b.skip(2, 1+16+2)
	b.skip(4, 7+1) // residencies in a unit that no source names; a filter's time
	b.unit(0.01, TemperatureGfx, TemperatureSoc)
	b.unit(0.001, AverageSocketPower, AverageGfxPower)
}
