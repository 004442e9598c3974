package fake

import (
	"fmt"
	"math"
	"time"

	"go.yaml.in/yaml/v3"

	"warpgauge/pkg/collector/processes"
)

// Process puts a process on GPUs for a while.
type Process struct {
	GPUs     []Span
	Instance int // id of a MIG instance; −1: on the GPU itself
	PID      int
	Memory   float64         // bytes; NaN: the library cannot tell
	Busy     float64         // percent; NaN: the library cannot tell
	Kind     processes.Flags // 0 means processes.Compute

	At, For time.Duration // as in Fault
	While   string        // as in Fault
}

// maxPID is Linux's PID_MAX_LIMIT.
const maxPID = 1 << 22

func (p *parser) process(n *yaml.Node) Process {
	out := Process{Instance: -1, Memory: math.NaN(), Busy: math.NaN()}
	kinds := map[string]processes.Flags{"compute": processes.Compute, "graphics": processes.Graphics, "mps": processes.MPS}
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
		p.problem(n, "while takes the place of at and for")
	}
	return out
}

// resident is a Process on the timeline of a world.
type resident struct {
	Process
	when fault
}

// populate takes the processes of a spec.
func (w *World) populate(list []Process) error {
	for _, p := range list {
		if err := beyond(p.GPUs, w.gpus, "device"); err != nil {
			return fmt.Errorf("process %d: %w", p.PID, err)
		}
		if err := w.lives(p); err != nil {
			return err
		}
		if p.Kind == 0 {
			p.Kind = processes.Compute
		}
		w.people = append(w.people, resident{p, fault{Fault: Fault{At: p.At, For: p.For, While: p.While}, start: w.start}})
	}
	return nil
}

// lives reports that there is no such instance.
func (w *World) lives(p Process) error {
	if p.Instance < 0 {
		return nil
	}
	for i := range w.gpus {
		if !contains(p.GPUs, i) {
			continue
		}
		found := false
		for _, part := range w.slices(i) {
			found = found || part.id == p.Instance
		}
		if !found {
			return fmt.Errorf("process %d: GPU %d has no instance %d", p.PID, i, p.Instance)
		}
	}
	return nil
}
