package exposition

import (
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// fixedLabels appends the labels that a device's level calls for, in the order
// in which dcgm-exporter prints them; the host's name is the last of them.
func (o *Options) fixedLabels(to []collector.Label, d *collector.Device) []collector.Label {
	always := func(name, value string) { to = append(to, collector.Label{Name: name, Value: value}) }
	given := func(name, value string) {
		if value != "" {
			always(name, value)
		}
	}
	switch d.Level {
	case field.GPU, field.Instance, field.ComputeInstance:
		o.gpuLabels(d, always, given)
	case field.Link:
		given("nvlink", d.Link)
		given("nvswitch", d.Switch)
		given("gpu", d.GPU)
		given("gpu_uuid", d.UUID)
		given("pci_bus_id", d.PCIBusID)
		given("device", d.Node)
		given("model_name", o.model(d))
		given("GPU_I_PROFILE", d.InstanceProfile)
		given("GPU_I_ID", d.InstanceID)
	case field.Switch:
		always("nvswitch", d.Switch)
	case field.CPU:
		always("cpu", d.CPU)
	case field.Core:
		always("cpucore", d.Core)
		always("cpu", d.CPU)
	case field.ConnectX:
		always("connectx", d.ConnectX)
	default: // no set of its own: what the device has, as on a GPU
		o.gpuLabels(d, given, given)
	}
	given(o.HostnameLabel, o.Hostname)
	return to
}

func (o *Options) gpuLabels(d *collector.Device, always, given func(name, value string)) {
	uuid := "UUID"
	if o.OldNamespace {
		uuid = "uuid"
	}
	always("gpu", d.GPU)
	always(uuid, d.UUID)
	always("pci_bus_id", d.PCIBusID)
	always("device", d.Node)
	always("modelName", o.model(d))
	given("GPU_I_PROFILE", d.InstanceProfile)
	given("GPU_I_ID", d.InstanceID)
	given("GPU_CI_ID", d.ComputeID)
}

func (o *Options) model(d *collector.Device) string {
	if !o.ReplaceBlanksInModel {
		return d.Model
	}
	return strings.Join(strings.Fields(d.Model), "-")
}

// owners returns who uses a device. What no job can be given (switches, CPUs,
// cores, network adapters) has no owner.
func (o *Options) owners(d *collector.Device) []Owner {
	if o.Owners == nil || !ownable(d) {
		return nil
	}
	return o.Owners.Owners(d)
}

// split reports whether a reading of the device is told per user.
func (o *Options) split(d *collector.Device, f field.ID) bool {
	return o.Owners != nil && ownable(d) && o.Owners.Split(d, f)
}

func ownable(d *collector.Device) bool {
	switch d.Level {
	case field.Switch, field.CPU, field.Core, field.ConnectX:
		return false
	}
	return true
}
