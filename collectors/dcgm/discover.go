//go:build linux && cgo

package dcgm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// inventory holds the engine's entities that the list of fields needs. It is empty for a kind that cannot be listed.
type inventory struct {
	gpus, switches, adapters []uint32
	instances                []migEntity
	links                    []link
	cpus                     []cpu
	unlisted                 string // what cannot be listed, and why
}

// listEntities returns the inventory. It makes no calls that the engine passes to the driver. It returns an error only
// if it cannot list the GPUs.
func listEntities(e *engine, fields field.List, o Options) (v inventory, err error) {
	if v.gpus, err = e.entities(kindGPU, !o.FakeGPUs); err != nil {
		return v, err
	}
	v.instances = listed(&v, o, kindInstance, true, e.hierarchy)
	v.links = listed(&v, o, kindLink, wants(fields, field.Link), func() ([]link, error) { return linksUp(e) })
	v.switches = listed(&v, o, kindSwitch, wants(fields, field.Switch, field.Link), func() ([]uint32, error) { return e.entities(kindSwitch, false) })
	v.cpus = listed(&v, o, kindCPU, wants(fields, field.CPU, field.Core), e.cpus)
	v.adapters = listed(&v, o, kindConnectX, wants(fields, field.ConnectX), func() ([]uint32, error) { return e.entities(kindConnectX, false) })
	return v, nil
}

// listed lists entities of a kind. It records and logs an error, unless the node has none.
func listed[T any](v *inventory, o Options, k entityKind, wanted bool, list func() ([]T, error)) []T {
	if !wanted {
		return nil
	}
	out, err := list()
	if err != nil && !isStatus(err, statusNotSupported, statusNoModule, statusNoData) {
		o.Log.Warn("cannot list entities; skipping them", zap.Stringer("source", k), zap.Error(err))
		v.unlisted = strings.TrimPrefix(v.unlisted+"; cannot "+err.Error(), "; ")
	}
	return out
}

// discovery identifies the entities of an inventory.
type discovery struct {
	inventory
	engine *engine
	fields field.List
	o      Options
}

// discover returns a node for the GPUs with their parts and a node for switches, CPUs and network adapters. It omits
// empty nodes.
func discover(e *engine, found inventory, fields field.List, o Options) ([]*node, error) {
	d := &discovery{found, e, fields, o}
	gpus, err := d.identifyGPUs()
	if err != nil {
		return nil, err
	}
	d.addInstances(gpus)
	d.addLinks(gpus)

	rest := &node{}
	var facts []collector.Label
	if len(d.switches)+len(d.cpus)+len(d.adapters) > 0 {
		if all, err := d.facts([]entity{{kindNone, 0}}); err == nil {
			facts = all[0]
		}
	}
	add := func(k entityKind, level field.Level, name string, ids []uint32) {
		for _, id := range ids {
			number := strconv.FormatUint(uint64(id), 10)
			label := collector.Label{Name: name, Value: number}
			if k == kindSwitch {
				label.Value = name + number
			}
			rest.addDevice(collector.Device{ID: name + number, Level: level, Labels: []collector.Label{label}, Facts: facts}, entity{k, id})
		}
	}
	add(kindSwitch, field.Switch, "nvswitch", d.switches)
	d.addLinks(rest)
	d.addCPUs(rest, facts)
	add(kindConnectX, field.ConnectX, "connectx", d.adapters)
	return slices.DeleteFunc([]*node{gpus, rest}, func(n *node) bool { return len(n.devices) == 0 }), nil
}

// wants reports whether the list has a reading of one of the levels.
func wants(fields field.List, levels ...field.Level) bool {
	return slices.ContainsFunc(fields.Readings(), func(r field.Reading) bool { return slices.Contains(levels, r.Desc.Level) })
}

// Field numbers that identify a device (dcgm_fields.h).
const (
	fieldName  = 50
	fieldUUID  = 54
	fieldMinor = 55
	fieldPCI   = 57
)

// identifyGPUs returns a node with the GPUs. If two have the same UUID, it drops the second.
func (d *discovery) identifyGPUs() (*node, error) {
	n := &node{}
	if len(d.gpus) == 0 {
		return n, nil
	}
	var all []entity
	for _, id := range d.gpus {
		all = append(all, entity{kindGPU, id})
	}
	who := []uint16{fieldName, fieldUUID, fieldPCI}
	texts, err := d.engine.texts(all, who)
	if err != nil {
		return nil, fmt.Errorf("identify GPUs: %w", err)
	}
	minors, err := d.engine.live(all, []uint16{fieldMinor})
	if err != nil {
		return nil, fmt.Errorf("identify GPUs: %w", err)
	}
	facts, err := d.facts(all)
	if err != nil {
		return nil, fmt.Errorf("read the labels of GPUs: %w", err)
	}
	for i, e := range all {
		t := texts[i*len(who):]
		gpu := gpuDevice(e.id, present(t[0]), present(t[1]), present(t[2]), minors[i])
		gpu.Facts, gpu.Unread = facts[i], d.unlisted
		n.addDevice(gpu, e)
	}
	return n, nil
}

// gpuDevice returns a GPU's identity exactly as collectors/nvml does, so that both give it the same ID. A GPU without a
// UUID, which must be an injected GPU, gets its number as ID.
func gpuDevice(id uint32, name, uuid, pci string, minor cell) collector.Device {
	number := strconv.FormatUint(uint64(id), 10)
	d := collector.Device{Level: field.GPU, GPU: number, UUID: uuid, PCIBusID: strings.ToUpper(pci), Model: name, Node: "nvidia" + number}
	if most := float64(1 << 20); minor.status == statusOK && minor.value >= 0 && minor.value < most { // MINORMASK of Linux
		d.Node = "nvidia" + strconv.Itoa(int(minor.value))
	}
	if d.ID = uuid; uuid == "" || strings.Trim(uuid, "GPU-0") == "" {
		d.ID = "GPU " + number
	}
	return d
}

// present returns s, or "" for one of DCGM's blanks: "<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>",
// "<<<NOT_PERM>>>".
func present(s string) string {
	if strings.HasPrefix(s, "<<<") && strings.HasSuffix(s, ">>>") {
		return ""
	}
	return s
}

// facts reads the label fields of entities: texts unchanged, numbers scaled as in the list. It makes one call per field,
// because a field that is unknown or belongs to another kind of entity makes the whole call fail. It omits missing values.
// The node has only the facts of its own level.
func (d *discovery) facts(entities []entity) ([][]collector.Label, error) {
	out := make([][]collector.Label, len(entities))
	for _, f := range d.fields.Labels() {
		id := []uint16{uint16(f.Desc.ID)}
		var texts []string
		var values []cell
		var err error
		switch {
		case f.Desc.ID >= field.FirstExporter, entities[0].kind == kindNone && f.Desc.Level != field.Global:
		case f.Desc.Kind == field.String:
			texts, err = d.engine.texts(entities, id)
		case f.Desc.Kind == field.Int64 || f.Desc.Kind == field.Double:
			values, err = d.engine.live(entities, id)
		}
		if err != nil {
			if isStatus(err, statusGeneric, statusBadParam, statusNotSupported, statusUnknownField, statusNoModule) { // of one field of several
				continue
			}
			return nil, err
		}
		for e := range entities {
			text := ""
			switch {
			case texts != nil:
				text = present(texts[e])
			case values != nil && !math.IsNaN(values[e].value):
				text = strconv.FormatFloat(values[e].value*f.Scale, 'f', -1, 64)
			}
			if text != "" {
				out[e] = append(out[e], collector.Label{Name: f.Name, Value: text})
			}
		}
	}
	return out, nil
}

// addInstances adds the MIG instances of GPUs. A GPU instance with one compute instance, the usual case, is one device.
// Several compute instances become additional devices, as in collectors/nvml.
func (d *discovery) addInstances(n *node) {
	gpus := map[entity]int{}
	n.computes = map[entity]int{}
	for i, e := range n.entities {
		gpus[e] = i
	}
	all := slices.Clone(d.instances)
	slices.SortStableFunc(all, func(a, b migEntity) int {
		return cmp.Or(cmp.Compare(a.gpuIndex, b.gpuIndex), cmp.Compare(a.instance, b.instance), cmp.Compare(a.compute, b.compute))
	})
	profiles := d.textsOf(kindInstance, fieldName)
	uuids := d.textsOf(kindCompute, fieldUUID) // Kubernetes' names of MIG devices
	for _, m := range all {
		at, known := gpus[m.parent]
		if m.entity.kind != kindInstance || !known {
			continue
		}
		whole := collector.InstanceOf(n.devices[at], int(m.instance), profiles[m.entity])
		parts := slices.DeleteFunc(slices.Clone(all), func(c migEntity) bool { return c.entity.kind != kindCompute || c.parent != m.entity })
		if len(parts) == 1 {
			whole.Instance.UUID = uuids[parts[0].entity]
		}
		if !n.addDevice(whole, m.entity) {
			continue
		}
		if len(parts) < 2 {
			for _, c := range parts {
				n.computes[c.entity] = len(n.devices) - 1
			}
			continue
		}
		for _, c := range parts {
			part := collector.ComputeInstanceOf(whole, int(c.compute))
			part.Instance.UUID = uuids[c.entity]
			n.addDevice(part, c.entity)
		}
	}
}

// textsOf returns a text field of the instances of a kind: the profile, such as "1g.10gb", or the instance's own UUID.
func (d *discovery) textsOf(k entityKind, field uint16) map[entity]string {
	var entities []entity
	for _, m := range d.instances {
		if m.entity.kind == k {
			entities = append(entities, m.entity)
		}
	}
	out := map[entity]string{}
	texts := listed(&d.inventory, d.o, k, true, func() ([]string, error) { return d.engine.texts(entities, []uint16{field}) })
	for i, e := range entities[:len(texts)] {
		if text := present(texts[i]); field != fieldUUID || strings.HasPrefix(text, "MIG-") {
			out[e] = text
		}
	}
	return out
}

// link is a link that is up.
type link struct {
	owner  entity
	number int
}

// linksUp lists the links that are up. It returns an error if the engine reuses link IDs.
func linksUp(e *engine) ([]link, error) {
	version, err := e.version()
	minor := 0
	if n, _ := fmt.Sscanf(shortVersion(version), "4.%d.", &minor); err == nil && n == 1 && minor < 3 { // its link IDs lack the owner
		return nil, fmt.Errorf("list NVLinks: DCGM %s reuses link IDs across GPUs: upgrade nv-hostengine to 4.3", shortVersion(version))
	}
	return e.linksUp()
}

// addLinks adds the active links of a node's devices, as dcgm-exporter does. Rescan notices later changes.
func (d *discovery) addLinks(n *node) {
	owners := map[entity]collector.Device{}
	for i, e := range n.entities {
		owners[e] = n.devices[i]
	}
	for _, l := range d.links {
		if owner, known := owners[l.owner]; known {
			id := uint32(l.owner.kind)&0xff | uint32(l.number)&0xffff<<8 | l.owner.id<<24 // dcgm_link_t of DCGM 4.3 and newer
			n.addDevice(collector.LinkOf(owner, l.number), entity{kindLink, id})
		}
	}
}

// addCPUs adds NVIDIA's CPUs and, if the list needs them, their cores. Core numbers are unique on the node.
func (d *discovery) addCPUs(n *node, facts []collector.Label) {
	cores := wants(d.fields, field.Core)
	for _, c := range d.cpus {
		number := strconv.FormatUint(uint64(c.id), 10)
		socket := collector.Device{ID: "CPU-" + number, Level: field.CPU, Labels: []collector.Label{{Name: "cpu", Value: number}}, Facts: facts}
		n.addDevice(socket, entity{kindCPU, c.id})
		if !cores {
			continue
		}
		for _, core := range c.cores {
			one := socket
			one.Level, one.Parent = field.Core, socket.ID
			number := strconv.FormatUint(uint64(core), 10)
			one.Labels = append([]collector.Label{{Name: "cpucore", Value: number}}, socket.Labels...)
			one.ID = socket.ID + "/core" + number
			n.addDevice(one, entity{kindCore, core})
		}
	}
}
