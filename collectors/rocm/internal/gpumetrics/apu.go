package gpumetrics

// The structures of APUs, gpu_metrics_v2_0 to v2_4 and v3_0. Temperatures are in
// hundredths of a degree and powers in milliwatts in all of them, whatever the
// older comments say: the drivers copy the firmware's numbers, and divide them
// for hwmon. Activities are percent with some processors and hundredths of it
// with others, which cannot be told from the file, so they are not read here:
// gpu_busy_percent has them in one unit. Only 2.4 defines its unit.

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
	b.u16(AverageSocketPower)
	b.skip(2, 2) // of cores and system
	b.u16(AverageGfxPower)
	b.skip(2, 8)
	b.u16(AverageGfxclk, AverageSocclk, AverageUclk, AverageFclk, AverageVclk0, AverageDclk0)
	b.u16(CurrentGfxclk, CurrentSocclk, CurrentUclk, CurrentFclk, CurrentVclk0, CurrentDclk0)
	b.skip(2, 8+2)
	b.u32(ThrottleStatus)
	b.u16(FanPWM)
	b.unit(0.01, TemperatureGfx, TemperatureSoc)
	b.unit(0.001, AverageSocketPower, AverageGfxPower)
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
