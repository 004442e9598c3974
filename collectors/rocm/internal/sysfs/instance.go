package sysfs

import (
	"path/filepath"
	"strconv"

	"warpgauge/collectors/rocm/internal/raw"
)

// instanceCell is the cell of an instance's memory.
type instanceCell struct {
	cell int
	node int
}

func (h *handle) addInstance(w raw.Reading, cell int) {
	if int(w.Index) < len(h.gpu.Instances) {
		h.instances = append(h.instances, instanceCell{cell, h.gpu.Instances[w.Index].Node})
	}
}

// readInstances reads what is fixed while a board stays partitioned as it is, so
// it is due seldom and takes the long way.
func (h *handle) readInstances(values []float64, due []bool) {
	for _, c := range h.instances {
		if !due[c.cell] {
			continue
		}
		if bytes, ok := frameBuffer(h.r.nodeDir(c.node)); ok {
			values[c.cell] = float64(bytes)
		}
	}
}

func (r *Reader) nodeDir(node int) string {
	return filepath.Join(r.path(topology), strconv.Itoa(node))
}
