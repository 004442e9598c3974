package owner

import (
	"cmp"
	"slices"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/view"
)

// devices indexes the devices of a View that can have users by the names in IDs.
type devices struct {
	all      []*collector.Device // each ID once, in the order of the View
	byID     map[string]*collector.Device
	named    map[deviceKey]*collector.Device
	parts    map[string][]*collector.Device // instances of a GPU, compute instances of an instance
	byVendor map[string][]*collector.Device // GPUs whose device file has the vendor's prefix
}

// deviceKey is a name of a device in one form of IDs, as in deviceID. GPUs have names of the forms formUUID, formPCI,
// and, if their device file has a vendor's prefix, formNode and formIndex. Instances have formMIG or formPartition.
type deviceKey struct {
	form form
	name string
}

func newDevices(v *view.View) *devices {
	n := &devices{
		byID: map[string]*collector.Device{}, named: map[deviceKey]*collector.Device{},
		parts: map[string][]*collector.Device{}, byVendor: map[string][]*collector.Device{},
	}
	for _, s := range v.Sources {
		for i := range s.Devices {
			n.addDevice(&s.Devices[i])
		}
	}
	return n
}

// addDevice adds a device unless its ID is present. Several collectors may list one device, and only some of them know
// its other names.
func (n *devices) addDevice(d *collector.Device) {
	if d.ID == "" || !d.Ownable() {
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
	n.addName(formMIG, foldUUID(d.Instance.UUID), n.byID[d.ID])
	n.addName(formPartition, d.Alias, n.byID[d.ID])
}

func (n *devices) addGPU(d *collector.Device) {
	n.addName(formUUID, foldUUID(d.UUID), d)
	n.addName(formPCI, strings.ToUpper(d.PCIBusID), d)
	for _, v := range field.Vendors() {
		if _, is := cutPrefix(d.Node, v.Node); is {
			n.addName(formNode, d.Node, d)
			n.addName(formIndex, d.GPU, d)
			n.byVendor[v.Name] = append(n.byVendor[v.Name], d)
		}
	}
}

// addName keeps an existing entry, because collectors come in order of priority.
func (n *devices) addName(f form, name string, d *collector.Device) {
	key := deviceKey{f, name}
	if _, taken := n.named[key]; !taken && name != "" {
		n.named[key] = d
	}
}

func isInstance(d *collector.Device) bool {
	return d.Level == field.Instance || d.Level == field.ComputeInstance
}

// Reasons why an ID of the kubelet matches no device, for the label reason.
const (
	reasonForm     = "form"     // unknown form
	reasonDevice   = "device"   // no device with that name
	reasonInstance = "instance" // the GPU is or may be known, but not its instance
	reasonClaim    = "claim"    // no ResourceSlice describes the claim's device
)

// find returns the devices of an ID, normally one, or the reason why there are none.
func (n *devices) find(resource string, id deviceID) (found []*collector.Device, reason string) {
	if all := n.byVendor[id.name]; id.form == formAll && len(all) > 0 {
		return all, ""
	}
	d, reason := n.one(resource, id)
	if d == nil {
		return nil, reason
	}
	return []*collector.Device{d}, ""
}

func (n *devices) one(resource string, id deviceID) (d *collector.Device, reason string) {
	switch {
	case id.form == formMIGLegacy:
		return n.instance(n.named[deviceKey{formUUID, id.name}], id.instance, id.compute)
	case id.form == formNode && id.instance != "":
		return n.instance(n.named[deviceKey{formNode, id.name}], id.instance, "")
	case id.form == formPCI:
		d = n.address(resource, id.name)
	default:
		d = n.named[deviceKey{id.form, id.name}]
	}
	switch {
	case d != nil:
		return d, ""
	case id.form == formMIG:
		return nil, reasonInstance
	}
	return nil, reasonDevice
}

// instance returns a GPU's instance by its ID, or its compute instance if one is named and there are several.
func (n *devices) instance(gpu *collector.Device, instance, compute string) (*collector.Device, string) {
	if gpu == nil {
		return nil, reasonDevice
	}
	for _, d := range n.parts[gpu.ID] {
		if d.Instance.ID != instance {
			continue
		}
		parts := n.parts[d.ID]
		if compute == "" || len(parts) == 0 {
			return d, ""
		}
		for _, c := range parts {
			if c.Instance.ComputeID == compute {
				return c, ""
			}
		}
	}
	return nil, reasonInstance
}

// address returns the GPU at an address, or its first partition if it is divided, see field.Vendor.FirstPartition.
func (n *devices) address(resource, pci string) *collector.Device {
	d := n.named[deviceKey{formPCI, pci}]
	for _, v := range field.Vendors() {
		if d == nil || !v.FirstPartition || !v.Owns(resource) {
			continue
		}
		for _, part := range n.parts[d.ID] {
			if part.Instance.ID == "0" {
				return part
			}
		}
	}
	return d
}

// claimed returns the device of a claim, or the reason why there is none.
func (n *devices) claimed(s kube.SliceDevice) (d *collector.Device, reason string) {
	uuid, address := deviceKey{formUUID, foldUUID(s.UUID)}, deviceKey{form: formPCI}
	address.name, _ = parsePCI(s.PCIBusID)
	switch {
	case s.Kind == kube.MIGDevice && s.UUID != "":
		if d = n.named[deviceKey{formMIG, uuid.name}]; d == nil {
			return nil, reasonInstance
		}
		return d, ""
	case s.Kind == kube.MIGDevice: // created when a claim needs it
		return n.onlyPart(n.named[deviceKey{formUUID, foldUUID(s.ParentUUID)}], func(d *collector.Device) bool { return d.Instance.Profile == s.Profile && s.Profile != "" })
	case s.Kind == kube.GPUPartition: // without a render node: created on demand, and the slice does not identify the partition
		return n.onlyPart(n.named[address], func(d *collector.Device) bool { return d.Node == s.RenderNode && s.RenderNode != "" })
	}
	if d = cmp.Or(n.named[uuid], n.named[address]); d == nil {
		return nil, reasonDevice
	}
	return d, ""
}

// onlyPart returns the GPU's matching instance if there is exactly one: the slice of an instance that is created on
// demand does not identify it.
func (n *devices) onlyPart(gpu *collector.Device, matches func(*collector.Device) bool) (found *collector.Device, reason string) {
	if gpu == nil {
		return nil, reasonDevice
	}
	parts := slices.DeleteFunc(slices.Clone(n.parts[gpu.ID]), func(d *collector.Device) bool { return !matches(d) })
	if len(parts) != 1 {
		return nil, reasonInstance
	}
	return parts[0], ""
}
