package sysfs

import (
	"math"
	"slices"
	"strings"
)

// origin locates a file.
type origin struct {
	file   string // relative to the device's directory or to hwmon's
	hwmon  bool
	sensor string // label of the temperature sensor whose number replaces N in file
}

// meaning describes how to convert a text to a value.
type meaning struct {
	parse  func(text []byte) float64
	scale  float64 // to the reading's unit; 0 means 1
	blank0 bool    // 0 means unknown
}

// valueFile is a file with the cells that it fills.
type valueFile struct {
	origin
	file  File
	cells []valueCell
}

type valueCell struct {
	meaning
	cell int
}

// addValue adds a reading that is one number of a text.
func (h *Handle) addValue(w Reading, cell int) {
	at, means := originOf(w)
	if at.file == "" {
		return
	}
	for i := range h.values {
		if h.values[i].origin == at {
			h.values[i].cells = append(h.values[i].cells, valueCell{means, cell})
			return
		}
	}
	h.values = append(h.values, valueFile{origin: at, file: NewFile(""), cells: []valueCell{{means, cell}}})
}

func (h *Handle) readValues(values []float64, due []bool) {
	for i := range h.values {
		f := &h.values[i]
		if !slices.ContainsFunc(f.cells, func(c valueCell) bool { return due[c.cell] }) {
			continue
		}
		text, err := h.text(f)
		if err != nil {
			continue
		}
		for k := range f.cells {
			if c := &f.cells[k]; due[c.cell] {
				values[c.cell] = c.convert(c.parse(text))
			}
		}
	}
}

const (
	milli = 1e-3
	micro = 1e-6
)

// quantity describes the readings of a kind.
type quantity struct {
	files   []string // by Index
	hwmon   bool     // the files are below hwmon's directory
	sensors bool     // Index is a sensor, whose number replaces N in the file
	meaning
	others string // describes the files of a kind that does not read one number of a file
}

// quantities has the files and meanings by kind. The second die of a package reports a power and a limit of 0 W, because
// the first die reports the package's.
var quantities = [Kinds]quantity{ //nolint:gochecknoglobals // a constant
	Busy:            {files: []string{"gpu_busy_percent"}, meaning: meaning{parse: count}},
	MemoryBusy:      {files: []string{"mem_busy_percent"}, meaning: meaning{parse: count}},
	Clock:           {files: clockFiles, meaning: meaning{parse: dpmCurrent}},
	ClockMax:        {files: clockFiles, meaning: meaning{parse: dpmHighest}},
	ClockMin:        {files: clockFiles, meaning: meaning{parse: dpmLowest}},
	ClockSensor:     {files: []string{"freq1_input", "freq2_input"}, hwmon: true, meaning: meaning{parse: count, scale: micro}},
	Temperature:     {files: []string{"tempN_input"}, hwmon: true, sensors: true, meaning: meaning{parse: signed, scale: milli}},
	TemperatureCrit: {files: []string{"tempN_crit"}, hwmon: true, sensors: true, meaning: meaning{parse: signed, scale: milli}},
	TemperatureStop: {files: []string{"tempN_emergency"}, hwmon: true, sensors: true, meaning: meaning{parse: signed, scale: milli}},
	PowerAverage:    {files: []string{"power1_average"}, hwmon: true, meaning: meaning{parse: count, scale: micro, blank0: true}},
	PowerInput:      {files: []string{"power1_input"}, hwmon: true, meaning: meaning{parse: count, scale: micro, blank0: true}},
	PowerCap:        {files: []string{"power1_cap"}, hwmon: true, meaning: meaning{parse: count, scale: micro, blank0: true}},
	PowerCapMin:     {files: []string{"power1_cap_min"}, hwmon: true, meaning: meaning{parse: count, scale: micro}},
	PowerCapMax:     {files: []string{"power1_cap_max"}, hwmon: true, meaning: meaning{parse: count, scale: micro, blank0: true}},
	PowerCapDefault: {files: []string{"power1_cap_default"}, hwmon: true, meaning: meaning{parse: count, scale: micro, blank0: true}},
	Voltage:         {files: []string{"in0_input"}, hwmon: true, meaning: meaning{parse: signed, scale: milli}},
	FanRPM:          {files: []string{"fan1_input"}, hwmon: true, meaning: meaning{parse: count}},
	FanDuty:         {files: []string{"pwm1"}, hwmon: true, meaning: meaning{parse: count, scale: 1.0 / 255}},
	MemoryTotal:     {files: []string{"mem_info_vram_total", "mem_info_vis_vram_total", "mem_info_gtt_total"}, meaning: meaning{parse: count, blank0: true}},
	MemoryUsed:      {files: []string{"mem_info_vram_used", "mem_info_vis_vram_used", "mem_info_gtt_used"}, meaning: meaning{parse: count}},
	Replays:         {files: []string{"pcie_replay_count"}, meaning: meaning{parse: count}},
	LinkSpeed:       {files: []string{"current_link_speed"}, meaning: meaning{parse: linkSpeed}},
	LinkWidth:       {files: []string{"current_link_width"}, meaning: meaning{parse: count, blank0: true}},
	LinkSpeedMax:    {files: []string{"max_link_speed"}, meaning: meaning{parse: linkSpeed}},
	LinkWidthMax:    {files: []string{"max_link_width"}, meaning: meaning{parse: count, blank0: true}},
	Correctable:     {files: rasFiles(), meaning: meaning{parse: errorCount("ce:")}, others: "ras/*_err_count"},
	Uncorrectable:   {files: rasFiles(), meaning: meaning{parse: errorCount("ue:")}, others: "ras/*_err_count"},
	Deferred:        {files: rasFiles(), meaning: meaning{parse: errorCount("de:")}, others: "ras/*_err_count"},
}

var clockFiles = []string{"pp_dpm_sclk", "pp_dpm_mclk", "pp_dpm_fclk", "pp_dpm_socclk", "pp_dpm_vclk", "pp_dpm_dclk"} //nolint:gochecknoglobals // a constant

func rasFiles() (files []string) {
	for _, block := range blockNames {
		files = append(files, "ras/"+block+"_err_count")
	}
	return files
}

// originOf returns a reading's origin and meaning; the origin is empty if the reading has no file of its own.
func originOf(r Reading) (origin, meaning) {
	if r.Kind >= Kinds {
		return origin{}, meaning{}
	}
	q := &quantities[r.Kind]
	switch {
	case q.sensors && r.Index < Sensors:
		m := q.meaning
		m.blank0 = r.Kind == Temperature && r.Index == SensorMemory // boards without a memory sensor report 0
		label := [Sensors]string{SensorEdge: "edge", SensorJunction: "junction", SensorMemory: "mem"}[r.Index]
		return origin{file: q.files[0], hwmon: true, sensor: label}, m
	case r.Kind == BadPages && r.Index < Pages:
		return origin{file: pagesFile}, meaning{parse: badPages(r.Index)}
	case !q.sensors && int(r.Index) < len(q.files):
		return origin{file: q.files[r.Index], hwmon: q.hwmon}, q.meaning
	}
	return origin{}, meaning{}
}

func (m *meaning) convert(v float64) float64 {
	if m.blank0 && v == 0 {
		return math.NaN()
	}
	if m.scale != 0 {
		v *= m.scale
	}
	return v
}

// pagesFile lists the bad pages.
const pagesFile = "ras/gpu_vram_bad_pages"

// maxPages bounds the size of a list of bad pages, in bytes, 28 per page. A board is replaced long before it has that many.
const maxPages = 4 << 20

// text reads the whole file. The driver returns the list of bad pages in parts of whole lines.
func (h *Handle) text(f *valueFile) ([]byte, error) {
	part, err := h.read(&f.file, 0)
	switch {
	case err != nil:
		return nil, err
	case f.origin.file != pagesFile && len(part) == len(h.buf):
		return nil, ErrHuge
	case f.origin.file != pagesFile:
		return part, nil
	}
	h.pages = h.pages[:0]
	for ; err == nil && len(part) > 0; part, err = h.read(&f.file, int64(len(h.pages))) {
		if h.pages = append(h.pages, part...); len(h.pages) > maxPages {
			return nil, ErrHuge
		}
	}
	return h.pages, err
}

// Convert converts a number in the file's unit to the reading's unit.
func (r Reading) Convert(v float64) float64 {
	_, m := originOf(r)
	return m.convert(v)
}

// File describes the file of a reading, below the GPU's directory unless it begins with kfd/.
func (r Reading) File() string {
	if others := quantities[r.Kind].others; others != "" {
		return others
	}
	at, _ := originOf(r)
	file := at.file
	if at.sensor != "" {
		file = strings.Replace(file, "N", "*", 1) + " (label " + at.sensor + ")"
	}
	if at.hwmon {
		file = "hwmon " + file
	}
	return file
}
