package dcgm

import (
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// node is what an engine has, as far as a field list asks for it: the devices of
// one source, and the entity that each of them is.
type node struct {
	devices  []collector.Device
	entities []entity // of devices
}

// byKind returns the places of the devices of a kind.
func (n *node) byKind(k entityKind) (places []int) {
	for i, e := range n.entities {
		if e.kind == k {
			places = append(places, i)
		}
	}
	return places
}

// askable reports whether the engine can be asked for a reading: a number that
// it knows. Ours have numbers beyond its range, and texts are labels.
func askable(d *field.Descriptor) bool {
	return d.ID > 0 && d.ID < field.FirstExporter && !d.Event && (d.Kind == field.Int64 || d.Kind == field.Double)
}

// profiles reports whether a field is one of profiling: from 1001 on, below those
// of CPUs, and the two of links (DCGM_FIELD_ID_IS_PROF_FIELD).
func profiles(id field.ID) bool { return id >= 1001 && id < 1100 || id == 1532 || id == 1533 }

// licensed is DCGM_FI_DEV_VGPU_LICENSE_STATUS. DCGM counts it among those of virtual
// GPUs, but reads it of the GPU that a guest sees: dcgm-exporter shows it there.
const licensed field.ID = 526

// askedOf reports whether the engine is asked for a reading by entities of a kind.
func askedOf(d *field.Descriptor, k entityKind) bool {
	return serves(d.Level, k) || d.ID == licensed && k == kindGPU
}

// serves reports whether the engine is asked for a reading of a level by an
// entity of a kind. What a GPU has as a whole is not asked of its instances.
func serves(level field.Level, k entityKind) bool {
	switch k {
	case kindGPU:
		return level == field.Global || level == field.GPU || level == field.Instance || level == field.ComputeInstance
	case kindInstance:
		return level == field.Instance || level == field.ComputeInstance
	case kindCompute:
		return level == field.ComputeInstance
	case kindLink:
		return level == field.Link
	case kindSwitch:
		return level == field.Switch
	case kindCPU:
		return level == field.CPU
	case kindCore:
		return level == field.Core
	case kindConnectX:
		return level == field.ConnectX
	}
	return false
}

// every is how often the engine must read a reading for the sampler to find a
// new value on each tick that it is due.
func (o Options) every(r field.Reading) time.Duration {
	byCost := o.Interval
	switch r.Desc.Cost {
	case field.Slow:
		byCost = o.SlowInterval
	case field.Static:
		byCost = o.StaticInterval
	}
	switch {
	case r.Interval == 0:
		return byCost
	case r.Default:
		return min(r.Interval, byCost)
	}
	return max(r.Interval, o.Interval)
}
