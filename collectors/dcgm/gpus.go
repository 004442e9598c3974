//go:build linux && cgo

package dcgm

import (
	"fmt"
	"strconv"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Numbers of fields that tell who a device is (dcgm_fields.h).
const (
	fieldName  = 50
	fieldUUID  = 54
	fieldMinor = 55
	fieldPCI   = 57
)

// gpus lists the GPUs and says who they are.
func (d *discovery) gpus() (*node, error) {
	n := &node{}
	ids, err := d.engine.entities(kindGPU, !d.o.FakeGPUs)
	if err != nil || len(ids) == 0 {
		return n, err
	}
	for _, id := range ids {
		n.entities = append(n.entities, entity{kindGPU, id})
	}
	who := []uint16{fieldName, fieldUUID, fieldPCI}
	texts, err := d.engine.texts(n.entities, who)
	if err != nil {
		return nil, fmt.Errorf("identify GPUs: %w", err)
	}
	minors, err := d.engine.live(n.entities, []uint16{fieldMinor})
	if err != nil {
		return nil, fmt.Errorf("identify GPUs: %w", err)
	}
	for i, id := range ids {
		t := texts[i*len(who):]
		n.devices = append(n.devices, gpuDevice(id, present(t[0]), present(t[1]), present(t[2]), minors[i]))
	}
	facts, err := d.facts(n.entities)
	if err != nil {
		return nil, fmt.Errorf("read the labels of GPUs: %w", err)
	}
	for i := range n.devices {
		n.devices[i].Facts = facts[i]
	}
	return n, nil
}

// gpuDevice is the identity of a GPU as collectors/nvml has it, so that both name
// one GPU alike. A GPU without UUID, which only injected ones are, is named by
// its number.
func gpuDevice(id uint32, name, uuid, pci string, minor cell) collector.Device {
	number := strconv.FormatUint(uint64(id), 10)
	d := collector.Device{Level: field.GPU, GPU: number, UUID: uuid, PCIBusID: strings.ToUpper(pci), Model: name, Node: "nvidia" + number}
	if minor.status == statusOK && minor.value >= 0 {
		d.Node = "nvidia" + strconv.Itoa(int(minor.value))
	}
	if d.ID = uuid; uuid == "" || strings.Trim(uuid, "GPU-0") == "" {
		d.ID = "GPU " + number
	}
	return d
}

// present is a text that is not one of DCGM's blanks: "<<<NULL>>>",
// "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>".
func present(s string) string {
	if strings.HasPrefix(s, "<<<") && strings.HasSuffix(s, ">>>") {
		return ""
	}
	return s
}
