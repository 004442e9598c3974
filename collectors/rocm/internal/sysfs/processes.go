package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"warpgauge/collectors/rocm/internal/raw"
)

// Process is what KFD tells of a process on one device of the compute side.
type Process struct {
	PID    int     // as the machine's first PID namespace numbers it
	Memory float64 // bytes of the device; NaN: not known
	Units  float64 // compute units that its waves occupy at the moment; NaN: not known
}

// ProcessList tells the processes on the instances of a GPU. It is for one
// goroutine. A look opens some files of every process of the node and closes them
// again; it allocates by their number.
type ProcessList struct {
	r     *Reader
	gpu   *raw.GPU
	board *handle // says whether it is there and awake
	ids   []string

	found [][]Process // by instance
	whole bool
}

// ErrTooMany is for more processes than a look takes.
var ErrTooMany = errors.New("too many processes")

// Processes prepares to list those on a GPU. It opens no file.
func (r *Reader) Processes(g *raw.GPU) *ProcessList {
	l := &ProcessList{r: r, gpu: g, board: newHandle(r, g, nil), found: make([][]Process, len(g.Instances))}
	for _, inst := range g.Instances {
		l.ids = append(l.ids, strconv.FormatUint(inst.KFD, 10))
	}
	return l
}

// Of are the processes on an instance at the last look. whole says that these are
// all; it is false where some may not be seen.
func (l *ProcessList) Of(instance int) (list []Process, whole bool) {
	return l.found[instance], l.whole
}

// Look reads anew. A board that is suspended is not woken: what asks it is left out.
// Errors: collector.ErrDeviceLost, fs.ErrNotExist (there is no KFD),
// fs.ErrPermission, ErrTooMany, or another of the system.
func (l *ProcessList) Look() error {
	l.whole = true
	for i := range l.found {
		l.found[i] = l.found[i][:0]
	}
	if !l.board.there() {
		return l.board.lost()
	}
	dir := l.r.path(processDir)
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("list processes of KFD: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	pids, err := f.Readdirnames(maxProcesses + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("list processes of KFD: %w", err)
	}
	if len(pids) > maxProcesses {
		return fmt.Errorf("list processes of KFD: %w: %d and more", ErrTooMany, len(pids))
	}
	asleep := l.board.Suspended()
	for _, name := range pids {
		if pid, err := strconv.Atoi(name); err == nil {
			l.process(filepath.Join(dir, name), pid, asleep)
		}
	}
	return nil
}

// process adds what one process has, in all of its contexts: newer kernels let a
// program have several, and put context_<id> of the others into the directory of the
// first (drm/amdkfd: "identify a secondary kfd process by its id", October 2025).
func (l *ProcessList) process(dir string, pid int, asleep bool) {
	contexts := []string{dir}
	for _, name := range names(dir) {
		if strings.HasPrefix(name, "context_") {
			contexts = append(contexts, filepath.Join(dir, name))
		}
	}
	queues := make([]map[string]bool, len(contexts))
	for i, c := range contexts {
		queues[i] = queuesOf(c)
	}
	for i, id := range l.ids {
		p, there := Process{PID: pid}, false
		for n, c := range contexts {
			memory, units, ok := l.context(c, id, queues[n][id], asleep)
			if ok {
				there = true
				p.Memory += memory
				p.Units += units // NaN makes the sum unknown
			}
		}
		if there {
			l.found[i] = append(l.found[i], p)
		}
	}
}

// context reads what a context of a process has of a device: false if nothing.
func (l *ProcessList) context(dir, id string, queue, asleep bool) (memory, units float64, there bool) {
	memory, err := processFile(dir, "vram_"+id)
	switch {
	case errors.Is(err, ErrAbsent), errors.Is(err, ErrGone):
		return 0, 0, false // it has ended, or was never told of this device
	case errors.Is(err, fs.ErrPermission):
		l.whole = false // the kernel hides devices that our control group may not use
		return 0, 0, false
	case err == nil && memory == 0 && !queue:
		return 0, 0, false
	}
	if asleep {
		return memory, math.NaN(), true
	}
	units, err = processFile(dir, "stats_"+id+"/cu_occupancy")
	if err != nil && !exists(dir) {
		return 0, 0, false // it has ended meanwhile
	}
	return memory, units, true
}

// Close closes what is kept open.
func (l *ProcessList) Close() error { return l.board.Close() }
