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
	homes []int // instance ID of each device; −1 for the GPU
	flags collector.ProcessFlags

	list []collector.Process
}

func (b *builder) processes(i int) *processSource {
	s := &processSource{source: b.source(i, -1)}
	if b.world.profile.board.vendor == field.VendorAMD {
		s.flags = collector.ProcessOccupancy
	}
	add := func(d collector.Device, home int) {
		s.columns = collector.AppendProcessColumns(s.columns, len(s.devices))
		s.devices, s.homes = append(s.devices, d), append(s.homes, home)
	}
	gpu := gpuDevice(b.world, i)
	add(gpu, -1)
	for _, part := range b.world.slices(i) {
		add(collector.InstanceOf(gpu, part.id, part.profile), part.id)
	}
	return s
}

// Sample writes the processes at the world's time. It blocks during a fault of kind Hang.
func (s *processSource) Sample(row []float64, due []bool) error {
	elapsed, err := s.begin(row, due)
	if err != nil {
		return err
	}
	for i, home := range s.homes {
		at := i * collector.ProcessWidth
		switch block := row[at : at+collector.ProcessWidth]; {
		case !due[at]:
		case slices.ContainsFunc(*s.world.faults.Load(), func(f *fault) bool { return f.Kind == Blank && f.Field == nil && s.concerned(f) && f.active(elapsed) }):
			collector.BlankProcesses(block)
		default:
			s.listProcesses(home, elapsed)
			collector.PutProcesses(block, len(s.list), s.list)
		}
	}
	return nil
}

// listProcesses lists the processes of an instance.
func (s *processSource) listProcesses(home int, elapsed time.Duration) {
	s.list = s.list[:0]
	for i := range s.world.people {
		p := &s.world.people[i]
		if p.Instance == home && p.GPUs.contain(s.gpu) && p.when.active(elapsed) {
			s.list = append(s.list, collector.Process{PID: p.PID, Memory: p.Memory, Busy: p.Busy, Flags: collector.ProcessCompute | s.flags})
		}
	}
}

// Process places a process on GPUs for a while.
type Process struct {
	GPUs     Spans `yaml:"device"`
	Instance int   // id of a MIG instance; −1: on the GPU itself
	PID      int
	Memory   float64 // bytes; NaN: the library does not report it
	Busy     float64 // percent; NaN: the library does not report it

	At, For time.Duration // as in Fault
	While   string        // as in Fault
}

// maxPID is Linux's PID_MAX_LIMIT.
const maxPID = 1 << 22

// resident is a Process on the timeline of a world.
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
		for i := range w.gpus {
			has := func(part slice) bool { return part.id == p.Instance }
			if p.Instance >= 0 && p.GPUs.contain(i) && !slices.ContainsFunc(w.slices(i), has) {
				return fmt.Errorf("process %d: GPU %d has no instance %d", p.PID, i, p.Instance)
			}
		}
		w.people = append(w.people, resident{p, fault{Fault: Fault{At: p.At, For: p.For, While: p.While}, start: w.start}})
	}
	return nil
}
