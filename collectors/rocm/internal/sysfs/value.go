package sysfs

import (
	"math"

	"warpgauge/collectors/rocm/internal/raw"
)

// place is where a text is.
type place struct {
	file   string // relative to the device's directory, or to hwmon's
	hwmon  bool
	sensor string // label of the temperature whose number stands for N in file
}

// meaning is how a text is read.
type meaning struct {
	parse  func(text []byte) float64
	scale  float64 // to raw's unit; 0 is 1
	blank0 bool    // 0 is what a driver says that does not know
}

// valueFile is a file and the cells that are read from it.
type valueFile struct {
	place
	file  File
	cells []valueCell
}

type valueCell struct {
	meaning
	cell int
}

// addValue adds a reading that is one number of a text.
func (h *handle) addValue(w raw.Reading, cell int) {
	at, means := sourceOf(w)
	if at.file == "" {
		return
	}
	for i := range h.values {
		if h.values[i].place == at {
			h.values[i].cells = append(h.values[i].cells, valueCell{means, cell})
			return
		}
	}
	h.values = append(h.values, valueFile{place: at, file: NewFile(""), cells: []valueCell{{means, cell}}})
}

func (h *handle) readValues(values []float64, due []bool) {
	for i := range h.values {
		f := &h.values[i]
		wanted := false
		for k := range f.cells {
			wanted = wanted || due[f.cells[k].cell]
		}
		if !wanted {
			continue
		}
		text, err := h.read(&f.file)
		if err != nil {
			continue
		}
		for k := range f.cells {
			if c := &f.cells[k]; due[c.cell] {
				values[c.cell] = c.value(text)
			}
		}
	}
}

const (
	milli = 1e-3
	micro = 1e-6
)

// sourceOf returns place and meaning of a reading; no file is what has none of its own.
func sourceOf(r raw.Reading) (place, meaning) {
	switch r.Kind {
	case raw.Busy:
		return place{file: "gpu_busy_percent"}, meaning{parse: count}
	case raw.MemoryBusy:
		return place{file: "mem_busy_percent"}, meaning{parse: count}
	case raw.Clock:
		return clock(r.Index), meaning{parse: ParseDPM}
	case raw.ClockMax:
		return clock(r.Index), meaning{parse: ParseDPMMax}
	case raw.Temperature:
		return sensor(r.Index, "tempN_input"), meaning{parse: ParseFloat, scale: milli}
	case raw.TemperatureCrit:
		return sensor(r.Index, "tempN_crit"), meaning{parse: ParseFloat, scale: milli}
	case raw.TemperatureStop:
		return sensor(r.Index, "tempN_emergency"), meaning{parse: ParseFloat, scale: milli}
	case raw.PowerAverage: // 0 W is said by the second die of a package, whose power the first one tells
		return hwmon("power1_average"), meaning{parse: count, scale: micro, blank0: true}
	case raw.PowerInput:
		return hwmon("power1_input"), meaning{parse: count, scale: micro, blank0: true}
	case raw.PowerCap: // and 0 W as a limit, too
		return hwmon("power1_cap"), meaning{parse: count, scale: micro, blank0: true}
	case raw.PowerCapMin:
		return hwmon("power1_cap_min"), meaning{parse: count, scale: micro}
	case raw.PowerCapMax:
		return hwmon("power1_cap_max"), meaning{parse: count, scale: micro, blank0: true}
	case raw.PowerCapDefault:
		return hwmon("power1_cap_default"), meaning{parse: count, scale: micro, blank0: true}
	case raw.Voltage:
		return hwmon("in0_input"), meaning{parse: ParseFloat, scale: milli}
	case raw.FanRPM:
		return hwmon("fan1_input"), meaning{parse: count}
	case raw.FanDuty:
		return hwmon("pwm1"), meaning{parse: count, scale: 1.0 / 255}
	case raw.MemoryTotal:
		return oneOf(r.Index, "mem_info_vram_total", "mem_info_vis_vram_total", "mem_info_gtt_total"), meaning{parse: count, blank0: true}
	case raw.MemoryUsed:
		return oneOf(r.Index, "mem_info_vram_used", "mem_info_vis_vram_used", "mem_info_gtt_used"), meaning{parse: count}
	case raw.Replays:
		return place{file: "pcie_replay_count"}, meaning{parse: count}
	case raw.LinkSpeed:
		return place{file: "current_link_speed"}, meaning{parse: ParseLinkSpeed}
	case raw.LinkWidth:
		return place{file: "current_link_width"}, meaning{parse: count, blank0: true}
	case raw.LinkSpeedMax:
		return place{file: "max_link_speed"}, meaning{parse: ParseLinkSpeed}
	case raw.LinkWidthMax:
		return place{file: "max_link_width"}, meaning{parse: count, blank0: true}
	default:
		return place{}, meaning{}
	}
}

func hwmon(file string) place { return place{file: file, hwmon: true} }

func clock(index uint8) place {
	return oneOf(index, "pp_dpm_sclk", "pp_dpm_mclk", "pp_dpm_fclk", "pp_dpm_socclk", "pp_dpm_vclk", "pp_dpm_dclk")
}

// oneOf is one of several files by index, in raw's order.
func oneOf(index uint8, files ...string) place {
	if int(index) >= len(files) {
		return place{}
	}
	return place{file: files[index]}
}

func sensor(index uint8, file string) place {
	if index >= raw.Sensors {
		return place{}
	}
	label := [raw.Sensors]string{raw.SensorEdge: "edge", raw.SensorJunction: "junction", raw.SensorMemory: "mem"}[index]
	return place{file: file, hwmon: true, sensor: label}
}

// value is what a text says in raw's unit.
func (m *meaning) value(text []byte) float64 {
	v := m.parse(text)
	if m.blank0 && v == 0 {
		return math.NaN()
	}
	if m.scale != 0 {
		v *= m.scale
	}
	return v
}
