package exposition

import (
	"slices"
	"strings"

	"warpgauge/pkg/view"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// fixedLabels appends the labels of a device's level in dcgm-exporter's order; the host's name is last.
func (o *Options) fixedLabels(to []collector.Label, d *collector.Device) []collector.Label {
	always := func(name, value string) { to = append(to, collector.Label{Name: name, Value: value}) }
	given := func(name, value string) {
		if value != "" {
			always(name, value)
		}
	}
	to = append(to, d.Labels...)
	switch d.Level {
	case field.GPU, field.Instance, field.ComputeInstance:
		o.gpuLabels(d, always, given)
	case field.Link:
		given("gpu", d.GPU)
		given("gpu_uuid", d.UUID)
		given("pci_bus_id", d.PCIBusID)
		given("device", d.Node)
		given("model_name", o.model(d))
		given("GPU_I_PROFILE", d.Instance.Profile)
		given("GPU_I_ID", d.Instance.ID)
	case field.Switch, field.CPU, field.Core, field.ConnectX: // not part of a GPU
	default: // no fixed set: as on a GPU
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
	given("GPU_I_PROFILE", d.Instance.Profile)
	given("GPU_I_ID", d.Instance.ID)
	given("GPU_CI_ID", d.Instance.ComputeID)
}

func (o *Options) model(d *collector.Device) string {
	if !o.ReplaceBlanksInModel {
		return d.Model
	}
	return strings.Join(strings.Fields(d.Model), "-")
}

// owners returns the users of a device. Switches, CPUs, cores and network adapters have no users.
func (o *Options) owners(d *collector.Device) []view.Owner {
	if o.Owners == nil || !d.Ownable() {
		return nil
	}
	return o.Owners.Owners(d)
}

// deviceLabels makes the label sets of one device at a time.
type deviceLabels struct {
	b      *builder
	device *collector.Device
	fixed  []collector.Label
	owners []view.Owner
	bare   map[bareKind][]*labelSet // of columns without labels
}

// bareKind distinguishes the label sets of columns without labels.
type bareKind struct{ xid, single bool }

// setsOf returns the label sets of a column: one per owner, or one if there is no owner or each owner has a value.
func (l *deviceLabels) setsOf(d *collector.Device, f field.ID, column []collector.Label, xid bool) []*labelSet {
	l.turn(d)
	kind, owners := bareKind{xid, len(l.owners) == 0 || l.b.o.Owners.Split(d, f)}, l.owners
	if kind.single {
		owners = []view.Owner{{}}
	}
	if len(column) > 0 {
		return l.make(owners, column, xid)
	}
	if l.bare[kind] == nil {
		l.bare[kind] = l.make(owners, nil, xid)
	}
	return l.bare[kind]
}

// turn begins the labels of a device.
func (l *deviceLabels) turn(d *collector.Device) {
	if l.device == d {
		return
	}
	l.device, l.fixed, l.owners = d, l.b.o.fixedLabels(l.fixed[:0], d), l.b.o.owners(d)
	l.bare = map[bareKind][]*labelSet{}
}

func (l *deviceLabels) make(owners []view.Owner, column []collector.Label, xid bool) []*labelSet {
	sets := make([]*labelSet, 0, len(owners))
	for i := range owners {
		set := l.one(&owners[i], column, xid)
		if !slices.Contains(sets, set) { // owners with the same labels are merged
			sets = append(sets, set)
		}
	}
	return sets
}

// one returns the label set of a series of one owner.
func (l *deviceLabels) one(o *view.Owner, column []collector.Label, xid bool) *labelSet {
	labels := labelsOf{fixed: l.fixed, facts: l.device.Facts, column: column, pod: o.PodLabels, owner: o.Labels, xid: xid}
	set := l.b.intern(labels.set())
	l.b.layout.stats.labels += labels.dropped
	return set
}
