package fake

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

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

// Sample writes the processes at the world's time. It blocks during a fault of kind Hang or Slow.
func (s *processSource) Sample(row []float64, due []bool) error {
	elapsed, err := s.begin(row, due)
	if err != nil {
		return err
	}
	for i, home := range s.homes {
		at := i * collector.ProcessWidth
		switch block := row[at : at+collector.ProcessWidth]; {
		case !due[at]:
		case slices.ContainsFunc(s.faults, func(f *fault) bool { return f.Kind == Blank && f.Field == nil && f.active(elapsed) }):
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
		if p.Instance == home && contains(p.GPUs, s.gpu) && p.when.active(elapsed) {
			s.list = append(s.list, collector.Process{PID: p.PID, Memory: p.Memory, Busy: p.Busy, Flags: p.Kind | s.flags})
		}
	}
}

// Process places a process on GPUs for a while.
type Process struct {
	GPUs     []Span
	Instance int // id of a MIG instance; −1: on the GPU itself
	PID      int
	Memory   float64                // bytes; NaN: the library does not report it
	Busy     float64                // percent; NaN: the library does not report it
	Kind     collector.ProcessFlags // 0 means collector.ProcessCompute

	At, For time.Duration // as in Fault
	While   string        // as in Fault
}

// maxPID is Linux's PID_MAX_LIMIT.
const maxPID = 1 << 22

func (p *parser) process(n *yaml.Node) Process {
	out := Process{Instance: -1, Memory: math.NaN(), Busy: math.NaN()}
	kinds := map[string]collector.ProcessFlags{"compute": collector.ProcessCompute, "graphics": collector.ProcessGraphics, "mps": collector.ProcessMPS}
	p.mapping(n, "a process", map[string]func(*yaml.Node){
		"device":   func(n *yaml.Node) { out.GPUs = p.spans(n) },
		"instance": func(n *yaml.Node) { out.Instance = p.integer(n, 0, 63) },
		"pid":      func(n *yaml.Node) { out.PID = p.integer(n, 1, maxPID) },
		"memory":   func(n *yaml.Node) { out.Memory = float64(p.integer(n, 0, 1<<48)) },
		"busy": func(n *yaml.Node) {
			if out.Busy = p.number(n); out.Busy < 0 || out.Busy > 100 {
				p.problem(n, "want a percentage, not %v", out.Busy)
			}
		},
		"kind":  func(n *yaml.Node) { out.Kind = kinds[p.choice(n, "compute", "graphics", "mps")] },
		"at":    func(n *yaml.Node) { out.At = p.duration(n) },
		"for":   func(n *yaml.Node) { out.For = p.duration(n) },
		"while": func(n *yaml.Node) { out.While = p.text(n) },
	}, "device", "pid")
	if out.While != "" && (out.At != 0 || out.For != 0) {
		p.problem(n, "while replaces at and for")
	}
	return out
}

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
			if p.Instance >= 0 && contains(p.GPUs, i) && !slices.ContainsFunc(w.slices(i), has) {
				return fmt.Errorf("process %d: GPU %d has no instance %d", p.PID, i, p.Instance)
			}
		}
		p.Kind = cmp.Or(p.Kind, collector.ProcessCompute)
		w.people = append(w.people, resident{p, fault{Fault: Fault{At: p.At, For: p.For, While: p.While}, start: w.start}})
	}
	return nil
}
