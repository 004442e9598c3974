package dcgm

import (
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// entityKind is DCGM's dcgm_field_entity_group_t.
type entityKind int32

const (
	kindNone     entityKind = 0 // the node
	kindGPU      entityKind = 1
	kindVGPU     entityKind = 2
	kindSwitch   entityKind = 3
	kindInstance entityKind = 4 // GPU instance of MIG
	kindCompute  entityKind = 5 // compute instance of MIG
	kindLink     entityKind = 6 // of a GPU or a switch; the ID is a dcgm_link_t
	kindCPU      entityKind = 7
	kindCore     entityKind = 8
	kindConnectX entityKind = 9
)

func (k entityKind) String() string {
	return [...]string{"node", "GPU", "vGPU", "switch", "GPU instance", "compute instance", "link", "CPU", "core", "ConnectX"}[k]
}

// entity is an object with values in DCGM. Its memory layout equals dcgmGroupEntityPair_t.
type entity struct {
	kind entityKind
	id   uint32
}

// cell is one value of the engine. Its memory layout equals wg_cell.
type cell struct {
	value  float64 // NaN if blank, refused or not a number
	micros int64   // when the engine read it, Unix µs; 0 if never
	status status
	sentinel
}

// event is one value of a history. Its memory layout equals wg_event.
type event struct {
	cell
	of uint32 // index of the entity in the request
	_  uint32
}

// migEntity is a GPU or compute instance with its parent.
type migEntity struct {
	entity, parent entity
	gpuIndex       uint32 // NVML's
	instance       uint32 // NVML's GPU instance id
	compute        uint32 // NVML's compute instance ID; all bits set for a GPU instance
}

// linkUp is the dcgmNvLinkLinkState_t of a working link.
const linkUp = 3

// incident is a finding of DCGM's health checks.
type incident struct {
	entity entity
	system uint32 // DCGM_HEALTH_WATCH_…: one bit, or all
	health int32  // 0 pass, 10 warn, 20 fail
	code   uint32 // DCGM_FR_…
	text   string // DCGM's
}

// cpu is a CPU with the numbers of its cores.
type cpu struct {
	id    uint32
	cores []uint32
}

// node holds the devices of one source: the engine's entities that the list needs.
type node struct {
	devices  []collector.Device
	entities []entity       // by device
	computes map[entity]int // by compute instance without its own device: its GPU instance's device
	twice    int            // number of devices dropped for a duplicate ID
}

// addDevice adds a device and reports whether it did. It drops a device with a duplicate ID, such as a GPU with the UUID
// of another GPU.
func (n *node) addDevice(d collector.Device, e entity) bool {
	if slices.ContainsFunc(n.devices, func(o collector.Device) bool { return o.ID == d.ID }) {
		n.twice++
		return false
	}
	n.devices = append(n.devices, d)
	n.entities = append(n.entities, e)
	return true
}

// byKind returns the indexes of the devices of a kind.
func (n *node) byKind(k entityKind) (devices []int) {
	for i, e := range n.entities {
		if e.kind == k {
			devices = append(devices, i)
		}
	}
	return devices
}

// askable reports whether the engine may have a field as a reading. It excludes our own fields, whose IDs are beyond the
// engine's, and texts, which are labels.
func askable(d *field.Descriptor) bool {
	return d.ID > 0 && d.ID < field.FirstExporter && !d.Event && (d.Kind == field.Int64 || d.Kind == field.Double)
}

// askedOf reports whether entities of a kind supply a reading. The GPU that a guest sees also supplies the vGPU's
// licence, as in dcgm-exporter.
func askedOf(d *field.Descriptor, k entityKind) bool {
	return k != kindVGPU && d.AskedOf(levelOfKind[k])
}

// levelOfKind holds the level of the entities of each kind.
var levelOfKind = [...]field.Level{
	kindGPU: field.GPU, kindInstance: field.Instance, kindCompute: field.ComputeInstance, kindLink: field.Link,
	kindSwitch: field.Switch, kindCPU: field.CPU, kindCore: field.Core, kindConnectX: field.ConnectX,
}

// every returns the interval at which the engine must read r so that the session finds a new value on each due tick.
func (o Options) every(r field.Reading) time.Duration {
	byCost := r.Desc.Cost.Interval(o.Interval, o.SlowInterval)
	switch {
	case r.Interval == 0:
		return byCost
	case r.Default:
		return min(r.Interval, byCost)
	}
	return max(r.Interval, o.Interval)
}

// sentinel identifies DCGM's blank values (dcgm_structs.h: DCGM_INT64_BLANK and so on). Its memory layout is part of
// wg_cell.
type sentinel int32

const (
	noSentinel    sentinel = iota
	sentinelBlank          // …_BLANK
	sentinelNotFound
	sentinelNotSupported
	sentinelNotPermitted
	sentinels
)

// Supplies reports whether the collector supplies a field for some entity. It returns false for a field in base units,
// which is derived from another field.
func Supplies(d *field.Descriptor) bool {
	parts := []field.ID{field.XIDErrorsCount, field.XIDErrorsTotal, field.ClockEventsCount, field.ClockEventsTotal, field.GPUHealth, field.P2PStatus}
	return slices.Contains(parts, d.ID) || isLabel(d) || isReading(d)
}

// isLabel reports whether a field is a text, used as a label.
func isLabel(d *field.Descriptor) bool {
	return d.Kind == field.String && d.Level != field.VGPU && d.Factor == 0 && d.ID < field.FirstExporter
}

// isReading reports whether a field is a number that the engine reads for some kind of entity.
func isReading(d *field.Descriptor) bool {
	if d.Factor != 0 || !askable(d) {
		return false
	}
	for k := kindGPU; k <= kindConnectX; k++ {
		if askedOf(d, k) {
			return true
		}
	}
	return false
}
