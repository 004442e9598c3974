//go:build linux && cgo

package nvml

import (
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/etc"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

// BenchmarkNode samples 8 GPUs of the simulated library with the default CSV, slow and static fields included, and
// compares that with the same calls made directly through go-nvml.
func BenchmarkNode(b *testing.B) {
	n := nvmltest.New(b, nvmltest.Config{Lines: []string{"gpu * gpm.supported 0"}})
	list := listOf(b, string(etc.DefaultCounters()))
	list.Fields = slices.DeleteFunc(list.Fields, func(f field.Field) bool { return f.Desc.ID == field.XIDErrors }) // go-nvml alone has no such call
	c := New(at(n))
	sources := testkit.Get(c.Open(b.Context(), list))(b)
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

// oneByOne makes one row's calls through go-nvml. The field values are memory temperature, energy, remapped rows,
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
