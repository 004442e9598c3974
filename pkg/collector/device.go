package collector

import (
	"slices"
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// Device is an object with series: a GPU, a GPU instance, a link, a switch, a CPU, a core, a network adapter. Text is raw
// UTF-8; the renderer escapes it. Properties that a device lacks are empty. Links and instances have their GPU's properties.
type Device struct {
	// ID is stable and unique on the node: a GPU's UUID, "<parent>/<instance id>" for an instance, "<parent>/link<n>"
	// for a link. It is the key of owners (pods, jobs) and of accumulated values.
	ID     string
	Parent string      // ID of the device that this one is part of, if any
	Level  field.Level // decides the set of labels

	GPU      string // label gpu: the index, "0"
	UUID     string // label UUID; an instance has its parent's
	PCIBusID string // label pci_bus_id, "00000000:3B:00.0"
	Node     string // label device, "nvidia0"
	Model    string // label modelName

	Instance Instance // set for a part of a GPU
	Unread   string   // which parts the collector could not read, and why; empty if it read all
	Unshown  bool     // a GPU that is read for the health of its selected parts: it has no series of its readings
	// Alias is Kubernetes' name of a device if it differs from the names above: the platform device of a partition
	// (see field.Vendor.Partition). Not a label.
	Alias string

	// Labels are specific to the device's level, in page order: nvlink for a link, followed by nvswitch for a switch's
	// link; nvswitch ("nvswitch0") for a switch; cpu for a CPU; cpucore and cpu for a core; connectx for a network
	// adapter. Users select devices by the numbers in them.
	Labels []Label
	// Facts are the values of the list's label fields for this device, named as the fields. Fields that the device
	// lacks are omitted.
	Facts []Label
	// Texts are the texts that the list's dialect needs (field.Dialect), including empty texts, named as their
	// descriptors. A device without Texts has no names of the dialect.
	Texts []Label `json:",omitempty"`
}

// Instance identifies a part of a GPU (MIG instance, partition).
type Instance struct {
	Profile   string // label GPU_I_PROFILE, "1g.10gb"
	ID        string // label GPU_I_ID
	ComputeID string // label GPU_CI_ID
	// UUID is a MIG device's UUID ("MIG-…"), which container runtimes and Kubernetes use. Not a label. It is empty for a
	// GPU instance that is split into several MIG devices, because each compute instance then has its own UUID.
	UUID string
}

// Ownable reports whether a device can have owners or inherit them.
func (d *Device) Ownable() bool {
	switch d.Level {
	case field.Switch, field.CPU, field.Core, field.ConnectX:
		return false
	}
	return true
}

// Label returns the value of one of the device's Labels, or "" if it has no label of that name.
func (d *Device) Label(name string) string { return LabelValue(d.Labels, name) }

// SysfsPCI returns the device's PCI address in the kernel's spelling: "0000:3b:00.0".
func (d *Device) SysfsPCI() string {
	address := strings.ToLower(d.PCIBusID)
	if domain, rest, ok := strings.Cut(address, ":"); ok && len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		return domain[4:] + ":" + rest
	}
	return address
}

// DialectTexts returns the Texts of a device, or nil if the list has no dialect.
func DialectTexts(list field.List, texts map[field.ID]string) (out []Label) {
	if list.Dialect == nil {
		return nil
	}
	for _, id := range list.Dialect.Texts {
		if d, known := field.ByID(id); known {
			out = append(out, Label{Name: d.Name, Value: texts[id]})
		}
	}
	return out
}

// Text returns one of the device's Texts, and whether the device has it.
func (d *Device) Text(id field.ID) (string, bool) {
	desc, known := field.ByID(id)
	i := slices.IndexFunc(d.Texts, func(l Label) bool { return known && l.Name == desc.Name })
	if i < 0 {
		return "", false
	}
	return d.Texts[i].Value, true
}

// Label is one label of a series, unescaped.
type Label struct{ Name, Value string }

// LabelValue returns the value of the label of that name, or "" if there is none.
func LabelValue(labels []Label, name string) string {
	for _, l := range labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// Column describes one cell of a row: device × field × further labels.
type Column struct {
	Device int      // index into Source.Devices
	Field  field.ID // one of the list's Readings, or a companion of field.XIDEvent
	// Labels distinguish columns of the same device and field (peer_gpu, health_watch …). Sorted by name.
	Labels []Label `json:",omitempty"`
	// Buffer numbers the cells of the field's block of buffered samples from 1 (see Buffer); 0 is the reading itself.
	// Cells of a block are event cells: NaN without a sample.
	Buffer int `json:",omitempty"`
}

// FillDue writes v to the due cells.
func FillDue(row []float64, due []bool, v float64) {
	for i := range row {
		if due[i] {
			row[i] = v
		}
	}
}

// ChooseDue writes v to the chosen one of columns that stand for alternatives, if due, and none, a NaN, to the other due ones. A
// negative chosen is none of them.
func ChooseDue(row []float64, due []bool, chosen int, v, none float64) {
	FillDue(row, due, none)
	if chosen >= 0 && due[chosen] {
		row[chosen] = v
	}
}

// LinkOf returns link n, counted from 0, of a GPU or a switch.
func LinkOf(parent Device, n int) Device {
	d := parent
	number := strconv.Itoa(n)
	d.Level, d.Parent, d.ID, d.Unread = field.Link, parent.ID, parent.ID+"/link"+number, ""
	d.Labels = append([]Label{{Name: "nvlink", Value: number}}, parent.Labels...)
	return d
}

// InstanceOf returns a GPU instance (MIG) or a partition of a GPU.
func InstanceOf(gpu Device, id int, profile string) Device {
	d := gpu
	d.Instance = Instance{ID: strconv.Itoa(id), Profile: profile}
	d.Level, d.Parent, d.ID, d.Unread = field.Instance, gpu.ID, gpu.ID+"/"+d.Instance.ID, ""
	return d
}

// ComputeInstanceOf returns one of several compute instances of a GPU instance. It has no UUID yet.
func ComputeInstanceOf(instance Device, id int) Device {
	d := instance
	d.Instance.ComputeID, d.Instance.UUID = strconv.Itoa(id), ""
	d.Level, d.Parent, d.ID = field.ComputeInstance, instance.ID, instance.ID+"/"+d.Instance.ComputeID
	return d
}
