package nvmltest

import (
	"cmp"
	"fmt"
	"strings"
)

// Process is a process on a GPU, in one of the driver's lists.
type Process struct {
	PID  int
	Type string // "C" (compute), "G" (graphics), "M" (a client of MPS); "" means "C"
	// Instance is its MIG device; nil outside instances.
	Instance *Instance
	Memory   uint64 // bytes
	NoMemory bool   // the driver does not report the memory (WDDM, WSL)
	// SM is how busy it keeps the GPU, in percent, as an expression of the script. Unless it is 0, the driver has a
	// sample with the current time; "" means 0.
	SM string
}

func (p Process) line(gpu int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "process %d pid=%d type=%s memory=", gpu, p.PID, cmp.Or(p.Type, "C"))
	if p.NoMemory {
		b.WriteString("none")
	} else {
		fmt.Fprint(&b, p.Memory)
	}
	if in := p.Instance; in != nil {
		fmt.Fprintf(&b, " gi=%d ci=%d", in.GI, in.CI)
	}
	if p.SM != "" {
		fmt.Fprintf(&b, " sm=%s", strings.ReplaceAll(p.SM, " ", ""))
	}
	return b.String()
}

// SetProcesses replaces the processes on a GPU and their samples.
func (n *Node) SetProcesses(gpu int, list ...Process) {
	n.change(func() error {
		n.procs[gpu] = nil
		for _, p := range list {
			n.procs[gpu] = append(n.procs[gpu], p.line(gpu))
		}
		return nil
	})
}
