package rocm

import (
	"math"

	"warpgauge/collectors/rocm/internal/raw"
)

// smiReading says how the library is asked for a reading.
type smiReading struct {
	ask   smiAsk
	value int     // which of the answer's values
	per   float64 // the reading is the value divided by this
	// file is what the library reads, below the GPU's directory, or below that
	// of its sensors, where N stands for the number of the one with the label.
	file, label string
	sensors     bool
	blank0      bool // 0 is what a driver says that does not know
}

// What the numbers of the library are.
const (
	smiTempCritical  = 5 << 8 // RSMI_TEMP_CRITICAL, as smi.h packs it
	smiTempEmergency = 7 << 8 // RSMI_TEMP_EMERGENCY
	smiClockSystem   = 3      // RSMI_CLK_TYPE_SOC
	smiClockMemory   = 4      // RSMI_CLK_TYPE_MEM
	smiBlocks        = 7
)

// smiReadingOf returns how to ask for r, and whether the library can be asked at
// all: what it does not know is read from /sys.
func smiReadingOf(r raw.Reading) (smiReading, bool) {
	simple := func(f smiFunction, per float64, file string) (smiReading, bool) {
		return smiReading{ask: smiAsk{function: f}, per: per, file: file}, r.Index == 0
	}
	sensor := func(f smiFunction, per float64, file string, blank0 bool) (smiReading, bool) {
		return smiReading{ask: smiAsk{function: f}, per: per, file: file, sensors: true, blank0: blank0}, r.Index == 0
	}
	switch r.Kind {
	case raw.Busy:
		return simple(smiBusy, 1, "gpu_busy_percent")
	case raw.MemoryBusy:
		return simple(smiMemoryBusy, 1, "mem_busy_percent")
	case raw.Clock:
		return smiClockOf(r.Index, 0)
	case raw.ClockMax:
		return smiClockOf(r.Index, 1)
	case raw.Temperature:
		return smiTemperatureOf(r.Index, 0, "tempN_input")
	case raw.TemperatureCrit:
		return smiTemperatureOf(r.Index, smiTempCritical, "tempN_crit")
	case raw.TemperatureStop:
		return smiTemperatureOf(r.Index, smiTempEmergency, "tempN_emergency")
	case raw.PowerAverage:
		return sensor(smiPowerAverage, 1e6, "power1_average", true)
	case raw.PowerInput:
		return sensor(smiSocketPower, 1e6, "power1_input", true)
	case raw.PowerCap:
		return sensor(smiPowerCap, 1e6, "power1_cap", true)
	case raw.PowerCapMax:
		return sensor(smiPowerCapRange, 1e6, "power1_cap_max", true)
	case raw.PowerCapMin:
		s, ok := sensor(smiPowerCapRange, 1e6, "power1_cap_min", false)
		s.value = 1
		return s, ok
	case raw.Voltage:
		return sensor(smiVoltage, 1e3, "in0_input", false)
	case raw.FanRPM:
		return sensor(smiFanRPM, 1, "fan1_input", false)
	case raw.FanDuty:
		return sensor(smiFanSpeed, 255, "pwm1", false)
	case raw.MemoryTotal:
		return smiMemoryOf(smiMemoryTotal, r.Index, "_total", true)
	case raw.MemoryUsed:
		return smiMemoryOf(smiMemoryUsage, r.Index, "_used", false)
	case raw.Replays:
		return simple(smiPCIReplay, 1, "pcie_replay_count")
	case raw.Correctable:
		return smiBlockOf(r.Index, 0)
	case raw.Uncorrectable:
		return smiBlockOf(r.Index, 1)
	case raw.BadPages:
		return smiReading{ask: smiAsk{function: smiBadPages}, value: int(r.Index), per: 1, file: "ras/gpu_vram_bad_pages"}, r.Index < raw.Pages
	default:
		return smiReading{}, false
	}
}

func smiClockOf(clock uint8, value int) (smiReading, bool) {
	kinds := [...]struct {
		kind uint32
		file string
	}{
		raw.ClockGraphics: {0, "pp_dpm_sclk"},
		raw.ClockMemory:   {smiClockMemory, "pp_dpm_mclk"},
		raw.ClockFabric:   {1, "pp_dpm_fclk"},
		raw.ClockSystem:   {smiClockSystem, "pp_dpm_socclk"},
	}
	if int(clock) >= len(kinds) {
		return smiReading{}, false
	}
	k := kinds[clock]
	return smiReading{ask: smiAsk{smiClock, k.kind}, value: value, per: 1e6, file: k.file}, true
}

func smiTemperatureOf(sensor uint8, metric uint32, file string) (smiReading, bool) {
	labels := [raw.Sensors]string{"edge", "junction", "mem"}
	if int(sensor) >= len(labels) {
		return smiReading{}, false
	}
	// The library counts sensors as package raw does.
	return smiReading{ask: smiAsk{smiTemperature, uint32(sensor) | metric}, per: 1e3, file: file, label: labels[sensor], sensors: true}, true
}

func smiMemoryOf(f smiFunction, memory uint8, end string, blank0 bool) (smiReading, bool) {
	names := [raw.Memories]string{"mem_info_vram", "mem_info_vis_vram", "mem_info_gtt"}
	if int(memory) >= len(names) {
		return smiReading{}, false
	}
	return smiReading{ask: smiAsk{f, uint32(memory)}, per: 1, file: names[memory] + end, blank0: blank0}, true
}

func smiBlockOf(block uint8, value int) (smiReading, bool) {
	// rsmi_gpu_block_t, in the order of package raw.
	bits := [smiBlocks]uint32{0x1, 0x2, 0x4, 0x8, 0x20, 0x40, 0x80}
	if int(block) >= len(bits) {
		return smiReading{}, false
	}
	return smiReading{ask: smiAsk{smiECCCount, bits[block]}, value: value, per: 1, file: "ras/" + raw.BlockName(block) + "_err_count"}, true
}

// of converts an answer to the reading, NaN where it has none.
func (r *smiReading) of(a *smiAnswer) float64 {
	if a.status != smiSuccess {
		return math.NaN()
	}
	v := float64(a.value[r.value])
	if f := r.ask.function; f == smiTemperature || f == smiVoltage {
		v = float64(int64(a.value[r.value])) // signed in the library
	}
	if a.value[r.value] == math.MaxUint64 || r.blank0 && v == 0 {
		return math.NaN()
	}
	return v / r.per
}
