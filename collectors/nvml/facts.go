//go:build linux && cgo

package nvml

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

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
				v = strconv.FormatFloat(n*cmp.Or(f.Scale, 1), 'f', -1, 64)
			}
			if v = tidy(v); v != "" {
				facts = append(facts, collector.Label{Name: f.Name, Value: v})
			}
		}
		out = append(out, facts)
	}
	texts := map[field.ID]string{}
	for _, f := range textFacts {
		if slices.ContainsFunc(labels, func(l field.Field) bool { return l.Desc.ID == f.id }) {
			texts[f.id] = f.read(a)
		}
	}
	board := func(id field.ID) string { return texts[id] }
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
	p, err := newReadings(a.gpu.reader, []target{{reader: a.gpu.reader, level: field.GPU}}, fields, nil, unexplained(), nil)
	if err != nil || p == nil {
		return out
	}
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

// textFacts lists the text label fields, by DCGM's IDs. read returns "" if the GPU has no such text. Numeric label fields
// come from the table of readings.
var textFacts = []struct {
	id   field.ID
	read func(a factReader) string
}{
	{1, func(a factReader) string { return a.lib.versions().driver }},
	{2, func(a factReader) string { return a.lib.versions().nvml }},
	{factName, func(a factReader) string { return a.gpu.device.Model }},
	{51, factReader.brand},
	{factSerial, func(a factReader) string { return a.ask("nvmlDeviceGetSerial", a.gpu.handle.GetSerial) }},
	{factUUID, func(a factReader) string { return a.gpu.device.UUID }},
	{56, infoROM(nvml.INFOROM_OEM)},
	{57, func(a factReader) string { return a.gpu.device.PCIBusID }},
	{factVisibleDevices, func(a factReader) string {
		if a.gpu.mig {
			return "MIG-" + a.gpu.device.UUID
		}
		return a.gpu.device.UUID
	}},
	{80, infoROM(nvml.INFOROM_ECC)},
	{81, infoROM(nvml.INFOROM_POWER)},
	{82, func(a factReader) string {
		return a.ask("nvmlDeviceGetInforomImageVersion", a.gpu.handle.GetInforomImageVersion)
	}},
	{85, func(a factReader) string { return a.ask("nvmlDeviceGetVbiosVersion", a.gpu.handle.GetVbiosVersion) }},
	{172, factReader.cluster},
	{571, factReader.guid},
	{572, factReader.chassis},
}

// Texts that differ between a GPU and its instances.
const (
	factName           field.ID = 50
	factSerial         field.ID = 53
	factUUID           field.ID = 54
	factVisibleDevices field.ID = 68
)

func (a factReader) ask(symbol string, call func() (string, nvml.Return)) string {
	if !a.lib.has(symbol) {
		return ""
	}
	if text, code := call(); code == nvml.SUCCESS {
		return text
	}
	return ""
}

func infoROM(object nvml.InforomObject) func(factReader) string {
	return func(a factReader) string {
		return a.ask("nvmlDeviceGetInforomVersion", func() (string, nvml.Return) { return a.gpu.handle.GetInforomVersion(object) })
	}
}

// brandNames lists DCGM's names of nvmlBrandType_t, in its order.
var brandNames = [...]string{
	"Unknown", "Quadro", "Tesla", "NVS", "Grid", "GeForce", "Titan", "NVIDIA Virtual Applications", "NVIDIA Virtual PC",
	"NVIDIA Virtual Compute Server", "NVIDIA RTX Virtual Workstation", "NVIDIA vGaming", "Quadro RTX", "NVIDIA RTX",
	"NVIDIA", "GeForce RTX", "Titan RTX",
}

func (a factReader) brand() string {
	return a.ask("nvmlDeviceGetBrand", func() (string, nvml.Return) {
		brand, code := a.gpu.handle.GetBrand()
		if brand < 0 || int(brand) >= len(brandNames) {
			brand = 0
		}
		return brandNames[brand], code
	})
}

// cluster returns the UUID of the NVLink cluster, "" if the GPU is in none (NVML returns zeros).
func (a factReader) cluster() string {
	var id [16]uint8
	code := nvml.ERROR_FUNCTION_NOT_FOUND
	if a.lib.has("nvmlDeviceGetGpuFabricInfoV") {
		var info nvml.GpuFabricInfo_v2
		info, code = a.gpu.handle.GetGpuFabricInfoV().V2()
		id = info.ClusterUuid
	} else if a.lib.has("nvmlDeviceGetGpuFabricInfo") {
		var info nvml.GpuFabricInfo
		info, code = a.gpu.handle.GetGpuFabricInfo()
		id = info.ClusterUuid
	}
	if code != nvml.SUCCESS || id == [16]uint8{} {
		return ""
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func (a factReader) guid() string {
	p, code := platformInfo(a.lib, a.gpu.handle)
	if code != nvml.SUCCESS {
		return ""
	}
	return fmt.Sprintf("0x%016x", binary.NativeEndian.Uint64(p.IbGuid[:]))
}

// chassis returns the chassis' serial number. A chassis without one returns bytes of 0xff.
func (a factReader) chassis() string {
	p, code := platformInfo(a.lib, a.gpu.handle)
	serial, _, _ := bytes.Cut(p.ChassisSerialNumber[:], []byte{0})
	if code != nvml.SUCCESS || bytes.Count(serial, []byte{0xff}) == len(serial) {
		return ""
	}
	return string(serial)
}
