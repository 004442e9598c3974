//go:build linux && cgo

package dcgm

import (
	"fmt"
	"strconv"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Numbers of fields that tell who a GPU is (dcgm_fields.h).
const (
	fieldName = 50
	fieldUUID = 54
	fieldPCI  = 57
)

// discover asks the engine what it has: a node for the GPUs and what is theirs,
// a node for everything else. Empty nodes are left out.
func discover(e *engine, _ field.List, o Options) ([]*node, error) {
	ids, err := e.entities(kindGPU, !o.FakeGPUs)
	if err != nil {
		return nil, err
	}
	n := &node{}
	for _, id := range ids {
		n.entities = append(n.entities, entity{kindGPU, id})
	}
	texts, err := e.texts(n.entities, []uint16{fieldName, fieldUUID, fieldPCI}, true)
	if err != nil {
		return nil, fmt.Errorf("identify GPUs: %w", err)
	}
	for i, id := range ids {
		t := texts[i*3:]
		for j := range 3 {
			if blankText(t[j]) {
				t[j] = ""
			}
		}
		gpu := strconv.Itoa(int(id))
		n.devices = append(n.devices, collector.Device{
			ID: t[1], UUID: t[1], Level: field.GPU, GPU: gpu, Model: t[0], PCIBusID: t[2], Node: "nvidia" + gpu,
		})
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return []*node{n}, nil
}

// blankText reports whether a text is one of DCGM's blanks: "<<<NULL>>>",
// "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>".
func blankText(s string) bool {
	return s == "" || strings.HasPrefix(s, "<<<") && strings.HasSuffix(s, ">>>")
}
