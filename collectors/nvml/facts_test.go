//go:build linux && cgo

package nvml

import (
	"testing"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
)

const factsCSV = `DCGM_FI_DRIVER_VERSION, label, driver
DCGM_FI_NVML_VERSION, label, NVML
DCGM_FI_CUDA_DRIVER_VERSION, label, CUDA
DCGM_FI_DEV_NAME, label, name
DCGM_FI_DEV_BRAND, label, brand
DCGM_FI_DEV_SERIAL, label, serial
DCGM_FI_DEV_UUID, label, UUID
DCGM_FI_DEV_MINOR_NUMBER, label, minor
DCGM_FI_DEV_OEM_INFOROM_VER, label, InfoROM
DCGM_FI_DEV_ECC_INFOROM_VER, label, InfoROM
DCGM_FI_DEV_POWER_INFOROM_VER, label, InfoROM
DCGM_FI_DEV_INFOROM_IMAGE_VER, label, InfoROM
DCGM_FI_DEV_VBIOS_VERSION, label, VBIOS
DCGM_FI_DEV_PCI_BUSID, label, PCI
DCGM_FI_DEV_PCI_COMBINED_ID, label, PCI
DCGM_FI_DEV_CUDA_COMPUTE_CAPABILITY, label, CUDA
DCGM_FI_DEV_CUDA_VISIBLE_DEVICES_STR, label, CUDA
DCGM_FI_DEV_FABRIC_CLUSTER_UUID, label, fabric
`

func describe(t *testing.T, n *nvmltest.Node) map[string][]collector.Label {
	t.Helper()
	d := discoveryOn(t, n)
	a := assembly{lib: d.lib, labels: listOf(t, factsCSV).Labels()}
	devices, _ := a.devices(d.mustFind(t)[0])
	out := map[string][]collector.Label{}
	for _, x := range devices {
		out[x.ID] = x.Facts
	}
	return out
}

func TestFacts(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1, MIG: map[int][]string{0: {"1g.10gb"}}})
	n.SetNumber(0, "minor", 3)
	uuid, mig := nvmltest.UUID(0), n.Instances(0)[0].UUID
	board := []collector.Label{
		{Name: "DCGM_FI_DRIVER_VERSION", Value: "580.65.06"},
		{Name: "DCGM_FI_NVML_VERSION", Value: "13.580.65.06"},
		{Name: "DCGM_FI_CUDA_DRIVER_VERSION", Value: "13000"},
		{Name: "DCGM_FI_DEV_NAME", Value: "NVIDIA H100 80GB HBM3"},
		{Name: "DCGM_FI_DEV_BRAND", Value: "NVIDIA"},
		{Name: "DCGM_FI_DEV_SERIAL", Value: nvmltest.Serial(0)},
		{Name: "DCGM_FI_DEV_UUID", Value: uuid},
		{Name: "DCGM_FI_DEV_MINOR_NUMBER", Value: "3"},
		{Name: "DCGM_FI_DEV_OEM_INFOROM_VER", Value: "2.1"},
		{Name: "DCGM_FI_DEV_ECC_INFOROM_VER", Value: "7.16"},
		{Name: "DCGM_FI_DEV_INFOROM_IMAGE_VER", Value: "G520.0200.00.05"},
		{Name: "DCGM_FI_DEV_VBIOS_VERSION", Value: "96.00.74.00.01"},
		{Name: "DCGM_FI_DEV_PCI_BUSID", Value: "00000000:0B:00.0"},
		{Name: "DCGM_FI_DEV_PCI_COMBINED_ID", Value: "590352606"}, // 0x233010de
		{Name: "DCGM_FI_DEV_CUDA_COMPUTE_CAPABILITY", Value: "589824"},
		{Name: "DCGM_FI_DEV_CUDA_VISIBLE_DEVICES_STR", Value: "MIG-" + uuid},
		{Name: "DCGM_FI_DEV_FABRIC_CLUSTER_UUID", Value: "fa4e0000-0000-0000-0000-000000000001"},
	}
	of := map[string]string{
		"DCGM_FI_DEV_NAME": "1g.10gb", "DCGM_FI_DEV_UUID": mig, "DCGM_FI_DEV_SERIAL": "",
		"DCGM_FI_DEV_CUDA_VISIBLE_DEVICES_STR": "MIG-" + uuid + "/7",
	}
	var instance []collector.Label
	for _, l := range board {
		if v, differs := of[l.Name]; differs {
			l.Value = v
		}
		if l.Value != "" {
			instance = append(instance, l)
		}
	}
	want := map[string][]collector.Label{uuid: board, uuid + "/7": instance}
	equal(t, want, describe(t, n), "")
}
