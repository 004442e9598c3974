package sysfs

import (
	"errors"

	"warpgauge/collectors/rocm/internal/raw"
)

// maxPages bounds how much of a list of bad pages is read: many times what a
// board keeps before its maker replaces it, at 28 bytes a page.
const maxPages = 4 << 20

// pageCells are the cells of bad pages, by state.
type pageCells struct {
	file  File
	cells [raw.Pages]int // cell + 1; 0 is not wanted
}

func (p *pageCells) add(w raw.Reading, cell int) {
	if w.Index < raw.Pages {
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

func (h *handle) readPages(values []float64, due []bool) {
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

// badPages counts the pages of memory that were taken out of use. The list is
// empty where there are none; ok is false if it cannot be had whole.
func (h *handle) badPages() (p badPages, ok bool) {
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

// badPages is how many pages are in each state.
type badPages [raw.Pages]uint64

// count counts the whole lines of a part of the list; at the list's end the last
// may lack its line end. It returns how many bytes these are, and whether all
// were lines of such a list.
func (p *badPages) count(text []byte, last bool) (used int, ok bool) {
	for len(text) > 0 {
		line, rest := cutLine(text)
		if len(line) == len(text) && !last {
			return used, true
		}
		if len(trim(line)) > 0 && !p.add(line) {
			return used, false
		}
		used += len(text) - len(rest)
		text = rest
	}
	return used, true
}

// add counts one line, "0x00001a2b : 0x00001000 : R", and reports whether it was one.
func (p *badPages) add(line []byte) bool {
	line = trim(line)
	if len(line) < 5 || line[1] != 'x' || line[len(line)-3] != ':' {
		return false
	}
	switch line[len(line)-1] {
	case 'R':
		p[raw.PageRetired]++
	case 'P':
		p[raw.PagePending]++
	case 'F':
		p[raw.PageFailed]++
	default:
		return false
	}
	return true
}
