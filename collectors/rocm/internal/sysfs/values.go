package sysfs

import (
	"errors"
	"math"
	"strings"
)

// origin locates a file.
type origin struct {
	file   string // relative to the device's directory or to hwmon's
	hwmon  bool
	sensor string // label of the temperature sensor whose number replaces N in file
}

// meaning says how to convert a text to a value.
type meaning struct {
	parse  func(text []byte) float64
	scale  float64 // to the reading's unit; 0 means 1
	blank0 bool    // 0 means unknown
}

// valueFile is a file with the cells that are read from it.
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
		wanted := false
		for k := range f.cells {
			wanted = wanted || due[f.cells[k].cell]
		}
		if !wanted {
			continue
		}
		text, err := h.readFile(&f.file)
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

// originOf returns a reading's origin and meaning; the origin is empty if the reading has no file of its own.
func originOf(r Reading) (origin, meaning) {
	switch r.Kind {
	case Busy:
		return origin{file: "gpu_busy_percent"}, meaning{parse: count}
	case MemoryBusy:
		return origin{file: "mem_busy_percent"}, meaning{parse: count}
	case Clock:
		return clock(r.Index), meaning{parse: ParseDPM}
	case ClockMax:
		return clock(r.Index), meaning{parse: ParseDPMMax}
	case ClockMin:
		return clock(r.Index), meaning{parse: ParseDPMMin}
	case Temperature: // boards whose memory has no sensor report 0
		return sensor(r.Index, "tempN_input"), meaning{parse: ParseFloat, scale: milli, blank0: r.Index == SensorMemory}
	case TemperatureCrit:
		return sensor(r.Index, "tempN_crit"), meaning{parse: ParseFloat, scale: milli}
	case TemperatureStop:
		return sensor(r.Index, "tempN_emergency"), meaning{parse: ParseFloat, scale: milli}
	case PowerAverage: // the second die of a package reports 0 W, because the first reports the package's power
		return hwmon("power1_average"), meaning{parse: count, scale: micro, blank0: true}
	case PowerInput:
		return hwmon("power1_input"), meaning{parse: count, scale: micro, blank0: true}
	case PowerCap: // the second die also has a limit of 0 W
		return hwmon("power1_cap"), meaning{parse: count, scale: micro, blank0: true}
	case PowerCapMin:
		return hwmon("power1_cap_min"), meaning{parse: count, scale: micro}
	case PowerCapMax:
		return hwmon("power1_cap_max"), meaning{parse: count, scale: micro, blank0: true}
	case PowerCapDefault:
		return hwmon("power1_cap_default"), meaning{parse: count, scale: micro, blank0: true}
	case Voltage:
		return hwmon("in0_input"), meaning{parse: ParseFloat, scale: milli}
	case FanRPM:
		return hwmon("fan1_input"), meaning{parse: count}
	case FanDuty:
		return hwmon("pwm1"), meaning{parse: count, scale: 1.0 / 255}
	case MemoryTotal:
		return oneOf(r.Index, "mem_info_vram_total", "mem_info_vis_vram_total", "mem_info_gtt_total"), meaning{parse: count, blank0: true}
	case MemoryUsed:
		return oneOf(r.Index, "mem_info_vram_used", "mem_info_vis_vram_used", "mem_info_gtt_used"), meaning{parse: count}
	case Replays:
		return origin{file: "pcie_replay_count"}, meaning{parse: count}
	case LinkSpeed:
		return origin{file: "current_link_speed"}, meaning{parse: ParseLinkSpeed}
	case LinkWidth:
		return origin{file: "current_link_width"}, meaning{parse: count, blank0: true}
	case LinkSpeedMax:
		return origin{file: "max_link_speed"}, meaning{parse: ParseLinkSpeed}
	case LinkWidthMax:
		return origin{file: "max_link_width"}, meaning{parse: count, blank0: true}
	default:
		return origin{}, meaning{}
	}
}

func hwmon(file string) origin { return origin{file: file, hwmon: true} }

func clock(index uint8) origin {
	return oneOf(index, "pp_dpm_sclk", "pp_dpm_mclk", "pp_dpm_fclk", "pp_dpm_socclk", "pp_dpm_vclk", "pp_dpm_dclk")
}

// oneOf returns one of several files by index, in the order of the constants.
func oneOf(index uint8, files ...string) origin {
	if int(index) >= len(files) {
		return origin{}
	}
	return origin{file: files[index]}
}

func sensor(index uint8, file string) origin {
	if index >= Sensors {
		return origin{}
	}
	label := [Sensors]string{SensorEdge: "edge", SensorJunction: "junction", SensorMemory: "mem"}[index]
	return origin{file: file, hwmon: true, sensor: label}
}

// value returns the value of a text in the reading's unit.
func (m *meaning) value(text []byte) float64 { return m.convert(m.parse(text)) }

func (m *meaning) convert(v float64) float64 {
	if m.blank0 && v == 0 {
		return math.NaN()
	}
	if m.scale != 0 {
		v *= m.scale
	}
	return v
}

// rasFile is the file of one RAS block, with the cells of its counts.
type rasFile struct {
	block string
	file  File
	cells [3]int // correctable, uncorrectable, deferred; -1: not needed
}

func (h *Handle) addRAS(w Reading, cell int) {
	if w.Index >= Blocks {
		return
	}
	block := BlockName(w.Index)
	at := -1
	for i := range h.ras {
		if h.ras[i].block == block {
			at = i
		}
	}
	if at < 0 {
		at = len(h.ras)
		h.ras = append(h.ras, rasFile{block: block, file: NewFile(""), cells: [3]int{-1, -1, -1}})
	}
	switch w.Kind {
	case Correctable:
		h.ras[at].cells[0] = cell
	case Uncorrectable:
		h.ras[at].cells[1] = cell
	default:
		h.ras[at].cells[2] = cell
	}
}

func (h *Handle) readRAS(values []float64, due []bool) {
	for i := range h.ras {
		f := &h.ras[i]
		if !anyDue(f.cells[:], due) {
			continue
		}
		text, err := h.readFile(&f.file)
		if err != nil {
			continue
		}
		counts := ParseErrors(text)
		for k, v := range [3]float64{counts.Correctable, counts.Uncorrectable, counts.Deferred} {
			if cell := f.cells[k]; cell >= 0 && due[cell] {
				values[cell] = v
			}
		}
	}
}

func anyDue(cells []int, due []bool) bool {
	for _, c := range cells {
		if c >= 0 && due[c] {
			return true
		}
	}
	return false
}

// maxPages bounds the size of a list of bad pages, at 28 bytes per page: many times what a board keeps before its maker
// replaces it.
const maxPages = 4 << 20

// pageCells are the cells of bad pages, by state.
type pageCells struct {
	file  File
	cells [Pages]int // cell + 1; 0: not needed
}

func (p *pageCells) addCell(w Reading, cell int) {
	if w.Index < Pages {
		p.cells[w.Index] = cell + 1
	}
}

func (p *pageCells) has(has []bool) {
	for _, c := range p.cells {
		if c > 0 {
			has[c-1] = exists(p.file.path)
		}
	}
}

func (h *Handle) readPages(values []float64, due []bool) {
	wanted := false
	for _, c := range h.pages.cells {
		wanted = wanted || c > 0 && due[c-1]
	}
	if !wanted {
		return
	}
	pages, ok := h.badPages()
	for state, c := range h.pages.cells {
		if ok && c > 0 && due[c-1] {
			values[c-1] = float64(pages[state])
		}
	}
}

// badPages counts the bad pages by state. The list is empty if there are none; ok is false if the list cannot be read
// completely.
func (h *Handle) badPages() (p badPages, ok bool) {
	for offset := int64(0); offset < maxPages; {
		n, err := h.pages.file.ReadAt(h.buf, offset, h.now)
		switch {
		case errors.Is(err, ErrEmpty), err == nil && n == 0:
			return p, true
		case err != nil:
			h.gone = h.gone || errors.Is(err, ErrGone)
			return p, false
		}
		used, good := p.count(h.buf[:n], n < len(h.buf))
		if !good || used == 0 {
			return p, false
		}
		offset += int64(used)
	}
	return p, false
}

// badPages is the number of pages in each state.
type badPages [Pages]uint64

// count counts the complete lines of a part of the list; the last line of the list may lack its line end. It returns
// the number of bytes in these lines and whether all of them were valid.
func (p *badPages) count(text []byte, last bool) (used int, ok bool) {
	for len(text) > 0 {
		line, rest := cutLine(text)
		if len(line) == len(text) && !last {
			return used, true
		}
		if len(trim(line)) > 0 && !p.countLine(line) {
			return used, false
		}
		used += len(text) - len(rest)
		text = rest
	}
	return used, true
}

// countLine counts one line such as "0x00001a2b : 0x00001000 : R". It returns false for any other line.
func (p *badPages) countLine(line []byte) bool {
	line = trim(line)
	if len(line) < 5 || line[1] != 'x' || line[len(line)-3] != ':' {
		return false
	}
	switch line[len(line)-1] {
	case 'R':
		p[PageRetired]++
	case 'P':
		p[PagePending]++
	case 'F':
		p[PageFailed]++
	default:
		return false
	}
	return true
}

// instanceCell is the cell of an instance's memory size.
type instanceCell struct {
	cell  int
	node  int
	bytes float64 // 0: not read yet
}

func (h *Handle) addInstance(w Reading, cell int) {
	if at := h.gpu.instance(int(w.Index)); at >= 0 {
		h.instances = append(h.instances, instanceCell{cell: cell, node: h.gpu.Instances[at].Node})
	}
}

// readInstances reads values that are fixed while the partitioning stays the same, so it reads each once, from the
// topology.
func (h *Handle) readInstances(values []float64, due []bool) {
	for i := range h.instances {
		c := &h.instances[i]
		if !due[c.cell] {
			continue
		}
		if c.bytes == 0 {
			bytes, _ := frameBuffer(h.r.nodeDir(c.node))
			c.bytes = float64(bytes)
		}
		if c.bytes > 0 {
			values[c.cell] = c.bytes
		}
	}
}

// Convert converts a number in the file's unit to the reading's unit.
func (r Reading) Convert(v float64) float64 {
	_, m := originOf(r)
	return m.convert(v)
}

// File describes the file of a reading, below the GPU's directory unless it begins with kfd/.
func (r Reading) File() string {
	switch r.Kind {
	case Correctable, Uncorrectable, Deferred:
		return "ras/*_err_count"
	case BadPages:
		return "ras/gpu_vram_bad_pages"
	case Processes:
		return "kfd/proc/*"
	case ProcessMemory:
		return "kfd/proc/*/vram_ID"
	case ProcessUnits:
		return "kfd/proc/*/stats_ID/cu_occupancy"
	case InstanceTotal:
		return "kfd/topology/nodes/*/mem_banks"
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
