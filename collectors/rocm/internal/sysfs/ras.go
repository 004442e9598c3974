package sysfs

import "warpgauge/collectors/rocm/internal/raw"

// rasFile is the file of one RAS block and the cells of what it counts.
type rasFile struct {
	block string
	file  File
	cells [3]int // correctable, uncorrectable, deferred; -1 is not wanted
}

func (h *handle) addRAS(w raw.Reading, cell int) {
	if w.Index >= raw.Blocks {
		return
	}
	block := raw.BlockName(w.Index)
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
	case raw.Correctable:
		h.ras[at].cells[0] = cell
	case raw.Uncorrectable:
		h.ras[at].cells[1] = cell
	default:
		h.ras[at].cells[2] = cell
	}
}

func (h *handle) readRAS(values []float64, due []bool) {
	for i := range h.ras {
		f := &h.ras[i]
		if !anyDue(f.cells[:], due) {
			continue
		}
		text, err := h.read(&f.file)
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
