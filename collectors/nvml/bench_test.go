//go:build linux && cgo

package nvml

import (
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/etc"
	"warpgauge/pkg/field"
)

// BenchmarkNode takes rows of 8 GPUs × default CSV from the simulated library, slow and static fields included, and makes
// the same calls through go-nvml alone.
func BenchmarkNode(b *testing.B) {
	n := nvmltest.New(b, nvmltest.Config{Lines: []string{"gpu * gpm.supported 0"}})
	list := listOf(b, string(etc.DefaultCounters()))
	list.Fields = slices.DeleteFunc(list.Fields, func(f field.Field) bool { return f.Desc.ID == field.XIDErrors }) // no call of go-nvml alone
	c := New(at(n))
	sources, err := c.Open(b.Context(), list)
	must(b, err)
	defer c.Close()
	var handles []nvml.Device
	for i := range sources {
		h, _ := nvml.DeviceGetHandleByIndex(i)
		handles = append(handles, h)
	}
	for name, f := range map[string]func(){
		"ours":    func() { sampleAll(b, sources) },
		"go-nvml": func() { oneByOne(handles) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}

// oneByOne makes the calls of a row through go-nvml. The field values are memory temperature, energy, remapped rows,
// NVLink and PCIe traffic.
func oneByOne(handles []nvml.Device) {
	for _, h := range handles {
		h.GetClockInfo(nvml.CLOCK_SM)
		h.GetClockInfo(nvml.CLOCK_MEM)
		h.GetTemperature(nvml.TEMPERATURE_GPU)
		h.GetPowerUsage()
		h.GetPcieReplayCounter()
		h.GetUtilizationRates()
		h.GetEncoderUtilization()
		h.GetDecoderUtilization()
		h.GetMemoryInfo_v2()
		h.GetGridLicensableFeatures()
		h.GetFieldValues([]nvml.FieldValue{
			{FieldId: 82}, {FieldId: 83}, {FieldId: 143}, {FieldId: 142}, {FieldId: 145}, {FieldId: nvlinkDataTX, ScopeId: AllLinks},
			{FieldId: nvlinkDataRX, ScopeId: AllLinks}, {FieldId: 197}, {FieldId: 198},
		})
	}
}
