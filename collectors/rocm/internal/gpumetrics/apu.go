package gpumetrics

// The structures of APUs, gpu_metrics_v2_0 to v2_4 and v3_0. The drivers copy the
// firmware's numbers, whose units differ between processors before 2.4 defined
// them. So what is read here is what is alike with all: temperatures in
// hundredths of a degree, power of the graphics in milliwatts, clocks in MHz.
// Not read are activities (percent, or hundredths of it), power of the socket
// (Renoir's firmware changed from W to mW) and fan duty: the driver brings these
// to one unit in gpu_busy_percent and hwmon.

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
	b.u32(ResidencyProchot, ResidencySPL, ResidencyFPPT, ResidencySPPT, ResidencyThmCore, ResidencyThmGfx, ResidencyThmSoc)
	b.skip(4, 1)
	b.unit(0.01, TemperatureGfx, TemperatureSoc)
	b.unit(0.001, AverageSocketPower, AverageGfxPower)
}
