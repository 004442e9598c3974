//go:build linux && cgo

package dcgm

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// inventory lists the engine's entities that the list of fields needs. A kind that cannot be listed is empty.
type inventory struct {
	gpus, switches, adapters []uint32
	instances                []migEntity
	links                    []link
	cpus                     []cpu
}

// listEntities reads nothing that the engine would have to read from the driver. Only GPUs that cannot be listed are an
// error.
func listEntities(e *engine, fields field.List, o Options) (v inventory, err error) {
	if v.gpus, err = e.entities(kindGPU, !o.FakeGPUs); err != nil {
		return v, err
	}
	v.instances, err = e.hierarchy()
	o.logUnlisted(kindInstance, err)
	if wants(fields, field.Link) {
		v.links, err = linksUp(e, o)
		o.logUnlisted(kindLink, err)
	}
	if wants(fields, field.Switch, field.Link) {
		v.switches, err = e.entities(kindSwitch, false)
		o.logUnlisted(kindSwitch, err)
	}
	if wants(fields, field.CPU, field.Core) {
		v.cpus, err = e.cpus()
		o.logUnlisted(kindCPU, err)
	}
	if wants(fields, field.ConnectX) {
		v.adapters, err = e.entities(kindConnectX, false)
		o.logUnlisted(kindConnectX, err)
	}
	return v, nil
}

// logUnlisted logs that entities of a kind cannot be listed, unless the node has none.
func (o Options) logUnlisted(k entityKind, err error) {
	if err != nil && !isStatus(err, statusNotSupported, statusNoModule, statusNoData) {
		o.Log.Warn("cannot list entities; skipping them", zap.Stringer("source", k), zap.Error(err))
	}
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
		facts = d.globalFacts()
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
	for _, r := range fields.Readings() {
		if slices.Contains(levels, r.Desc.Level) {
			return true
		}
	}
	return false
}

// Field numbers that identify a device (dcgm_fields.h).
const (
	fieldName  = 50
	fieldUUID  = 54
	fieldMinor = 55
	fieldPCI   = 57
)

// identifyGPUs returns a node of the GPUs. If two have one UUID, it drops the second.
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
		gpu.Facts = facts[i]
		n.addDevice(gpu, e)
	}
	return n, nil
}

// gpuDevice returns a GPU's identity exactly as collectors/nvml does, so that both give it the same ID. A GPU without
// UUID, which only injected GPUs are, gets its number as ID.
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

// present returns a text, or "" for one of DCGM's blanks: "<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>",
// "<<<NOT_PERM>>>".
func present(s string) string {
	if strings.HasPrefix(s, "<<<") && strings.HasSuffix(s, ">>>") {
		return ""
	}
	return s
}

// facts reads the label fields of entities, each by a call of its own, because a field that is unknown to the engine, or
// that only other kinds of entities have, fails the whole call: texts unchanged, numbers scaled as in the list. It omits
// missing values.
func (d *discovery) facts(entities []entity) ([][]collector.Label, error) {
	out := make([][]collector.Label, len(entities))
	for _, f := range d.fields.Labels() {
		id := []uint16{uint16(f.Desc.ID)}
		var texts []string
		var values []cell
		var err error
		switch {
		case f.Desc.ID >= field.FirstExporter:
		case f.Desc.Kind == field.String:
			texts, err = d.engine.texts(entities, id)
		case f.Desc.Kind == field.Int64 || f.Desc.Kind == field.Double:
			values, err = d.engine.live(entities, id)
		}
		if err != nil {
			if ofAField(err) {
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

// globalFacts returns the facts of the whole node, for devices without their own.
func (d *discovery) globalFacts() []collector.Label {
	all, err := d.facts([]entity{{kindNone, 0}})
	if err != nil {
		return nil
	}
	global := map[string]bool{}
	for _, f := range d.fields.Labels() {
		global[f.Name] = f.Desc.Level == field.Global
	}
	return slices.DeleteFunc(all[0], func(l collector.Label) bool { return !global[l.Name] })
}
