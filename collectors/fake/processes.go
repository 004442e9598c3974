package fake

import (
	"fmt"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// processSource lists the processes on one GPU.
type processSource struct {
	*source
	flags collector.ProcessFlags
	list  []collector.Process
}

func (b *builder) processes(i int) *processSource {
	s := &processSource{source: b.source(i, -1), flags: collector.ProcessCompute}
	if b.world.profile.board.vendor == field.VendorAMD {
		s.flags |= collector.ProcessOccupancy
	}
	s.devices, s.columns = []collector.Device{gpuDevice(b.world, i)}, collector.AppendProcessColumns(nil, 0)
	return s
}

// Sample writes the processes at the world's time. It blocks during a fault of kind Hang.
func (s *processSource) Sample(row []float64, due []bool) error {
	elapsed, err := s.begin(row, due)
	if err != nil || !due[0] {
		return err
	}
	if slices.ContainsFunc(*s.world.faults.Load(), func(f *fault) bool { return f.Kind == Blank && f.Field == nil && s.concerned(f) && f.active(elapsed) }) {
		collector.BlankProcesses(row)
		return nil
	}
	s.list = s.list[:0]
	for i := range s.world.people {
		if p := &s.world.people[i]; p.GPUs.contain(s.gpu) && p.when.active(elapsed) {
			s.list = append(s.list, collector.Process{PID: p.PID, Memory: p.Memory, Busy: p.Busy, Flags: s.flags})
		}
	}
	collector.PutProcesses(row, len(s.list), s.list)
	return nil
}

// Process is a process that uses GPUs for some time.
type Process struct {
	GPUs   Spans `yaml:"device"`
	PID    int
	Memory float64 // bytes; NaN: the library does not report it
	Busy   float64 // percent; NaN: the library does not report it

	At, For time.Duration // as in Fault
	While   string        // as in Fault
}

// maxPID is Linux's PID_MAX_LIMIT.
const maxPID = 1 << 22

// resident is a Process of a world, with its times.
type resident struct {
	Process
	when fault
}

// populate adds the processes of a spec.
func (w *World) populate(list []Process) error {
	for _, p := range list {
		if err := beyond(p.GPUs, w.gpus, "device"); err != nil {
			return fmt.Errorf("process %d: %w", p.PID, err)
		}
		w.people = append(w.people, resident{p, fault{Fault: Fault{At: p.At, For: p.For, While: p.While}, start: w.start}})
	}
	return nil
}
