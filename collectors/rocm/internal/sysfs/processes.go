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
	"time"
)

// maxProcesses bounds the cost of a scan, about 10 µs per process and instance. With more processes, which no known node
// has, the scan fails.
const maxProcesses = 1024

const processDir = "class/kfd/kfd/proc"

// Process is a process on one KFD device.
type Process struct {
	PID    int     // in the machine's initial PID namespace
	Memory float64 // bytes on the device; NaN if unknown
	Units  float64 // compute units that its waves occupy now; NaN if unknown
}

// ProcessList lists the processes on the instances of a GPU. Only one goroutine may use it. A scan opens and closes some
// files of every process of the node, because processes come and go. Its allocations grow with their number.
type ProcessList struct {
	r     *Reader
	board *Handle // for Exists and Suspended
	ids   []string

	found [][]Process // by instance
	count int         // processes on all instances, each once
	whole bool
}

// ErrTooMany means that there are more processes than a scan accepts.
var ErrTooMany = errors.New("too many processes")

// Processes prepares listing the processes on a GPU. It opens no file.
func (r *Reader) Processes(g *GPU) *ProcessList {
	l := &ProcessList{r: r, board: r.Open(g, nil), found: make([][]Process, len(g.Instances))}
	for _, inst := range g.Instances {
		l.ids = append(l.ids, strconv.FormatUint(inst.KFD, 10))
	}
	return l
}

// Has reports whether KFD lists processes and the GPU's instances.
func (l *ProcessList) Has() bool { return len(l.ids) > 0 && exists(l.r.path(processDir)) }

// Of returns the processes on an instance at the last scan. whole is false if this process may not see all of them.
func (l *ProcessList) Of(instance int) (list []Process, whole bool) {
	return l.found[instance], l.whole
}

// Scan reads all processes, with units also their compute units, the most expensive file for the driver. It skips files that
// would wake a suspended board. Errors: ErrLost, fs.ErrNotExist (no KFD), fs.ErrPermission, ErrTooMany, or another system
// error.
func (l *ProcessList) Scan(units bool) error {
	l.whole, l.count = true, 0
	for i := range l.found {
		l.found[i] = l.found[i][:0]
	}
	if !l.board.Exists() {
		return ErrLost
	}
	units = units && !l.board.Suspended()
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
	for _, name := range pids {
		if pid, err := strconv.Atoi(name); err == nil {
			l.process(filepath.Join(dir, name), pid, units)
		}
	}
	return nil
}

// process adds one process with all its contexts. In newer kernels a program may have several contexts; the first one's
// directory contains context_<id> for each other (drm/amdkfd: "identify a secondary kfd process by its id", October 2025).
func (l *ProcessList) process(dir string, pid int, units bool) {
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
	used := false
	for i, id := range l.ids {
		p, there := Process{PID: pid}, false
		for n, c := range contexts {
			memory, occupied, ok := l.context(c, id, queues[n][id], units)
			if ok {
				there = true
				p.Memory += memory
				p.Units += occupied // NaN makes the sum unknown
			}
		}
		if there {
			used = true
			l.found[i] = append(l.found[i], p)
		}
	}
	if used {
		l.count++
	}
}

// context reads the usage of a device by a process context. It returns false if the context does not use the device.
func (l *ProcessList) context(dir, id string, queue, units bool) (memory, occupied float64, there bool) {
	memory, err := processFile(dir, "vram_"+id)
	switch {
	case errors.Is(err, ErrAbsent), errors.Is(err, ErrGone):
		return 0, 0, false // it has ended or does not use this device
	case errors.Is(err, fs.ErrPermission):
		l.whole = false // the kernel hides devices that our control group must not use
		return 0, 0, false
	case err == nil && memory == 0 && !queue:
		return 0, 0, false
	}
	if !units {
		return memory, math.NaN(), true
	}
	occupied, err = processFile(dir, "stats_"+id+"/cu_occupancy")
	if err != nil && !exists(dir) {
		return 0, 0, false // it has ended in the meantime
	}
	return memory, occupied, true
}

// queuesOf returns the devices on which a process has queues.
func queuesOf(dir string) map[string]bool {
	on := map[string]bool{}
	for _, q := range names(filepath.Join(dir, "queues")) {
		on[text(filepath.Join(dir, "queues", q), "gpuid")] = true
	}
	return on
}

func processFile(dir, name string) (float64, error) {
	var buf [64]byte
	f := NewFile(filepath.Join(dir, name))
	defer f.Close()
	text, err := f.Read(buf[:], 0, time.Time{})
	if err != nil {
		return math.NaN(), err
	}
	return count(text), nil
}

// Close closes the open files.
func (l *ProcessList) Close() { l.board.Close() }

// Usage sums the processes on one instance, or on all with instance -1, where a process on several counts once: their
// number, bytes and compute units.
func (l *ProcessList) Usage(instance int) [3]float64 {
	var sum [3]float64
	for i, list := range l.found {
		if instance >= 0 && instance != i {
			continue
		}
		sum[0] += float64(len(list))
		for _, p := range list {
			sum[1] += p.Memory
			sum[2] += p.Units
		}
	}
	if instance < 0 {
		sum[0] = float64(l.count)
	}
	return sum
}
