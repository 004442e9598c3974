//go:build linux && cgo

package nvml

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/field"
)

// brandNames are DCGM's names of nvmlBrandType_t, in its order.
func brandNames() []string {
	return []string{
		"Unknown", "Quadro", "Tesla", "NVS", "Grid", "GeForce", "Titan", "NVIDIA Virtual Applications", "NVIDIA Virtual PC",
		"NVIDIA Virtual Compute Server", "NVIDIA RTX Virtual Workstation", "NVIDIA vGaming", "Quadro RTX", "NVIDIA RTX",
		"NVIDIA", "GeForce RTX", "Titan RTX",
	}
}

func (l *library) brand(g *gpu) string {
	if !l.has("nvmlDeviceGetBrand") {
		return ""
	}
	brand, code := g.handle.GetBrand()
	if code != nvml.SUCCESS {
		return ""
	}
	if names := brandNames(); int(brand) < len(names) {
		return names[brand]
	}
	return "Unknown"
}

// cluster is the UUID of the NVLink cluster; "" outside of one, where it is zeros.
func (l *library) cluster(g *gpu) string {
	var id [16]uint8
	switch {
	case l.has("nvmlDeviceGetGpuFabricInfoV"):
		info, code := g.handle.GetGpuFabricInfoV().V2()
		if code != nvml.SUCCESS {
			return ""
		}
		id = info.ClusterUuid
	case l.has("nvmlDeviceGetGpuFabricInfo"):
		info, code := g.handle.GetGpuFabricInfo()
		if code != nvml.SUCCESS {
			return ""
		}
		id = info.ClusterUuid
	}
	if id == [16]uint8{} {
		return ""
	}
	return uuidText(id)
}

// uuidText groups 16 bytes as UUIDs are written.
func uuidText(id [16]uint8) string {
	h := hex.EncodeToString(id[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// platform is where a GPU is built in. A chassis without a number says ones.
func (l *library) platform(g *gpu, id field.ID) string {
	guid, serial, ok := l.platformOf(g.raw)
	switch {
	case !ok:
		return ""
	case id == factGUID:
		return fmt.Sprintf("0x%016x", guid)
	case !slices.ContainsFunc([]byte(serial), func(b byte) bool { return b != 0xff }):
		return ""
	}
	return serial
}
