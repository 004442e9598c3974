package owner

import (
	"bytes"
	"sync"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/view"
)

// Process is one process on a device, for display.
type Process struct {
	collector.Process
	Name                     string // of the command; empty if unknown
	PodUID, ContainerID, Job string // where it runs, as in User
}

// Listing lists the processes on each device on demand: the newest rows of the process collectors, with names and
// control groups from /proc. It starts no goroutine. Its methods may be called by any goroutine.
type Listing struct {
	mu sync.Mutex
	processReader
	read      time.Time
	processes map[string][]Process // by collector.Device.ID
}

// listingAge is how long a list stays valid: processes are sampled once a second.
const listingAge = 500 * time.Millisecond

// NewListing returns a Listing of the sources on a board of process collectors.
func NewListing(board *view.Board) *Listing {
	return &Listing{processReader: newProcessReader(board, zap.NewNop())} // Processes logs errors
}

// Of returns the processes on a device; nil if unknown.
func (l *Listing) Of(device string, now time.Time) []Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	if age := now.Sub(l.read); l.processes == nil || age >= listingAge || age < 0 {
		l.refresh(now)
	}
	return l.processes[device]
}

func (l *Listing) refresh(now time.Time) {
	l.read, l.processes = now, map[string][]Process{}
	_, _ = l.each(now, func(id string, list []collector.Process, _ int, sampled time.Time) { // without /proc processes are numbers only
		l.processes[id] = l.locate(list, sampled.UnixNano(), now)
	})
}

// locate adds names and containers, unless our PID namespace differs from the machine's.
func (l *Listing) locate(found []collector.Process, sampled int64, now time.Time) []Process {
	out := make([]Process, 0, len(found))
	for _, p := range found {
		one := Process{Process: p}
		if l.pidSpace == firstPIDNamespace {
			if at, err := l.locations.find(p.PID, sampled, now); err == nil {
				one.PodUID, one.ContainerID, one.Job = at.pod, at.container, at.job
				one.Name = l.locations.name(p.PID)
			}
		}
		out = append(out, one)
	}
	return out
}

// name returns the name of a process that find has located. It reads the name once.
func (l *locations) name(pid int) string {
	k := l.known[pid]
	if k.name == "" {
		text, err := l.proc.file(pid, "comm")
		if err != nil {
			return ""
		}
		k.name = string(bytes.TrimSpace(text))
	}
	return k.name
}
