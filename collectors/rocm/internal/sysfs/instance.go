package sysfs

import (
	"path/filepath"
	"strconv"

	"warpgauge/collectors/rocm/internal/raw"
)

// instanceCell is the cell of an instance's memory.
type instanceCell struct {
	cell  int
	node  int
	bytes float64 // 0: not yet known
}

func (h *handle) addInstance(w raw.Reading, cell int) {
	if int(w.Index) < len(h.gpu.Instances) {
		h.instances = append(h.instances, instanceCell{cell: cell, node: h.gpu.Instances[w.Index].Node})
	}
}

// readInstances reads what is fixed while a board stays partitioned as it is, so
// it is read once, the long way.
func (h *handle) readInstances(values []float64, due []bool) {
	for i := range h.instances {
		c := &h.instances[i]
		if !due[c.cell] {
			continue
		}
		if c.bytes == 0 {
			bytes, _ := frameBuffer(h.r.nodeDir(c.node))
			c.bytes = float64(bytes)
		}
		if c.bytes > 0 {
			values[c.cell] = c.bytes
		}
	}
}

func (r *Reader) nodeDir(node int) string {
	return filepath.Join(r.path(topology), strconv.Itoa(node))
}
