package rocm

import (
	"slices"
	"sync"

	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/field"
)

// Supplies reports whether some AMD GPU, partition or link has the field. It reads no hardware.
func Supplies(d *field.Descriptor) bool { return known()[d.ID] }

// known returns the fields that this collector can supply. The map is built on first use and never changes.
var known = sync.OnceValue(func() map[field.ID]bool {
	ids := map[field.ID]bool{}
	for _, specs := range everySpec() {
		for _, s := range specs {
			ids[s.field] = true
		}
	}
	for id := range textFiles() {
		ids[id] = true
	}
	return ids
})

// everySpec returns all possible columns of a GPU, a partition and a link.
func everySpec() [3][]spec {
	whole := sysfs.GPU{Card: "card1", Compute: "SPX", Memory: "NPS1", Instances: []sysfs.Instance{{Units: 1}}}
	return [3][]spec{boardSpecs(&whole, node{count: 1}), instanceSpecs(sysfs.Instance{Units: 1}), linkSpecs(0)}
}

// files returns the files that the terms of a column need, without duplicates.
func (s *spec) files() (from []string) {
	for _, t := range s.terms {
		for _, r := range t.raw {
			from = append(from, r.File())
		}
		if len(t.metric) > 0 || t.op == opUnread {
			from = append(from, "gpu_metrics")
		}
		if t.op == opBus {
			from = append(from, "pcie_bw")
		}
	}
	slices.Sort(from)
	return slices.Compact(from)
}

// textFiles returns the files of the text fields.
func textFiles() map[field.ID]string {
	return map[field.ID]string{
		dcgmDriver: "/sys/module/amdgpu/version, else the kernel's release", dcgmName: "product_name, else a list of PCI ids",
		dcgmBrand: "AMD", dcgmSerial: "serial_number", dcgmUUID: "unique_id, else the PCI address", dcgmPCI: "the link of the card",
		dcgmVBIOS: "vbios_version", field.AMDUniqueID: "unique_id", field.AMDComputePartition: "current_compute_partition",
		field.AMDMemoryPartition: "current_memory_partition", field.AMDModelNumber: "product_number", field.AMDVendor: "AMD", field.AMDUUID: "unique_id, device and the partition", field.AMDDeployment: "/proc/cpuinfo and device",
		field.AMDCard: "drm/card*", field.AMDRenderNode: "drm/renderD*",
		field.AMDManufacturer: boardInfo, field.AMDFRU: boardInfo, field.AMDVBIOSName: vbiosInfo, field.AMDVBIOSDate: vbiosInfo, field.AMDVBIOSPart: vbiosInfo,
		field.AMDMemoryKind: memoryInfo, field.AMDMemoryMaker: memoryInfo,
	}
}

// Sources of texts that only AMD SMI has.
const (
	boardInfo  = "AMD SMI: amdsmi_get_gpu_board_info"
	vbiosInfo  = "AMD SMI: amdsmi_get_gpu_vbios_info"
	memoryInfo = "AMD SMI: amdsmi_get_gpu_vram_info"
)
