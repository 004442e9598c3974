package owner

import (
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// devices are those of a View that somebody can be given, by what ids call them.
type devices struct {
	all    []*collector.Device // by id once, in the order of the View
	byID   map[string]*collector.Device
	parts  map[string][]*collector.Device // instances of a GPU, compute instances of an instance
	byUUID map[string]*collector.Device   // GPUs
	byMIG  map[string]*collector.Device
	byNode map[string]*collector.Device // GPUs of NVIDIA: "nvidia0"
	byNum  map[string]*collector.Device // GPUs of NVIDIA by label gpu: "0"
	byPCI  map[string]*collector.Device // GPUs
	byName map[string]*collector.Device // partitions by their platform device: "amdgpu_xcp_1"
	nvidia []*collector.Device          // GPUs of NVIDIA
}

func newDevices(v *view.View) *devices {
	n := &devices{
		byID:   map[string]*collector.Device{},
		parts:  map[string][]*collector.Device{},
		byUUID: map[string]*collector.Device{},
		byMIG:  map[string]*collector.Device{},
		byNode: map[string]*collector.Device{},
		byNum:  map[string]*collector.Device{},
		byPCI:  map[string]*collector.Device{},
		byName: map[string]*collector.Device{},
	}
	for _, s := range v.Sources {
		for i := range s.Devices {
			n.add(&s.Devices[i])
		}
	}
	return n
}

// add adds a device unless one with its id is there; several collectors may know
// one device, and some of them its further names.
func (n *devices) add(d *collector.Device) {
	if d.ID == "" || !ownable(d) {
		return
	}
	if n.byID[d.ID] == nil {
		n.byID[d.ID] = d
		n.all = append(n.all, d)
		switch d.Level {
		case field.GPU:
			n.addGPU(d)
		case field.Instance, field.ComputeInstance:
			n.parts[d.Parent] = append(n.parts[d.Parent], d)
		}
	}
	first(n.byMIG, foldUUID(d.MIGUUID), n.byID[d.ID])
	first(n.byName, d.Alias, n.byID[d.ID])
}

func (n *devices) addGPU(d *collector.Device) {
	first(n.byUUID, foldUUID(d.UUID), d)
	first(n.byPCI, strings.ToUpper(d.PCIBusID), d)
	if strings.HasPrefix(d.Node, "nvidia") {
		first(n.byNode, d.Node, d)
		first(n.byNum, d.GPU, d)
		n.nvidia = append(n.nvidia, d)
	}
}

// first keeps what is there: collectors come in order of priority.
func first(to map[string]*collector.Device, key string, d *collector.Device) {
	if _, taken := to[key]; !taken && key != "" {
		to[key] = d
	}
}

// ownable reports whether a device can have users of its own or inherit some.
func ownable(d *collector.Device) bool {
	switch d.Level {
	case field.Switch, field.CPU, field.Core, field.ConnectX:
		return false
	}
	return true
}

// Why an id of the kubelet names no device: values of the label reason.
const (
	reasonForm     = "form"     // none of the known forms
	reasonDevice   = "device"   // no device of that name is on the board
	reasonInstance = "instance" // the GPU is known or may be, which of its instances is not
	reasonClaim    = "claim"    // no ResourceSlice describes the claim's device
)

// find returns the devices that an id names, as a rule one, or why there is none.
func (n *devices) find(resource string, id ID) (found []*collector.Device, reason string) {
	if id.Form == FormAll && len(n.nvidia) > 0 {
		return n.nvidia, ""
	}
	d, reason := n.one(resource, id)
	if d == nil {
		return nil, reason
	}
	return []*collector.Device{d}, ""
}

func (n *devices) one(resource string, id ID) (d *collector.Device, reason string) {
	switch id.Form {
	case FormUUID:
		d = n.byUUID[id.Name]
	case FormMIG:
		if d = n.byMIG[id.Name]; d == nil {
			return nil, reasonInstance
		}
	case FormMIGLegacy:
		return n.instance(n.byUUID[id.Name], id.Instance, id.Compute)
	case FormNode:
		if id.Instance != "" {
			return n.instance(n.byNode[id.Name], id.Instance, "")
		}
		d = n.byNode[id.Name]
	case FormIndex:
		d = n.byNum[id.Name]
	case FormPCI:
		d = n.address(resource, id.Name)
	case FormPartition:
		d = n.byName[id.Name]
	}
	if d == nil {
		return nil, reasonDevice
	}
	return d, ""
}

// instance returns a GPU's instance by its id, or a compute instance of it where
// one is asked for and there are several.
func (n *devices) instance(gpu *collector.Device, instance, compute string) (*collector.Device, string) {
	if gpu == nil {
		return nil, reasonDevice
	}
	for _, d := range n.parts[gpu.ID] {
		if d.InstanceID != instance {
			continue
		}
		parts := n.parts[d.ID]
		if compute == "" || len(parts) == 0 {
			return d, ""
		}
		for _, c := range parts {
			if c.ComputeID == compute {
				return c, ""
			}
		}
	}
	return nil, reasonInstance
}

// address returns the GPU at an address. AMD's plugin calls the first partition of
// a divided GPU by the GPU's address, and only the others by names of their own.
func (n *devices) address(resource, pci string) *collector.Device {
	d := n.byPCI[pci]
	if d == nil || !strings.HasPrefix(resource, vendorAMD) {
		return d
	}
	for _, part := range n.parts[d.ID] {
		if part.InstanceID == "0" {
			return part
		}
	}
	return d
}
