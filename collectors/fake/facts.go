package fake

import (
	"fmt"
	"maps"
	"math"
	"strconv"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// binder is a device to which fields are bound.
type binder interface {
	cell(d *field.Descriptor) (cell, bool)
}

// facts returns the label fields of a device. Texts are looked up; numbers only
// serve where they never change.
func facts(fields field.List, texts map[field.ID]string, b binder) []collector.Label {
	var out []collector.Label
	for _, f := range fields.Labels() {
		text := texts[f.Desc.ID]
		if c, ok := b.cell(f.Desc); text == "" && ok && c.op == constant {
			text = strconv.FormatFloat(finish(c, f.Desc, 0).a*scale(f), 'f', -1, 64)
		}
		if text != "" {
			out = append(out, collector.Label{Name: f.Name, Value: text})
		}
	}
	return out
}

func scale(f field.Field) float64 {
	if f.Scale == 0 || math.IsNaN(f.Scale) {
		return 1
	}
	return f.Scale
}

// texts are the string fields of a board, by the ids of dcgm_fields.h.
func (g *gpu) texts(d collector.Device) map[field.ID]string {
	serial := fmt.Sprintf("SIM%010d", hash(g.world.seed, forSerial, uint64(g.index))%1e10)
	out := map[field.ID]string{
		1: nvidiaDriver, 50: d.Model, 51: g.brand, 53: serial, 54: d.UUID, 57: d.PCIBusID, 85: g.vbios,
	}
	if g.vendor == amd {
		out[1] = amdDriver
		maps.Copy(out, g.amdTexts(d))
		return out
	}
	out[2] = nvmlVersion
	out[68] = d.UUID // as CUDA_VISIBLE_DEVICES takes it
	out[82] = g.imageVersion
	if !g.consumer {
		out[56], out[80] = "2.1", "7.16" // the power object has no version on these boards
	}
	if g.instance {
		delete(out, 53)
	}
	if g.fabric {
		out[172] = uuid(g.world.seed, uuidSwitch, 1<<32)
	}
	return out
}

// nodeTexts are what every device of the node shares.
func (w *World) nodeTexts() map[field.ID]string {
	if w.profile.board.vendor == amd {
		return map[field.ID]string{1: amdDriver}
	}
	return map[field.ID]string{1: nvidiaDriver, 2: nvmlVersion}
}
