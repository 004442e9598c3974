package sysfs

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"warpgauge/collectors/rocm/internal/raw"
)

// maxProcesses bounds the cost of a look: each process takes some 10 µs for each
// instance. Where more compute than on any node known, nothing is answered.
const maxProcesses = 1024

const processDir = "class/kfd/kfd/proc"

// processCells are the cells of what processes have of the GPU's instances.
// Processes come and go, so their files are opened and closed each time: it
// costs time by their number, and is for slow schedules.
type processCells struct {
	ids   []string // KFD's of the instances
	cells []processCell
	total []usage // by instance; the last is of all together
	units bool    // compute units are asked for, which costs the driver most

	looked time.Time // when total was made; zero: never
	known  bool      // it is whole
}

// lookAfter is how long what was found of processes holds. A look opens files of
// every process, which is not for a schedule of milliseconds.
const lookAfter = time.Second

type processCell struct {
	cell  int
	kind  raw.Kind
	which int // in total
}

// usage is what processes have of an instance.
type usage struct {
	count, memory, units float64
}

func (p *processCells) add(g *raw.GPU, w raw.Reading, cell int) {
	if p.total == nil {
		for _, inst := range g.Instances {
			p.ids = append(p.ids, strconv.FormatUint(inst.KFD, 10))
		}
		p.total = make([]usage, len(p.ids)+1)
	}
	which := int(w.Index)
	if w.Index == raw.Whole {
		which = len(p.ids)
	}
	if which > len(p.ids) || which == len(p.ids) && w.Index != raw.Whole || len(p.ids) == 0 {
		return
	}
	p.units = p.units || w.Kind == raw.ProcessUnits
	p.cells = append(p.cells, processCell{cell, w.Kind, which})
}

func (p *processCells) has(r *Reader, has []bool) {
	there := exists(r.path(processDir))
	for _, c := range p.cells {
		has[c.cell] = there
	}
}

func (h *handle) readProcesses(values []float64, due []bool) {
	p := &h.processes
	wanted := false
	for _, c := range p.cells {
		wanted = wanted || due[c.cell]
	}
	if !wanted {
		return
	}
	if p.looked.IsZero() || h.now.Sub(p.looked) >= lookAfter {
		p.looked, p.known = h.now, p.look(h.r.path(processDir))
	}
	if !p.known {
		return
	}
	for _, c := range p.cells {
		if !due[c.cell] {
			continue
		}
		u := p.total[c.which]
		switch c.kind {
		case raw.Processes:
			values[c.cell] = u.count
		case raw.ProcessMemory:
			values[c.cell] = u.memory
		default:
			values[c.cell] = u.units
		}
	}
}

// look sums up over all processes. It is false if they cannot be listed whole.
func (p *processCells) look(dir string) bool {
	clear(p.total)
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // read only
	pids, err := f.Readdirnames(maxProcesses + 1)
	if err != nil && !errors.Is(err, io.EOF) || len(pids) > maxProcesses {
		return false
	}
	for _, name := range pids {
		if _, err := strconv.Atoi(name); err == nil {
			p.process(filepath.Join(dir, name))
		}
	}
	return true
}

// process adds what one process has. A process counts where it has memory, waves
// or a queue, and in the total once.
func (p *processCells) process(dir string) {
	all, queues := &p.total[len(p.ids)], queuesOf(dir)
	used := false
	for i, id := range p.ids {
		memory, err := processFile(dir, "vram_"+id)
		if err != nil {
			continue // it has ended, or was never told of this GPU
		}
		units := 0.0
		if p.units {
			if units, err = processFile(dir, "stats_"+id+"/cu_occupancy"); err != nil && !exists(dir) {
				continue
			}
		}
		if memory == 0 && !(units > 0) && !queues[id] {
			continue
		}
		used = true
		for _, u := range []*usage{&p.total[i], all} {
			u.memory += memory
			u.units += units // NaN, where it cannot be had, makes the sum unknown
		}
		p.total[i].count++
	}
	if used {
		all.count++
	}
}

// queuesOf is on which GPUs a process has queues.
func queuesOf(dir string) map[string]bool {
	var on map[string]bool
	for _, q := range names(filepath.Join(dir, "queues")) {
		if on == nil {
			on = map[string]bool{}
		}
		on[text(filepath.Join(dir, "queues", q), "gpuid")] = true
	}
	return on
}

func processFile(dir, name string) (float64, error) {
	var buf [64]byte
	f := NewFile(filepath.Join(dir, name))
	defer f.Close()
	text, err := f.Read(buf[:], time.Time{})
	if err != nil {
		return math.NaN(), err
	}
	return count(text), nil
}
