package rocm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// units returns the devices of a GPU: the GPU, its partitions if it has several, and its XGMI links.
func (n node) units(g *sysfs.GPU, more boardFacts, driver string, fields field.List, m *gpumetrics.Metrics) []unit {
	board := n.board(g)
	specs := boardSpecs(g, n, more)
	words := texts(g, board, driver)
	for id, text := range addedTexts(more) {
		if words[id] == "" {
			words[id] = text
		}
	}
	board.Facts, board.Texts = facts(fields, words, specs), collector.DialectTexts(fields, words)
	out := []unit{{board, specs}}
	if g.Partitioned() {
		for k, i := range g.Instances {
			d := instance(board, g, i)
			t := texts(g, d, driver)
			t[field.AMDRenderNode], t[field.AMDUUID] = i.Render, smiUUID(g, i.ID)
			d.Texts = collector.DialectTexts(fields, t) // with the board's serial number
			delete(t, dcgmSerial)                       // only for the board, as with MIG
			specs := instanceSpecs(i, k)
			d.Facts = facts(fields, t, specs)
			out = append(out, unit{d, specs})
		}
	}
	for i := range gpumetrics.XGMILinks {
		if m != nil && m.Raw(gpumetrics.XGMIReadAcc, i) == gpumetrics.NA && m.Raw(gpumetrics.XGMIWriteAcc, i) == gpumetrics.NA {
			continue
		}
		d := collector.LinkOf(board, i)
		d.Facts = facts(fields, map[field.ID]string{dcgmDriver: driver}, nil)
		out = append(out, unit{d, linkSpecs(i)})
	}
	return out
}

func (n node) board(g *sysfs.GPU) collector.Device {
	id := gpuUUID(g)
	return collector.Device{
		ID: id, UUID: id, Level: field.GPU,
		GPU:      strconv.Itoa(n.index),
		PCIBusID: busID(g.PCI),
		Node:     g.Card,
		Model:    g.Model,
	}
}

// gpuUUID returns the unique ID as HIP prints it, GPU- and 16 hexadecimal digits. For a board without a unique ID (APUs,
// older Radeons, virtual functions) it uses the PCI address.
func gpuUUID(g *sysfs.GPU) string {
	if g.UniqueID == 0 {
		return "GPU-" + g.PCI
	}
	return fmt.Sprintf("GPU-%016x", g.UniqueID)
}

// busID returns the address in DCGM's form, with an eight-digit domain.
func busID(pci string) string {
	domain, rest, ok := strings.Cut(pci, ":")
	if !ok {
		return pci
	}
	return strings.ToUpper(fmt.Sprintf("%08s:%s", domain, rest))
}

// instance returns the device of a partition. It has its own device node, because containers use render nodes.
func instance(board collector.Device, g *sysfs.GPU, i sysfs.Instance) collector.Device {
	d := collector.InstanceOf(board, i.ID, strings.ToLower(g.Compute))
	d.Alias = i.Name
	if i.Render != "" {
		d.Node = i.Render
	}
	return d
}

// texts returns the values of the text fields.
func texts(g *sysfs.GPU, d collector.Device, driver string) map[field.ID]string {
	out := map[field.ID]string{
		dcgmDriver: driver, dcgmName: g.Model, dcgmBrand: "AMD", dcgmSerial: g.Serial,
		dcgmUUID: d.UUID, dcgmPCI: d.PCIBusID, dcgmVBIOS: g.VBIOS,
		field.AMDComputePartition: g.Compute, field.AMDMemoryPartition: g.Memory,
		field.AMDCard: g.Card, field.AMDRenderNode: g.Render,
		field.AMDModelNumber: g.Number, field.AMDVendor: "Advanced Micro Devices, Inc. [AMD/ATI]", field.AMDDeployment: deployment(g),
	}
	if g.UniqueID != 0 {
		out[field.AMDUniqueID], out[field.AMDUUID] = fmt.Sprintf("%016x", g.UniqueID), smiUUID(g, wholeUUID)
	}
	return out
}

// wholeUUID is the partition number of an undivided GPU in smiUUID.
const wholeUUID = 0xff

// smiUUID returns the UUID that AMD SMI derives from a board's unique ID (amdsmi_uuid_gen in amd_smi_uuid.cc).
// Partitions have their own UUID since ROCm 7; before ROCm 7 they had the board's.
func smiUUID(g *sysfs.GPU, part int) string {
	if g.UniqueID == 0 {
		return ""
	}
	id := g.UniqueID
	return fmt.Sprintf("%02x%02x%04x-0000-1000-80%02x-%04x%08x", id>>56, part&0xff, g.Device, id>>48&0xff, id>>32&0xffff, id&0xffffffff)
}

// deployment returns the deployment mode of a GPU in the words of AMD's exporter. Virtual functions have their own PCI
// device IDs. The listed IDs belong to MI210, MI300X, MI325X, MI350X and MI355X.
func deployment(g *sysfs.GPU) string {
	switch {
	case !g.Virtual:
		return "baremetal"
	case slices.Contains([]uint16{0x7410, 0x74b5, 0x74b9, 0x75b0, 0x75b3}, g.Device):
		return "vm_vf"
	}
	return "vm_pf"
}

// facts returns the list's label fields: texts, and numbers that never change.
func facts(fields field.List, texts map[field.ID]string, specs []spec) []collector.Label {
	var out []collector.Label
	for _, f := range fields.Labels() {
		text := texts[f.Desc.ID]
		for _, s := range specs {
			if t := s.terms[0]; s.field == f.Desc.ID && t.op == opFixed && len(s.labels) == 0 && !math.IsNaN(t.scale) {
				text = strconv.FormatFloat(t.scale*cmp.Or(f.Scale, 1), 'f', -1, 64)
			}
		}
		if text != "" {
			out = append(out, collector.Label{Name: f.Name, Value: text})
		}
	}
	return out
}
