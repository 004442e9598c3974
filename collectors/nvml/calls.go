//go:build linux && cgo

package nvml

import (
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// call is an NVML function that the collector calls on each tick. It lists the function's names, newest first; the
// collector uses the first name that the library defines.
type call []generation

// generation is one of a function's names.
type generation struct {
	symbol  string
	results int // number of results
	args    int // number of arguments that select the reading
	ask     asker
}

// name returns the call's newest name.
func (c *call) name() string { return (*c)[0].symbol }

// device answers readings: a GPU or a MIG device.
type device interface {
	// bind returns how to make a call on this device, by the newest name that the library has. It calls nothing.
	bind(c *call) (ask, bool)

	// field returns the number of a field in the device's driver, see fieldOf.
	field(id uint32) (uint32, bool)

	// GetFieldValues reads fields. Each entry has its own code; the returned code concerns the whole call.
	GetFieldValues(v []nvml.FieldValue) nvml.Return
}

// ask is a call bound to a device.
type ask struct {
	name    string
	results int
	// do makes the call and writes its results, NaN for a result that NVML marks as not available. It may hang when the
	// driver does.
	do func(arg [3]uint32, out []float64) nvml.Return
}

// handle is a device of the library.
type handle struct {
	nvml.Device
	lib *library
}

func (h *handle) bind(c *call) (ask, bool) {
	for _, g := range *c {
		if h.lib.has(g.symbol) {
			return ask{g.symbol, g.results, func(arg [3]uint32, out []float64) nvml.Return { return g.ask(h, arg, out) }}, true
		}
	}
	return ask{}, false
}

func (h *handle) field(id uint32) (uint32, bool) {
	return fieldOf(branchOf(h.lib.versions().driver), id)
}

// asker makes a call through go-nvml, see ask.do.
type asker func(h *handle, arg [3]uint32, out []float64) nvml.Return

// The calls.
var (
	getFieldValues          = &call{{"nvmlDeviceGetFieldValues", 1, 0, nil}} // arguments are field and scope; see device.GetFieldValues
	getTemperature          = &call{{"nvmlDeviceGetTemperature", 1, 1, byArg(nvml.Device.GetTemperature)}}
	getTemperatureThreshold = &call{{"nvmlDeviceGetTemperatureThreshold", 1, 1, byArg(nvml.Device.GetTemperatureThreshold)}}
	getMarginTemperature    = &call{{"nvmlDeviceGetMarginTemperature", 1, 0, into(nvml.Device.GetMarginTemperature, func(m nvml.MarginTemperature, out []float64) {
		out[0] = float64(m.MarginTemperature)
	})}}
	getPowerUsage         = &call{{"nvmlDeviceGetPowerUsage", 1, 0, one(nvml.Device.GetPowerUsage)}}
	getPowerLimit         = &call{{"nvmlDeviceGetPowerManagementLimit", 1, 0, one(nvml.Device.GetPowerManagementLimit)}}
	getPowerDefaultLimit  = &call{{"nvmlDeviceGetPowerManagementDefaultLimit", 1, 0, one(nvml.Device.GetPowerManagementDefaultLimit)}}
	getPowerLimitRange    = &call{{"nvmlDeviceGetPowerManagementLimitConstraints", 2, 0, two(nvml.Device.GetPowerManagementLimitConstraints)}}
	getEnforcedPowerLimit = &call{{"nvmlDeviceGetEnforcedPowerLimit", 1, 0, one(nvml.Device.GetEnforcedPowerLimit)}}
	getTotalEnergy        = &call{{"nvmlDeviceGetTotalEnergyConsumption", 1, 0, long(nvml.Device.GetTotalEnergyConsumption)}}
	getClockInfo          = &call{{"nvmlDeviceGetClockInfo", 1, 1, byArg(nvml.Device.GetClockInfo)}}
	getMaxClockInfo       = &call{{"nvmlDeviceGetMaxClockInfo", 1, 1, byArg(nvml.Device.GetMaxClockInfo)}}
	getApplicationsClock  = &call{{"nvmlDeviceGetApplicationsClock", 1, 1, byArg(nvml.Device.GetApplicationsClock)}}
	getClockEventReasons  = &call{
		{"nvmlDeviceGetCurrentClocksEventReasons", 1, 0, long(nvml.Device.GetCurrentClocksEventReasons)},
		{"nvmlDeviceGetCurrentClocksThrottleReasons", 1, 0, long(nvml.Device.GetCurrentClocksThrottleReasons)},
	}
	getAutoBoost   = &call{{"nvmlDeviceGetAutoBoostedClocksEnabled", 2, 0, two(nvml.Device.GetAutoBoostedClocksEnabled)}}
	getUtilization = &call{{"nvmlDeviceGetUtilizationRates", 2, 0, into(nvml.Device.GetUtilizationRates, func(u nvml.Utilization, out []float64) {
		out[0], out[1] = known32(u.Gpu), known32(u.Memory)
	})}}
	getEncoderUtilization = &call{{"nvmlDeviceGetEncoderUtilization", 2, 0, two(nvml.Device.GetEncoderUtilization)}}
	getDecoderUtilization = &call{{"nvmlDeviceGetDecoderUtilization", 2, 0, two(nvml.Device.GetDecoderUtilization)}}
	getJPGUtilization     = &call{{"nvmlDeviceGetJpgUtilization", 2, 0, two(nvml.Device.GetJpgUtilization)}}
	getOFAUtilization     = &call{{"nvmlDeviceGetOfaUtilization", 2, 0, two(nvml.Device.GetOfaUtilization)}}
	getComputeProcesses   = &call{
		{"nvmlDeviceGetComputeRunningProcesses_v3", 1, 0, countOf("nvmlDeviceGetComputeRunningProcesses_v3")},
		{"nvmlDeviceGetComputeRunningProcesses_v2", 1, 0, countOf("nvmlDeviceGetComputeRunningProcesses_v2")},
	}
	getGraphicsProcesses = &call{
		{"nvmlDeviceGetGraphicsRunningProcesses_v3", 1, 0, countOf("nvmlDeviceGetGraphicsRunningProcesses_v3")},
		{"nvmlDeviceGetGraphicsRunningProcesses_v2", 1, 0, countOf("nvmlDeviceGetGraphicsRunningProcesses_v2")},
	}
	getMemoryInfo = &call{
		{"nvmlDeviceGetMemoryInfo_v2", 4, 0, into(nvml.Device.GetMemoryInfo_v2, func(m nvml.Memory_v2, out []float64) {
			out[0], out[1], out[2], out[3] = known64(m.Total), known64(m.Free), known64(m.Used), known64(m.Reserved)
		})},
		{"nvmlDeviceGetMemoryInfo", 3, 0, into(nvml.Device.GetMemoryInfo, func(m nvml.Memory, out []float64) {
			out[0], out[1], out[2] = known64(m.Total), known64(m.Free), known64(m.Used)
		})},
	}
	getBAR1Info = &call{{"nvmlDeviceGetBAR1MemoryInfo", 3, 0, into(nvml.Device.GetBAR1MemoryInfo, func(m nvml.BAR1Memory, out []float64) {
		out[0], out[1], out[2] = known64(m.Bar1Total), known64(m.Bar1Free), known64(m.Bar1Used)
	})}}
	getFanSpeed        = &call{{"nvmlDeviceGetFanSpeed", 1, 0, one(nvml.Device.GetFanSpeed)}}
	getPState          = &call{{"nvmlDeviceGetPerformanceState", 1, 0, one(nvml.Device.GetPerformanceState)}}
	getComputeMode     = &call{{"nvmlDeviceGetComputeMode", 1, 0, one(nvml.Device.GetComputeMode)}}
	getPersistenceMode = &call{{"nvmlDeviceGetPersistenceMode", 1, 0, one(nvml.Device.GetPersistenceMode)}}
	getMIGMode         = &call{{"nvmlDeviceGetMigMode", 2, 0, two(nvml.Device.GetMigMode)}}
	getMaxMIGDevices   = &call{{"nvmlDeviceGetMaxMigDeviceCount", 1, 0, one(nvml.Device.GetMaxMigDeviceCount)}}
	getECCMode         = &call{{"nvmlDeviceGetEccMode", 2, 0, two(nvml.Device.GetEccMode)}}
	getECCCount        = &call{{"nvmlDeviceGetMemoryErrorCounter", 1, 3, from(func(h *handle, a [3]uint32) (uint64, nvml.Return) {
		return h.GetMemoryErrorCounter(nvml.MemoryErrorType(a[0]), nvml.EccCounterType(a[1]), nvml.MemoryLocation(a[2]))
	}, known64)}}
	getSRAMErrors = &call{{"nvmlDeviceGetSramEccErrorStatus", 1, 0, into(nvml.Device.GetSramEccErrorStatus, func(s nvml.EccSramErrorStatus, out []float64) {
		out[0] = boolValue(s.BThresholdExceeded != 0)
	})}}
	getRetiredPages = &call{{"nvmlDeviceGetRetiredPages", 1, 1, from(func(h *handle, a [3]uint32) (int, nvml.Return) { return countRetiredPages(h.lib, h.Device, a[0]) }, known32)}}
	getRowHistogram = &call{{"nvmlDeviceGetRowRemapperHistogram", 5, 0, into(nvml.Device.GetRowRemapperHistogram, func(v nvml.RowRemapperHistogramValues, out []float64) {
		for i, n := range [...]uint32{v.Max, v.High, v.Partial, v.Low, v.None} {
			out[i] = known32(n)
		}
	})}}
	getUnrepairableMemory = &call{{"nvmlDeviceGetUnrepairableMemoryFlag_v1", 1, 0, from(func(h *handle, _ [3]uint32) (bool, nvml.Return) { return unrepairableMemory(h.lib, h.Device) }, boolValue)}}
	getPCIeReplay         = &call{{"nvmlDeviceGetPcieReplayCounter", 1, 0, one(nvml.Device.GetPcieReplayCounter)}}
	getPCIeGen            = &call{{"nvmlDeviceGetCurrPcieLinkGeneration", 1, 0, one(nvml.Device.GetCurrPcieLinkGeneration)}}
	getPCIeWidth          = &call{{"nvmlDeviceGetCurrPcieLinkWidth", 1, 0, one(nvml.Device.GetCurrPcieLinkWidth)}}
	getPCIeMaxGen         = &call{{"nvmlDeviceGetMaxPcieLinkGeneration", 1, 0, one(nvml.Device.GetMaxPcieLinkGeneration)}}
	getPCIeMaxWidth       = &call{{"nvmlDeviceGetMaxPcieLinkWidth", 1, 0, one(nvml.Device.GetMaxPcieLinkWidth)}}
	getPCIInfo            = &call{{"nvmlDeviceGetPciInfo_v3", 2, 0, into(nvml.Device.GetPciInfo, func(p nvml.PciInfo, out []float64) {
		out[0], out[1] = float64(p.PciDeviceId), float64(p.PciSubSystemId)
	})}}
	getNVLinkErrors = &call{{"nvmlDeviceGetNvLinkErrorCounter", 1, 2, from(func(h *handle, a [3]uint32) (uint64, nvml.Return) {
		return h.GetNvLinkErrorCounter(int(a[0]), nvml.NvLinkErrorCounter(a[1]))
	}, known64)}}
	getFabricInfo = &call{
		{"nvmlDeviceGetGpuFabricInfoV", 4, 0, func(h *handle, _ [3]uint32, out []float64) nvml.Return {
			f, code := h.GetGpuFabricInfoV().V2()
			out[0], out[1], out[2], out[3] = float64(f.State), float64(f.Status), float64(f.CliqueId), float64(f.HealthMask)
			return code
		}},
		{"nvmlDeviceGetGpuFabricInfo", 3, 0, into(nvml.Device.GetGpuFabricInfo, func(f nvml.GpuFabricInfo, out []float64) {
			out[0], out[1], out[2] = float64(f.State), float64(f.Status), float64(f.CliqueId)
		})},
	}
	// third version of the struct
	getFabricSummary = &call{{"nvmlDeviceGetGpuFabricInfoV", 1, 0, from(func(h *handle, _ [3]uint32) (nvml.GpuFabricInfo_v3, nvml.Return) {
		return h.GetGpuFabricInfoV().V3()
	}, func(f nvml.GpuFabricInfo_v3) float64 { return float64(f.HealthSummary) })}}
	getPlatformInfo = &call{{"nvmlDeviceGetPlatformInfo", 5, 0, func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		p, code := platformInfo(h.lib, h.Device)
		for i, n := range [...]uint8{p.SlotNumber, p.TrayIndex, p.HostId, p.PeerType, p.ModuleId} {
			if out[i] = float64(n); n == math.MaxUint8 {
				out[i] = math.NaN()
			}
		}
		return code
	}}}
	getGridLicence = &call{{"nvmlDeviceGetGridLicensableFeatures_v4", 1, 0, into(nvml.Device.GetGridLicensableFeatures, func(l nvml.GridLicensableFeatures, out []float64) {
		out[0] = 0
		for i, f := range l.GridLicensableFeatures {
			if l.IsGridLicenseSupported != 0 && uint32(i) < l.LicensableFeaturesCount && f.FeatureCode == uint32(nvml.GRID_LICENSE_FEATURE_CODE_VGPU) {
				out[0] = boolValue(f.FeatureState != 0)
			}
		}
	})}}
	getVirtualizationMode = &call{{"nvmlDeviceGetVirtualizationMode", 1, 0, one(nvml.Device.GetVirtualizationMode)}}
	getIndex              = &call{{"nvmlDeviceGetIndex", 1, 0, one(nvml.Device.GetIndex)}}
	getMinorNumber        = &call{{"nvmlDeviceGetMinorNumber", 1, 0, one(nvml.Device.GetMinorNumber)}}
	getComputeCapability  = &call{{"nvmlDeviceGetCudaComputeCapability", 2, 0, two(nvml.Device.GetCudaComputeCapability)}}
	getCPUAffinity        = &call{{"nvmlDeviceGetCpuAffinity", 4, 0, func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		words, code := h.GetCpuAffinity(affinityBytes)
		return masks(out, words, code)
	}}}
	getMemoryAffinity = &call{{"nvmlDeviceGetMemoryAffinity", 4, 0, func(h *handle, a [3]uint32, out []float64) nvml.Return {
		words, code := h.GetMemoryAffinity(affinityBytes, nvml.AffinityScope(a[0]))
		return masks(out, words, code)
	}}}
	getInforomChecksum = &call{{"nvmlDeviceGetInforomConfigurationChecksum", 1, 0, one(nvml.Device.GetInforomConfigurationChecksum)}}
	getInforomValid    = &call{{"nvmlDeviceValidateInforom", 1, 0, func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		code := h.ValidateInforom()
		out[0] = boolValue(code == nvml.SUCCESS)
		if code == nvml.ERROR_CORRUPTED_INFOROM {
			return nvml.SUCCESS
		}
		return code
	}}}
	getGPMSupport = &call{{"nvmlGpmQueryDeviceSupport", 1, 0, into(nvml.Device.GpmQueryDeviceSupport, func(s nvml.GpmSupport, out []float64) {
		out[0] = boolValue(s.IsSupportedDevice != 0)
	})}}
	// asked on the GPU, but it is a property of the system
	getCCState = &call{{"nvmlSystemGetConfComputeState", 1, 0, from(func(h *handle, _ [3]uint32) (nvml.ConfComputeSystemState, nvml.Return) {
		return h.lib.api.SystemGetConfComputeState()
	}, func(s nvml.ConfComputeSystemState) float64 { return float64(s.CcFeature) })}}
	getDeviceCount = &call{{"nvmlDeviceGetCount_v2", 1, 0, from(func(h *handle, _ [3]uint32) (int, nvml.Return) { return h.lib.api.DeviceGetCount() }, known32)}}
	getCUDAVersion = &call{{"nvmlSystemGetCudaDriverVersion_v2", 1, 0, from(func(h *handle, _ [3]uint32) (int, nvml.Return) { return h.lib.api.SystemGetCudaDriverVersion_v2() }, known32)}}
)

// affinityBytes makes go-nvml read four words of a mask: go-nvml takes the number of CPUs for bytes.
const affinityBytes = 4 * 8

// uint32s lists the types in which go-nvml returns 32 bits.
type uint32s interface{ ~int | ~int32 | ~uint32 }

// known32 converts a number; NVML_VALUE_NOT_AVAILABLE becomes NaN.
func known32[T uint32s](v T) float64 {
	if uint32(v) == math.MaxUint32 {
		return math.NaN()
	}
	return float64(uint32(v))
}

// known64 is known32 for 64 bits. A float64 is exact up to 2^53. Only byte counters of PCIe or NVLink exceed that
// within years (in 2.5 hours at 1 TB/s); they are used for differences, with an error below 2^(64-53) bytes.
func known64(v uint64) float64 {
	if v == math.MaxUint64 {
		return math.NaN()
	}
	return float64(v)
}

func boolValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// into returns an asker that calls f and converts the answer with write.
func into[T any](f func(nvml.Device) (T, nvml.Return), write func(v T, out []float64)) asker {
	return func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		v, code := f(h.Device)
		write(v, out)
		return code
	}
}

// from returns an asker that calls f, which may use the library, and converts the answer with value.
func from[T any](f func(h *handle, arg [3]uint32) (T, nvml.Return), value func(T) float64) asker {
	return func(h *handle, arg [3]uint32, out []float64) nvml.Return {
		v, code := f(h, arg)
		out[0] = value(v)
		return code
	}
}

// one reads one 32-bit number.
func one[T uint32s](f func(nvml.Device) (T, nvml.Return)) asker {
	return into(f, func(v T, out []float64) { out[0] = known32(v) })
}

// long reads one 64-bit number.
func long(f func(nvml.Device) (uint64, nvml.Return)) asker {
	return into(f, func(v uint64, out []float64) { out[0] = known64(v) })
}

// two reads two 32-bit numbers.
func two[T uint32s](f func(nvml.Device) (T, T, nvml.Return)) asker {
	return func(h *handle, _ [3]uint32, out []float64) nvml.Return {
		v, w, code := f(h.Device)
		out[0], out[1] = known32(v), known32(w)
		return code
	}
}

// byArg reads a 32-bit number that the first argument selects.
func byArg[A uint32s](f func(nvml.Device, A) (uint32, nvml.Return)) asker {
	return func(h *handle, arg [3]uint32, out []float64) nvml.Return {
		v, code := f(h.Device, A(arg[0]))
		out[0] = known32(v)
		return code
	}
}

// countOf counts the entries of a process list. Called without a buffer, newer drivers return the count with SUCCESS,
// older ones with INSUFFICIENT_SIZE.
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

// masks stores the words of a bit mask as DCGM does, as signed numbers. A word that float64 cannot hold exactly is
// blank, because a wrong mask is worse than none. An empty mask is blank, too: on machines with one memory node, and in
// guests that do not know their node, drivers report no bit at all.
func masks(out []float64, words []uint, code nvml.Return) nvml.Return {
	some := slices.ContainsFunc(words, func(w uint) bool { return w != 0 })
	for i := range out {
		out[i] = math.NaN()
		if i >= len(words) || !some {
			continue
		}
		n := int64(words[i])
		if v := float64(n); v < 1<<63 && int64(v) == n {
			out[i] = v
		}
	}
	return code
}

// The calls about processes: three lists, and each process's utilization.
const (
	listCompute = iota
	listGraphics
	listMPS
	numLists
	askBusy = numLists
	numAsks = askBusy + 1
)

// processCalls holds the names of each call, newest first.
var processCalls = [numAsks]call{
	listCompute:  {{symbol: "nvmlDeviceGetComputeRunningProcesses_v3"}, {symbol: "nvmlDeviceGetComputeRunningProcesses_v2"}},
	listGraphics: {{symbol: "nvmlDeviceGetGraphicsRunningProcesses_v3"}, {symbol: "nvmlDeviceGetGraphicsRunningProcesses_v2"}},
	listMPS:      {{symbol: "nvmlDeviceGetMPSComputeRunningProcesses_v3"}, {symbol: "nvmlDeviceGetMPSComputeRunningProcesses_v2"}},
	askBusy:      {{symbol: "nvmlDeviceGetProcessesUtilizationInfo"}},
}
