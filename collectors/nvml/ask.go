//go:build linux && cgo

package nvml

import (
	"math"
	"reflect"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// device is what readings are asked of: a GPU, a MIG device or a vGPU.
type device interface {
	// bind finds how the device is asked for a call: by its newest name that the
	// library has. It makes no call.
	bind(c call) (ask, bool)

	// values asks for fields of nvmlDeviceGetFieldValues. Each value has its
	// answer; the one returned concerns all.
	values(v []nvml.FieldValue) nvml.Return
}

// ask is a call that is bound to a device.
type ask struct {
	name    string
	results int
	// do makes the call and writes its results. A result that NVML marks as not
	// available is NaN. It may hang when the driver does.
	do func(arg [3]uint32, out []float64) nvml.Return
}

// handle is a device of the library.
type handle struct {
	nvml.Device
	lib  *library
	vgpu nvml.VgpuInstance // of a vGPU, which has no Device
}

var _ device = (*handle)(nil)

func (h *handle) bind(c call) (ask, bool) {
	for _, g := range functions[c] {
		if f := askers[g.symbol]; h.lib.has(g.symbol) {
			return ask{g.symbol, g.results, func(arg [3]uint32, out []float64) nvml.Return { return f(h, arg, out) }}, true
		}
	}
	return ask{}, false
}

func (h *handle) values(v []nvml.FieldValue) nvml.Return { return h.GetFieldValues(v) }

// asker makes a call of go-nvml, see ask.
type asker func(h *handle, arg [3]uint32, out []float64) nvml.Return

// askers are those of the table functions, by symbol.
var askers = map[string]asker{
	"nvmlDeviceGetFieldValues": nil, // see device.values
	"nvmlDeviceGetTemperature": byArg(func(d nvml.Device, a uint32) (uint32, nvml.Return) {
		return d.GetTemperature(nvml.TemperatureSensors(a))
	}),
	"nvmlDeviceGetTemperatureThreshold": byArg(func(d nvml.Device, a uint32) (uint32, nvml.Return) {
		return d.GetTemperatureThreshold(nvml.TemperatureThresholds(a))
	}),
	"nvmlDeviceGetMarginTemperature": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		m, code := h.GetMarginTemperature()
		out[0] = float64(m.MarginTemperature)
		return code
	},
	"nvmlDeviceGetPowerUsage":                      one(nvml.Device.GetPowerUsage),
	"nvmlDeviceGetPowerManagementLimit":            one(nvml.Device.GetPowerManagementLimit),
	"nvmlDeviceGetPowerManagementDefaultLimit":     one(nvml.Device.GetPowerManagementDefaultLimit),
	"nvmlDeviceGetPowerManagementLimitConstraints": two(nvml.Device.GetPowerManagementLimitConstraints),
	"nvmlDeviceGetEnforcedPowerLimit":              one(nvml.Device.GetEnforcedPowerLimit),
	"nvmlDeviceGetTotalEnergyConsumption":          long(nvml.Device.GetTotalEnergyConsumption),
	"nvmlDeviceGetClockInfo": byArg(func(d nvml.Device, a uint32) (uint32, nvml.Return) {
		return d.GetClockInfo(nvml.ClockType(a))
	}),
	"nvmlDeviceGetMaxClockInfo": byArg(func(d nvml.Device, a uint32) (uint32, nvml.Return) {
		return d.GetMaxClockInfo(nvml.ClockType(a))
	}),
	"nvmlDeviceGetApplicationsClock": byArg(func(d nvml.Device, a uint32) (uint32, nvml.Return) {
		return d.GetApplicationsClock(nvml.ClockType(a))
	}),
	"nvmlDeviceGetCurrentClocksEventReasons":    long(nvml.Device.GetCurrentClocksEventReasons),
	"nvmlDeviceGetCurrentClocksThrottleReasons": long(nvml.Device.GetCurrentClocksThrottleReasons),
	"nvmlDeviceGetAutoBoostedClocksEnabled":     two(nvml.Device.GetAutoBoostedClocksEnabled),
	"nvmlDeviceGetUtilizationRates": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		u, code := h.GetUtilizationRates()
		out[0], out[1] = known32(u.Gpu), known32(u.Memory)
		return code
	},
	"nvmlDeviceGetEncoderUtilization": two(nvml.Device.GetEncoderUtilization),
	"nvmlDeviceGetDecoderUtilization": two(nvml.Device.GetDecoderUtilization),
	"nvmlDeviceGetJpgUtilization":     two(nvml.Device.GetJpgUtilization),
	"nvmlDeviceGetOfaUtilization":     two(nvml.Device.GetOfaUtilization),

	"nvmlDeviceGetComputeRunningProcesses_v3":  countOf("nvmlDeviceGetComputeRunningProcesses_v3"),
	"nvmlDeviceGetComputeRunningProcesses_v2":  countOf("nvmlDeviceGetComputeRunningProcesses_v2"),
	"nvmlDeviceGetGraphicsRunningProcesses_v3": countOf("nvmlDeviceGetGraphicsRunningProcesses_v3"),
	"nvmlDeviceGetGraphicsRunningProcesses_v2": countOf("nvmlDeviceGetGraphicsRunningProcesses_v2"),
	"nvmlDeviceGetMemoryInfo_v2": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		m, code := h.GetMemoryInfo_v2()
		out[0], out[1], out[2], out[3] = known64(m.Total), known64(m.Free), known64(m.Used), known64(m.Reserved)
		return code
	},
	"nvmlDeviceGetMemoryInfo": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		m, code := h.GetMemoryInfo()
		out[0], out[1], out[2] = known64(m.Total), known64(m.Free), known64(m.Used)
		return code
	},
	"nvmlDeviceGetBAR1MemoryInfo": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		m, code := h.GetBAR1MemoryInfo()
		out[0], out[1], out[2] = known64(m.Bar1Total), known64(m.Bar1Free), known64(m.Bar1Used)
		return code
	},
	"nvmlDeviceGetFanSpeed":          one(nvml.Device.GetFanSpeed),
	"nvmlDeviceGetPerformanceState":  one(nvml.Device.GetPerformanceState),
	"nvmlDeviceGetComputeMode":       one(nvml.Device.GetComputeMode),
	"nvmlDeviceGetPersistenceMode":   one(nvml.Device.GetPersistenceMode),
	"nvmlDeviceGetMigMode":           two(nvml.Device.GetMigMode),
	"nvmlDeviceGetMaxMigDeviceCount": one(nvml.Device.GetMaxMigDeviceCount),
	"nvmlDeviceGetEccMode":           two(nvml.Device.GetEccMode),
	"nvmlDeviceGetMemoryErrorCounter": func(h *handle, a [3]uint32, out []float64) nvml.Return {
		n, code := h.GetMemoryErrorCounter(nvml.MemoryErrorType(a[0]), nvml.EccCounterType(a[1]), nvml.MemoryLocation(a[2]))
		out[0] = known64(n)
		return code
	},
	"nvmlDeviceGetSramEccErrorStatus": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		s, code := h.GetSramEccErrorStatus()
		out[0] = yes(s.BThresholdExceeded != 0)
		return code
	},
	"nvmlDeviceGetRetiredPages": func(h *handle, a [3]uint32, out []float64) nvml.Return {
		pages, code := h.GetRetiredPages(nvml.PageRetirementCause(a[0]))
		out[0] = float64(len(pages))
		return code
	},
	"nvmlDeviceGetRowRemapperHistogram": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		v, code := h.GetRowRemapperHistogram()
		for i, n := range [...]uint32{v.Max, v.High, v.Partial, v.Low, v.None} {
			out[i] = known32(n)
		}
		return code
	},
	"nvmlDeviceGetUnrepairableMemoryFlag_v1": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		s, code := h.GetUnrepairableMemoryFlag_v1()
		out[0] = yes(s.BUnrepairableMemory != 0)
		return code
	},
	"nvmlDeviceGetPcieReplayCounter":      one(nvml.Device.GetPcieReplayCounter),
	"nvmlDeviceGetCurrPcieLinkGeneration": one(nvml.Device.GetCurrPcieLinkGeneration),
	"nvmlDeviceGetCurrPcieLinkWidth":      one(nvml.Device.GetCurrPcieLinkWidth),
	"nvmlDeviceGetMaxPcieLinkGeneration":  one(nvml.Device.GetMaxPcieLinkGeneration),
	"nvmlDeviceGetMaxPcieLinkWidth":       one(nvml.Device.GetMaxPcieLinkWidth),
	"nvmlDeviceGetPcieThroughput": byArg(func(d nvml.Device, a uint32) (uint32, nvml.Return) {
		return d.GetPcieThroughput(nvml.PcieUtilCounter(a))
	}),
	"nvmlDeviceGetPciInfo_v3": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		p, code := h.GetPciInfo()
		out[0], out[1] = float64(p.PciDeviceId), float64(p.PciSubSystemId)
		return code
	},
	"nvmlDeviceGetNvLinkErrorCounter": func(h *handle, a [3]uint32, out []float64) nvml.Return {
		n, code := h.GetNvLinkErrorCounter(int(a[0]), nvml.NvLinkErrorCounter(a[1]))
		out[0] = known64(n)
		return code
	},
	"nvmlDeviceGetGpuFabricInfoV": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		if len(out) == 1 { // the summary, which the third version has
			f, code := h.GetGpuFabricInfoV().V3()
			out[0] = float64(f.HealthSummary)
			return code
		}
		f, code := h.GetGpuFabricInfoV().V2()
		out[0], out[1], out[2], out[3] = float64(f.State), float64(f.Status), float64(f.CliqueId), float64(f.HealthMask)
		return code
	},
	"nvmlDeviceGetGpuFabricInfo": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		f, code := h.GetGpuFabricInfo()
		out[0], out[1], out[2] = float64(f.State), float64(f.Status), float64(f.CliqueId)
		return code
	},
	"nvmlDeviceGetPlatformInfo": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		p, code := h.lib.platformInfo(h.Device)
		for i, n := range [...]uint8{p.SlotNumber, p.TrayIndex, p.HostId, p.PeerType, p.ModuleId} {
			out[i] = float64(n)
		}
		return code
	},
	"nvmlDeviceGetGridLicensableFeatures_v4": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		l, code := h.GetGridLicensableFeatures()
		out[0] = 0
		for i, f := range l.GridLicensableFeatures {
			if l.IsGridLicenseSupported != 0 && uint32(i) < l.LicensableFeaturesCount && f.FeatureCode == uint32(nvml.GRID_LICENSE_FEATURE_CODE_VGPU) {
				out[0] = yes(f.FeatureState != 0)
			}
		}
		return code
	},
	"nvmlDeviceGetVirtualizationMode":    one(nvml.Device.GetVirtualizationMode),
	"nvmlDeviceGetIndex":                 one(nvml.Device.GetIndex),
	"nvmlDeviceGetMinorNumber":           one(nvml.Device.GetMinorNumber),
	"nvmlDeviceGetCudaComputeCapability": two(nvml.Device.GetCudaComputeCapability),
	"nvmlDeviceGetCpuAffinity": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		words, code := h.GetCpuAffinity(affinityBytes)
		return masks(out, words, code)
	},
	"nvmlDeviceGetMemoryAffinity": func(h *handle, a [3]uint32, out []float64) nvml.Return {
		words, code := h.GetMemoryAffinity(affinityBytes, nvml.AffinityScope(a[0]))
		return masks(out, words, code)
	},
	"nvmlDeviceGetInforomConfigurationChecksum": one(nvml.Device.GetInforomConfigurationChecksum),
	"nvmlDeviceValidateInforom": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		code := h.ValidateInforom()
		out[0] = yes(code == nvml.SUCCESS)
		if code == nvml.ERROR_CORRUPTED_INFOROM {
			return nvml.SUCCESS
		}
		return code
	},
	"nvmlGpmQueryDeviceSupport": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		s, code := h.GpmQueryDeviceSupport()
		out[0] = yes(s.IsSupportedDevice != 0)
		return code
	},
	"nvmlSystemGetConfComputeState": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		s, code := h.lib.api.SystemGetConfComputeState()
		out[0] = float64(s.CcFeature)
		return code
	},
	"nvmlDeviceGetCount_v2": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		n, code := h.lib.api.DeviceGetCount()
		out[0] = float64(n)
		return code
	},
	"nvmlSystemGetCudaDriverVersion_v2": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		n, code := h.lib.api.SystemGetCudaDriverVersion_v2()
		out[0] = float64(n)
		return code
	},

	"nvmlVgpuInstanceGetFbUsage": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		n, code := h.vgpu.GetFbUsage()
		out[0] = known64(n)
		return code
	},
	"nvmlVgpuInstanceGetType": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		// Its type is an interface over an unexported number.
		t, code := h.vgpu.GetType()
		out[0] = number(t)
		return code
	},
	"nvmlVgpuInstanceGetFrameRateLimit": ofVGPU(nvml.VgpuInstance.GetFrameRateLimit),
	"nvmlVgpuInstanceGetGpuInstanceId":  ofVGPU(nvml.VgpuInstance.GetGpuInstanceId),
	"nvmlVgpuInstanceGetLicenseInfo_v2": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		l, code := h.vgpu.GetLicenseInfo()
		out[0] = yes(l.IsLicensed != 0)
		return code
	},
	"nvmlVgpuInstanceGetLicenseStatus": ofVGPU(nvml.VgpuInstance.GetLicenseStatus),
	"nvmlDeviceGetActiveVgpus": func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		all, code := h.GetActiveVgpus()
		out[0] = float64(len(all))
		return code
	},
}

// affinityBytes makes go-nvml ask for four words of a mask: it takes bytes for bits.
const affinityBytes = 4 * 8

// uint32s are the types in which go-nvml returns 32 bits.
type uint32s interface{ ~int | ~int32 | ~uint32 }

// known32 is a number, NaN for NVML_VALUE_NOT_AVAILABLE.
func known32[T uint32s](v T) float64 {
	if uint32(v) == math.MaxUint32 {
		return math.NaN()
	}
	return float64(uint32(v))
}

// known64 is known32 for 64 bits. A float64 is exact up to 2^53, which no counter of
// NVML reaches within years, but those of bytes over PCIe or NVLink at 1 TB/s in 2.5 hours: they
// are used for differences, whose error stays below 2^(64-53) bytes.
func known64(v uint64) float64 {
	if v == math.MaxUint64 {
		return math.NaN()
	}
	return float64(v)
}

// number is what an interface of go-nvml over an unexported number holds.
func number(v any) float64 {
	if n := reflect.ValueOf(v); n.CanUint() {
		return float64(n.Uint())
	}
	return math.NaN()
}

func yes(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// one asks for a number of 32 bits.
func one[T uint32s](f func(nvml.Device) (T, nvml.Return)) asker {
	return func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		v, code := f(h.Device)
		out[0] = known32(v)
		return code
	}
}

// two asks for two numbers of 32 bits.
func two[T uint32s](f func(nvml.Device) (T, T, nvml.Return)) asker {
	return func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		v, w, code := f(h.Device)
		out[0], out[1] = known32(v), known32(w)
		return code
	}
}

// long asks for a number of 64 bits.
func long(f func(nvml.Device) (uint64, nvml.Return)) asker {
	return func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		v, code := f(h.Device)
		out[0] = known64(v)
		return code
	}
}

// byArg asks for a number of 32 bits that the first argument chooses.
func byArg(f func(nvml.Device, uint32) (uint32, nvml.Return)) asker {
	return func(h *handle, arg [3]uint32, out []float64) nvml.Return {
		v, code := f(h.Device, arg[0])
		out[0] = known32(v)
		return code
	}
}

func ofVGPU[T uint32s](f func(nvml.VgpuInstance) (T, nvml.Return)) asker {
	return func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		v, code := f(h.vgpu)
		out[0] = known32(v)
		return code
	}
}

// countOf counts a list of processes. Without room for them NVML says how many there
// are, in newer drivers with success, in older ones with the error that they do not fit.
func countOf(symbol string) asker {
	return func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		f, err := h.lib.dl.Lookup(symbol)
		if err != nil {
			return nvml.ERROR_FUNCTION_NOT_FOUND
		}
		n, code := listProcesses(f, h.Device, nil, 0)
		out[0] = known32(n)
		if code == nvml.ERROR_INSUFFICIENT_SIZE {
			return nvml.SUCCESS
		}
		return code
	}
}

// masks stores the words of a bit mask as DCGM does, as signed numbers, if a float64
// can hold them exactly: a mask with other bits is worse than none.
func masks(out []float64, words []uint, code nvml.Return) nvml.Return {
	for i := range out {
		out[i] = math.NaN()
		if i >= len(words) {
			continue
		}
		n := int64(words[i])
		if v := float64(n); v < 1<<63 && int64(v) == n {
			out[i] = v
		}
	}
	return code
}
