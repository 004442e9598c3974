package rocmtest

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Process is a program on GPUs, as KFD shows it.
type Process struct {
	PID  int
	Uses []Use
	// Contexts lists the program's further contexts, which newer kernels show.
	Contexts [][]Use
}

// Use is the usage of one GPU by a process.
type Use struct {
	GPU      int // index in Tree.GPUs
	Instance int // index in GPU.Instances
	VRAM     uint64
	CUs      uint64 // compute units with its waves
}

func itoa(n int) string { return strconv.Itoa(n) }

func proc(pid int) string { return "devices/virtual/kfd/kfd/proc/" + itoa(pid) }

// Start adds a process or changes its usage. Like KFD, it writes files for every GPU of the node, used or not.
func (t *Tree) Start(tb testing.TB, p Process) {
	tb.Helper()
	must(tb, t.put(proc(p.PID)+"/pasid", itoa(32770+p.PID%1000)))
	must(tb, t.context(proc(p.PID), p.Uses))
	for n, uses := range p.Contexts {
		must(tb, t.context(fmt.Sprintf("%s/context_%d", proc(p.PID), n), uses))
	}
}

func (t *Tree) context(dir string, uses []Use) error {
	for _, g := range t.GPUs {
		for _, i := range g.Instances {
			u := Use{GPU: g.Index, Instance: i.Index}
			for _, x := range uses {
				if x.GPU == g.Index && x.Instance == i.Index {
					u = x
				}
			}
			for name, v := range map[string]uint64{
				fmt.Sprintf("vram_%d", i.KFD):               u.VRAM,
				fmt.Sprintf("sdma_%d", i.KFD):               0,
				fmt.Sprintf("stats_%d/cu_occupancy", i.KFD): u.CUs,
				fmt.Sprintf("stats_%d/evicted_ms", i.KFD):   0,
			} {
				if err := t.put(dir+"/"+name, strconv.FormatUint(v, 10)); err != nil {
					return err
				}
			}
			if u.VRAM == 0 && u.CUs == 0 {
				continue
			}
			queue := fmt.Sprintf("%s/queues/%d", dir, i.Node)
			for name, v := range map[string]uint64{"gpuid": i.KFD, "size": 524288, "type": 0} {
				if err := t.put(queue+"/"+name, strconv.FormatUint(v, 10)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// ProcessFile returns a file of a process, such as "vram", for the first instance of a GPU.
func (t *Tree) ProcessFile(pid, gpu int, name string) string {
	id := t.GPUs[gpu].Instances[0].KFD
	if name == "cu_occupancy" {
		return t.Path(fmt.Sprintf("%s/stats_%d/cu_occupancy", proc(pid), id))
	}
	return t.Path(fmt.Sprintf("%s/%s_%d", proc(pid), name, id))
}

// End removes a process.
func (t *Tree) End(tb testing.TB, pid int) {
	tb.Helper()
	must(tb, os.RemoveAll(t.Path(proc(pid))))
}
