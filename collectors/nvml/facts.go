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
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// describe sets the values of the list's label fields of GPUs and their instances.
// A GPU that hangs meanwhile is one that does not answer from then on.
func (c *Collector) describe(ctx context.Context, gpus []*gpu, list field.List) {
	labels := list.Labels()
	if len(labels) == 0 {
		return
	}
	at := map[int]*gpu{}
	var ask []int
	for _, g := range gpus {
		if g.err == nil {
			at[g.index], ask = g, append(ask, g.index)
		}
	}
	facts := make(map[int]*[][]collector.Label)
	for _, i := range ask {
		facts[i] = new([][]collector.Label)
	}
	lib := c.lib // also of a call that is abandoned
	ended := c.pending.ask(ctx, ask, func(i int) { *facts[i] = lib.facts(at[i], labels) }, nil)
	for _, i := range ask {
		g := at[i]
		if !ended[i] {
			c.gpus.silence(g)
			continue
		}
		g.device.Facts = (*facts[i])[0]
		for j, f := range (*facts[i])[1:] {
			g.instances[j].device.Facts = f
		}
	}
}

// facts are the values of label fields, in DCGM's spelling: of a GPU, then of each
// of its instances. What a device does not have is left out.
func (l *library) facts(g *gpu, labels []field.Field) (out [][]collector.Label) {
	numbers := l.numbers(g, labels)
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
			texts[id] = l.text(g, id)
		}
		return texts[id]
	}
	set(board)
	for i := range g.instances {
		set(func(id field.ID) string { return instanceText(&g.instances[i].device, id, board) })
	}
	return out
}

// numbers are the label fields that are numbers, each read once.
func (l *library) numbers(g *gpu, labels []field.Field) map[field.ID]float64 {
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
	p, err := newReadings(g.of, []target{{of: g.of, level: field.GPU}}, fields, nil, zap.NewNop())
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

// instanceText is what differs between a GPU and an instance of it.
func instanceText(d *collector.Device, id field.ID, board func(field.ID) string) string {
	switch id {
	case factName:
		return d.Instance.Profile
	case factUUID:
		return d.Instance.UUID
	case factSerial: // of the board; DCGM has none for instances
		return ""
	case factVisibleDevices:
		return "MIG-" + d.ID
	}
	return board(id)
}

// text is a text of a GPU, "" if it has none.
func (l *library) text(g *gpu, id field.ID) string {
	d := &g.device
	switch id {
	case factDriver:
		return l.versions().driver
	case factNVML:
		return l.versions().nvml
	case factName:
		return d.Model
	case factUUID:
		return d.UUID
	case factPCI:
		return d.PCIBusID
	case factVisibleDevices:
		if g.mig {
			return "MIG-" + d.UUID
		}
		return d.UUID
	case factBrand:
		return l.brand(g)
	case factSerial:
		return l.ask("nvmlDeviceGetSerial", g.handle.GetSerial)
	case factVBIOS:
		return l.ask("nvmlDeviceGetVbiosVersion", g.handle.GetVbiosVersion)
	case factImageVersion:
		return l.ask("nvmlDeviceGetInforomImageVersion", g.handle.GetInforomImageVersion)
	case factOEMVersion:
		return l.infoROM(g, nvml.INFOROM_OEM)
	case factECCVersion:
		return l.infoROM(g, nvml.INFOROM_ECC)
	case factPowerVersion:
		return l.infoROM(g, nvml.INFOROM_POWER)
	case factCluster:
		return l.cluster(g)
	case factGUID, factChassis:
		return l.platform(g, id)
	}
	return ""
}

func (l *library) ask(symbol string, call func() (string, nvml.Return)) string {
	if !l.has(symbol) {
		return ""
	}
	if text, code := call(); code == nvml.SUCCESS {
		return text
	}
	return ""
}

func (l *library) infoROM(g *gpu, object nvml.InforomObject) string {
	return l.ask("nvmlDeviceGetInforomVersion", func() (string, nvml.Return) { return g.handle.GetInforomVersion(object) })
}

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
	if names := brandNames(); brand >= 0 && int(brand) < len(names) {
		return names[brand]
	}
	return "Unknown"
}

// cluster is the UUID of the NVLink cluster; "" outside of one, for which NVML has zeros.
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
	p, code := l.platformInfo(g.handle)
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
