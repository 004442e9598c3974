//go:build linux && cgo

package nvml

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// describe sets the label fields of the GPUs and their instances. A GPU that hangs here counts as not answering from
// then on.
func (c *Collector) describe(ctx context.Context, gpus []*gpu, list field.List) {
	labels := list.Labels()
	if len(labels) == 0 {
		return
	}
	at := map[int]*gpu{}
	var indexes []int
	for _, g := range gpus {
		if g.err == nil {
			at[g.index], indexes = g, append(indexes, g.index)
		}
	}
	lib := c.lib // abandoned calls still use it
	facts := askEach(ctx, c.pending, indexes, func(i int) [][]collector.Label { return factReader{lib, at[i]}.facts(labels) }, nil)
	for i, g := range at {
		f := facts[i]
		if f == nil {
			c.gpus.silence(g)
			continue
		}
		g.device.Facts = f[0]
		for j, f := range f[1:] {
			g.instances[j].device.Facts = f
		}
	}
}

// factReader reads the constant properties of a GPU.
type factReader struct {
	lib *library
	gpu *gpu
}

// facts returns the values of the label fields in DCGM's spelling: first the GPU's, then each instance's. Labels
// without a value are left out.
func (a factReader) facts(labels []field.Field) (out [][]collector.Label) {
	numbers := a.numbers(labels)
	set := func(text func(field.ID) string) {
		var facts []collector.Label
		for _, f := range labels {
			v := text(f.Desc.ID)
			if n, ok := numbers[f.Desc.ID]; ok && v == "" {
				v = strconv.FormatFloat(n*factor(f), 'f', -1, 64)
			}
			if v = tidy(v); v != "" {
				facts = append(facts, collector.Label{Name: f.Name, Value: v})
			}
		}
		out = append(out, facts)
	}
	texts := map[field.ID]string{}
	board := func(id field.ID) string {
		if _, asked := texts[id]; !asked {
			texts[id] = a.text(id)
		}
		return texts[id]
	}
	set(board)
	for i := range a.gpu.instances {
		set(func(id field.ID) string { return instanceText(&a.gpu.instances[i].device, id, board) })
	}
	return out
}

// numbers reads the numeric label fields, each once.
func (a factReader) numbers(labels []field.Field) map[field.ID]float64 {
	var fields []field.Reading
	for _, f := range labels {
		if f.Desc.Kind != field.String {
			fields = append(fields, field.Reading{Desc: f.Desc, Default: true})
		}
	}
	out := map[field.ID]float64{}
	if len(fields) == 0 {
		return out
	}
	p, err := newReadings(a.gpu.reader, []target{{reader: a.gpu.reader, level: field.GPU}}, fields, nil, unexplained())
	if err != nil || p == nil {
		return out
	}
	defer p.close()
	columns := p.columns()
	row, due := make([]float64, len(columns)), make([]bool, len(columns))
	for i := range due {
		row[i], due[i] = math.NaN(), true
	}
	if err := p.sample(row, due); err != nil {
		return out
	}
	for i, c := range columns {
		if !math.IsNaN(row[i]) {
			out[c.Field] = row[i]
		}
	}
	return out
}

func factor(f field.Field) float64 {
	if f.Scale == 0 || math.IsNaN(f.Scale) {
		return 1
	}
	return f.Scale
}

// instanceText returns a label of an instance: its own value for the labels that differ, else the board's.
func instanceText(d *collector.Device, id field.ID, board func(field.ID) string) string {
	switch id {
	case factName:
		return d.Instance.Profile
	case factUUID:
		return d.Instance.UUID
	case factSerial: // DCGM has no serial number for instances
		return ""
	case factVisibleDevices:
		return "MIG-" + d.ID
	}
	return board(id)
}

// text returns a text label of a GPU, "" if it has none.
func (a factReader) text(id field.ID) string {
	d := &a.gpu.device
	switch id {
	case factDriver:
		return a.lib.versions().driver
	case factNVML:
		return a.lib.versions().nvml
	case factName:
		return d.Model
	case factUUID:
		return d.UUID
	case factPCI:
		return d.PCIBusID
	case factVisibleDevices:
		if a.gpu.mig {
			return "MIG-" + d.UUID
		}
		return d.UUID
	case factBrand:
		return a.brand()
	case factSerial:
		return a.ask("nvmlDeviceGetSerial", a.gpu.handle.GetSerial)
	case factVBIOS:
		return a.ask("nvmlDeviceGetVbiosVersion", a.gpu.handle.GetVbiosVersion)
	case factImageVersion:
		return a.ask("nvmlDeviceGetInforomImageVersion", a.gpu.handle.GetInforomImageVersion)
	case factOEMVersion:
		return a.infoROM(nvml.INFOROM_OEM)
	case factECCVersion:
		return a.infoROM(nvml.INFOROM_ECC)
	case factPowerVersion:
		return a.infoROM(nvml.INFOROM_POWER)
	case factCluster:
		return a.cluster()
	case factGUID, factChassis:
		return a.platform(id)
	}
	return ""
}

func (a factReader) ask(symbol string, call func() (string, nvml.Return)) string {
	if !a.lib.has(symbol) {
		return ""
	}
	if text, code := call(); code == nvml.SUCCESS {
		return text
	}
	return ""
}

func (a factReader) infoROM(object nvml.InforomObject) string {
	return a.ask("nvmlDeviceGetInforomVersion", func() (string, nvml.Return) { return a.gpu.handle.GetInforomVersion(object) })
}

// brandNames lists DCGM's names of nvmlBrandType_t, in its order.
func brandNames() []string {
	return []string{
		"Unknown", "Quadro", "Tesla", "NVS", "Grid", "GeForce", "Titan", "NVIDIA Virtual Applications", "NVIDIA Virtual PC",
		"NVIDIA Virtual Compute Server", "NVIDIA RTX Virtual Workstation", "NVIDIA vGaming", "Quadro RTX", "NVIDIA RTX",
		"NVIDIA", "GeForce RTX", "Titan RTX",
	}
}

func (a factReader) brand() string {
	if !a.lib.has("nvmlDeviceGetBrand") {
		return ""
	}
	brand, code := a.gpu.handle.GetBrand()
	if code != nvml.SUCCESS {
		return ""
	}
	if names := brandNames(); brand >= 0 && int(brand) < len(names) {
		return names[brand]
	}
	return "Unknown"
}

// cluster returns the UUID of the NVLink cluster, "" if the GPU is in none (NVML returns zeros).
func (a factReader) cluster() string {
	var id [16]uint8
	switch {
	case a.lib.has("nvmlDeviceGetGpuFabricInfoV"):
		info, code := a.gpu.handle.GetGpuFabricInfoV().V2()
		if code != nvml.SUCCESS {
			return ""
		}
		id = info.ClusterUuid
	case a.lib.has("nvmlDeviceGetGpuFabricInfo"):
		info, code := a.gpu.handle.GetGpuFabricInfo()
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

// uuidText formats 16 bytes as a UUID.
func uuidText(id [16]uint8) string {
	h := hex.EncodeToString(id[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// platform returns the GPU's GUID or its chassis' serial number. A chassis without a serial number returns bytes of
// 0xff.
func (a factReader) platform(id field.ID) string {
	p, code := platformInfo(a.lib, a.gpu.handle)
	serial, _, _ := bytes.Cut(p.ChassisSerialNumber[:], []byte{0})
	switch {
	case code != nvml.SUCCESS:
		return ""
	case id == factGUID:
		return fmt.Sprintf("0x%016x", binary.NativeEndian.Uint64(p.IbGuid[:]))
	case !slices.ContainsFunc(serial, func(b byte) bool { return b != 0xff }):
		return ""
	}
	return string(serial)
}
