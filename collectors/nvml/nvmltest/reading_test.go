//go:build linux && cgo

package nvmltest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/nvml/nvmltest"
)

// same fails unless both are equal.
func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// ok unwraps an answer that must be a success.
func ok[T any](t *testing.T, what string) func(T, nvml.Return) T {
	return func(v T, ret nvml.Return) T {
		t.Helper()
		if ret != nvml.SUCCESS {
			t.Errorf("%s: %v", what, ret)
		}
		return v
	}
}

func TestIdentity(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{Driver: "580.65.06"})
	api := open(t, n)
	same(t, "driver", ok[string](t, "driver")(api.SystemGetDriverVersion()), "580.65.06")
	same(t, "NVML", ok[string](t, "NVML")(api.SystemGetNVMLVersion()), "13.580.65.06")
	same(t, "CUDA", ok[int](t, "CUDA")(api.SystemGetCudaDriverVersion_v2()), 13000)
	d := device(t, api, 3)
	same(t, "name", ok[string](t, "name")(d.GetName()), "NVIDIA H100 80GB HBM3")
	same(t, "serial", ok[string](t, "serial")(d.GetSerial()), nvmltest.Serial(3))
	same(t, "minor", ok[int](t, "minor")(d.GetMinorNumber()), 3)
	same(t, "index", ok[int](t, "index")(d.GetIndex()), 3)
	same(t, "architecture", ok[nvml.DeviceArchitecture](t, "arch")(d.GetArchitecture()), nvml.DEVICE_ARCH_HOPPER)
	pci := ok[nvml.PciInfo](t, "PCI")(d.GetPciInfo())
	same(t, "bus id", cString(pci.BusId[:]), "00000000:20:00.0")
	same(t, "legacy bus id", cString(pci.BusIdLegacy[:]), "0000:20:00.0")
	if _, ret := api.DeviceGetHandleByIndex(8); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("handle by an index past the end: %v", ret)
	}
}

func cString[T int8 | uint8](b []T) string {
	var s strings.Builder
	for _, c := range b {
		if c == 0 {
			break
		}
		s.WriteByte(byte(c))
	}
	return s.String()
}

func TestReadingsFollowLoad(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	api := open(t, n)
	n.Freeze(100)
	n.SetLoad(1, nvmltest.Steady(0.5))
	d := device(t, api, 1)
	same(t, "utilisation", ok[nvml.Utilization](t, "utilisation")(d.GetUtilizationRates()), nvml.Utilization{Gpu: 50, Memory: 31})
	same(t, "power", ok[uint32](t, "power")(d.GetPowerUsage()), 70000+310000)
	same(t, "SM clock", ok[uint32](t, "clock")(d.GetClockInfo(nvml.CLOCK_SM)), 1980-45)
	before := ok[uint64](t, "energy")(d.GetTotalEnergyConsumption())
	n.Advance(10 * time.Second)
	// 10 s at 380 W, in mJ.
	same(t, "energy", ok[uint64](t, "energy")(d.GetTotalEnergyConsumption())-before, 3_800_000)
	n.SetLoad(1, nvmltest.Square(0, 1, 4*time.Second, 0.25))
	before = ok[uint64](t, "energy")(d.GetTotalEnergyConsumption())
	n.Advance(8 * time.Second)
	same(t, "energy of a square load", ok[uint64](t, "energy")(d.GetTotalEnergyConsumption())-before, 8*70_000+2*620_000)

	m := ok[nvml.Memory](t, "memory")(d.GetMemoryInfo())
	v2 := ok[nvml.Memory_v2](t, "memory v2")(d.GetMemoryInfo_v2())
	same(t, "total", m.Total, v2.Total)
	same(t, "used counts the reserved part in v1", m.Used, v2.Used+v2.Reserved)
	same(t, "sum of v2", v2.Used+v2.Free+v2.Reserved, v2.Total)
}

func TestSet(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	api := open(t, n)
	d := device(t, api, 0)
	n.SetNumber(0, "util.gpu", 808_000_000)
	same(t, "garbage", ok[nvml.Utilization](t, "utilisation")(d.GetUtilizationRates()).Gpu, 808_000_000)
	n.Set(0, "temperature", "!NO_DATA")
	if _, ret := d.GetTemperature(nvml.TEMPERATURE_GPU); ret != nvml.ERROR_NO_DATA {
		t.Errorf("temperature: %v, want %v", ret, nvml.ERROR_NO_DATA)
	}
	n.Set(nvmltest.Host, "power", "none")
	if _, ret := device(t, api, 1).GetPowerUsage(); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("power: %v, want %v", ret, nvml.ERROR_NOT_SUPPORTED)
	}
	n.Unset(nvmltest.Host, "power")
	if _, ret := d.GetPowerUsage(); ret != nvml.SUCCESS {
		t.Errorf("power: %v after Unset", ret)
	}
	n.Set(0, "name", "A Board")
	same(t, "name", ok[string](t, "name")(d.GetName()), "A Board")
}

func TestFieldValues(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{Driver: "580", GPUs: 1})
	api := open(t, n)
	n.Freeze(50)
	n.SetLoad(0, nvmltest.Steady(0))
	n.SetNumber(0, "nvlink.tx[4]", 1234)
	n.Set(0, "field[31]", "!NO_PERMISSION")
	n.SetNumber(0, "field[94]", 0xFFFFFFFF)
	n.Set(0, "ecc[2]", "7")
	all := ^uint32(0)
	links := make([]nvml.FieldValue, 18)
	for i := range links {
		links[i] = nvml.FieldValue{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: uint32(i)}
	}
	d := device(t, api, 0)
	if ret := d.GetFieldValues(links); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	var sum uint64
	for _, l := range links {
		sum += number(t, l)
	}
	values := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: 4},
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: all},
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: 18},
		{FieldId: nvml.FI_DEV_MEMORY_TEMP},
		{FieldId: nvml.FI_DEV_POWER_INSTANT},
		{FieldId: nvml.FI_DEV_ECC_DBE_VOL_TOTAL},
		{FieldId: 31},
		{FieldId: 94},
		{FieldId: nvml.FI_DEV_C2C_LINK_COUNT},
		{FieldId: 300},
	}
	if ret := d.GetFieldValues(values); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	same(t, "link 4", number(t, values[0]), 1234)
	same(t, "all links", number(t, values[1]), sum)
	same(t, "memory temperature", number(t, values[3]), 38)
	same(t, "instant power", number(t, values[4]), 70400)
	same(t, "uncorrected ECC errors", number(t, values[5]), 7)
	same(t, "a sentinel", number(t, values[7]), 0xFFFFFFFF)
	for i, want := range map[int]nvml.Return{2: nvml.ERROR_INVALID_ARGUMENT, 6: nvml.ERROR_NO_PERMISSION, 8: nvml.ERROR_NOT_SUPPORTED, 9: nvml.ERROR_INVALID_ARGUMENT} {
		if got := nvml.Return(values[i].NvmlReturn); got != want {
			t.Errorf("field %d: %v, want %v", values[i].FieldId, got, want)
		}
	}
}

// number is a field value of an unsigned type.
func number(t *testing.T, v nvml.FieldValue) uint64 {
	t.Helper()
	if ret := nvml.Return(v.NvmlReturn); ret != nvml.SUCCESS {
		t.Errorf("field %d, scope %d: %v", v.FieldId, v.ScopeId, ret)
	}
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
	default:
		t.Errorf("field %d is of type %d", v.FieldId, v.ValueType)
	}
	var out uint64
	for i := len(v.Value) - 1; i >= 0; i-- {
		out = out<<8 | uint64(v.Value[i])
	}
	return out
}

func TestProcesses(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{Preset: "a100-mig"})
	in := n.Instances(0)[1]
	n.Line("process 0 pid=4242 type=C memory=1000000 gi=%d ci=%d", in.GI, in.CI)
	n.Line("process 3 pid=77 type=C memory=none sm=100*load")
	n.Line("process 3 pid=78 type=G memory=5 sm=1")
	n.Line("load 3 0 0.5")
	api := open(t, n)
	got := ok[[]nvml.ProcessInfo](t, "processes")(device(t, api, 0).GetComputeRunningProcesses())
	same(t, "of a GPU with instances", got, []nvml.ProcessInfo{{Pid: 4242, UsedGpuMemory: 1000000, GpuInstanceId: uint32(in.GI), ComputeInstanceId: uint32(in.CI)}})
	for i := range 2 {
		m := ok[nvml.Device](t, "instance")(device(t, api, 0).GetMigDeviceHandleByIndex(i))
		got := ok[[]nvml.ProcessInfo](t, "processes")(m.GetComputeRunningProcesses())
		same(t, "count of an instance", len(got), i)
	}
	none := ^uint32(0)
	got = ok[[]nvml.ProcessInfo](t, "processes")(device(t, api, 3).GetComputeRunningProcesses())
	same(t, "without memory", got, []nvml.ProcessInfo{{Pid: 77, UsedGpuMemory: ^uint64(0), GpuInstanceId: none, ComputeInstanceId: none}})
	use := ok[[]nvml.ProcessUtilizationSample](t, "utilisation")(device(t, api, 3).GetProcessUtilization(0))
	if len(use) != 2 || use[0].SmUtil != 50 || use[1].SmUtil != 1 {
		t.Errorf("utilisation of processes: %+v", use)
	}
}
