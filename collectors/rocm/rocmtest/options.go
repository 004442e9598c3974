package rocmtest

import (
	"fmt"
	"slices"
)

// Options describes the node of a Tree.
type Options struct {
	Model     Model
	GPUs      int    // boards, or dies with MI250X, at most 16; 0 means 2
	Partition string // compute partition mode of an MI300X: SPX, DPX, QPX or CPX; "" means SPX
	Memory    string // memory partition mode; "" means NPS1
	Metrics   string // revision of gpu_metrics, 1.0 to 1.9, 2.0 to 2.4, 3.0; "" means the model's
	Deferred  bool   // RAS counts have the third line, "de:", of newer kernels
	NoBMC     bool   // card0 is the first GPU
	NoKFD     bool   // the driver has no compute side

}

// highest is the maximum number of GPUs, limited by their PCI addresses.
const highest = 16

// check returns an error for options that no node can have.
func (o *Options) check(m *spec) error {
	if o.GPUs < 1 || o.GPUs > highest {
		return fmt.Errorf("%d GPUs, want 1 to %d", o.GPUs, highest)
	}
	if o.Partition != "" && !slices.Contains(m.partitions, o.Partition) {
		return fmt.Errorf("no compute partition mode %q, want one of %q", o.Partition, m.partitions)
	}
	if o.Memory != "" && !slices.Contains(m.memoryModes, o.Memory) {
		return fmt.Errorf("no memory partition mode %q, want one of %q", o.Memory, m.memoryModes)
	}
	return nil
}
