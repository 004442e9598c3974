//go:build linux && cgo

package main

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// property is one column of --query-gpu.
type property func(gpu) string

const none = "[N/A]"

// show formats an answer or nvidia-smi's text for a missing value.
func show[T any](v T, ret nvml.Return, format string) string {
	if ret != nvml.SUCCESS {
		return none
	}
	return fmt.Sprintf(format, v)
}

func onOff(v nvml.EnableState, ret nvml.Return) string {
	if ret != nvml.SUCCESS {
		return none
	}
	if v == nvml.FEATURE_ENABLED {
		return "Enabled"
	}
	return "Disabled"
}

func watts(v uint32, ret nvml.Return) string {
	return show(float64(v)/1000, ret, "%.2f W")
}

func mebibytes(v uint64, ret nvml.Return) string { return show(v>>20, ret, "%d MiB") }

func clock(kind nvml.ClockType) property {
	return func(g gpu) string { v, ret := g.GetClockInfo(kind); return show(v, ret, "%d MHz") }
}

func maxClock(kind nvml.ClockType) property {
	return func(g gpu) string { v, ret := g.GetMaxClockInfo(kind); return show(v, ret, "%d MHz") }
}

func appClock(kind nvml.ClockType) property {
	return func(g gpu) string { v, ret := g.GetApplicationsClock(kind); return show(v, ret, "%d MHz") }
}

func field(id uint32, format func(uint32) string) property {
	return func(g gpu) string {
		v := []nvml.FieldValue{{FieldId: id}}
		if ret := g.GetFieldValues(v); ret != nvml.SUCCESS || nvml.Return(v[0].NvmlReturn) != nvml.SUCCESS {
			return none
		}
		b := v[0].Value
		return format(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
	}
}

func ecc(kind nvml.MemoryErrorType, counter nvml.EccCounterType) property {
	return func(g gpu) string { v, ret := g.GetTotalEccErrors(kind, counter); return show(v, ret, "%d") }
}

func retired(cause nvml.PageRetirementCause) property {
	return func(g gpu) string { v, ret := g.GetRetiredPages(cause); return show(len(v), ret, "%d") }
}

func inforom(o nvml.InforomObject) property {
	return func(g gpu) string { v, ret := g.GetInforomVersion(o); return show(v, ret, "%s") }
}

func memory(of func(nvml.Memory_v2) uint64) property {
	return func(g gpu) string { m, ret := g.GetMemoryInfo_v2(); return mebibytes(of(m), ret) }
}

// properties lists the columns of --query-gpu.
var properties = map[string]property{
	"count":                        func(g gpu) string { return fmt.Sprint(g.count) },
	"index":                        func(g gpu) string { return fmt.Sprint(g.index) },
	"uuid":                         func(g gpu) string { v, ret := g.GetUUID(); return show(v, ret, "%s") },
	"name":                         func(g gpu) string { v, ret := g.GetName(); return show(v, ret, "%s") },
	"serial":                       func(g gpu) string { v, ret := g.GetSerial(); return show(v, ret, "%s") },
	"vbios_version":                func(g gpu) string { v, ret := g.GetVbiosVersion(); return show(v, ret, "%s") },
	"driver_version":               func(g gpu) string { v, ret := g.api.SystemGetDriverVersion(); return show(v, ret, "%s") },
	"pci.bus_id":                   busID,
	"inforom.img":                  func(g gpu) string { v, ret := g.GetInforomImageVersion(); return show(v, ret, "%s") },
	"inforom.oem":                  inforom(nvml.INFOROM_OEM),
	"inforom.ecc":                  inforom(nvml.INFOROM_ECC),
	"compute_mode":                 computeMode,
	"persistence_mode":             func(g gpu) string { return onOff(g.GetPersistenceMode()) },
	"mig.mode.current":             migMode,
	"clocks.sm":                    clock(nvml.CLOCK_SM),
	"clocks.mem":                   clock(nvml.CLOCK_MEM),
	"clocks.video":                 clock(nvml.CLOCK_VIDEO),
	"clocks.max.sm":                maxClock(nvml.CLOCK_SM),
	"clocks.max.memory":            maxClock(nvml.CLOCK_MEM),
	"clocks.applications.graphics": appClock(nvml.CLOCK_GRAPHICS),
	"clocks.applications.memory":   appClock(nvml.CLOCK_MEM),
	"clocks_event_reasons.active": func(g gpu) string {
		v, ret := g.GetCurrentClocksEventReasons()
		return show(v, ret, "0x%016x")
	},
	"temperature.gpu": func(g gpu) string {
		v, ret := g.GetTemperature(nvml.TEMPERATURE_GPU)
		return show(v, ret, "%d")
	},
	"temperature.memory":    field(nvml.FI_DEV_MEMORY_TEMP, func(v uint32) string { return fmt.Sprint(v) }),
	"power.draw":            func(g gpu) string { return watts(g.GetPowerUsage()) },
	"power.draw.average":    field(nvml.FI_DEV_POWER_AVERAGE, func(v uint32) string { return watts(v, nvml.SUCCESS) }),
	"power.draw.instant":    field(nvml.FI_DEV_POWER_INSTANT, func(v uint32) string { return watts(v, nvml.SUCCESS) }),
	"power.limit":           func(g gpu) string { return watts(g.GetPowerManagementLimit()) },
	"power.default_limit":   func(g gpu) string { return watts(g.GetPowerManagementDefaultLimit()) },
	"power.min_limit":       func(g gpu) string { v, _, ret := g.GetPowerManagementLimitConstraints(); return watts(v, ret) },
	"power.max_limit":       func(g gpu) string { _, v, ret := g.GetPowerManagementLimitConstraints(); return watts(v, ret) },
	"enforced.power.limit":  func(g gpu) string { return watts(g.GetEnforcedPowerLimit()) },
	"pstate":                func(g gpu) string { v, ret := g.GetPerformanceState(); return show(v, ret, "P%d") },
	"fan.speed":             func(g gpu) string { v, ret := g.GetFanSpeed(); return show(v, ret, "%d %%") },
	"pcie.link.gen.current": func(g gpu) string { v, ret := g.GetCurrPcieLinkGeneration(); return show(v, ret, "%d") },
	"pcie.link.gen.max":     func(g gpu) string { v, ret := g.GetMaxPcieLinkGeneration(); return show(v, ret, "%d") },
	"pcie.link.width.current": func(g gpu) string {
		v, ret := g.GetCurrPcieLinkWidth()
		return show(v, ret, "%d")
	},
	"pcie.link.width.max": func(g gpu) string { v, ret := g.GetMaxPcieLinkWidth(); return show(v, ret, "%d") },
	"utilization.gpu":     func(g gpu) string { v, ret := g.GetUtilizationRates(); return show(v.Gpu, ret, "%d %%") },
	"utilization.memory":  func(g gpu) string { v, ret := g.GetUtilizationRates(); return show(v.Memory, ret, "%d %%") },
	"utilization.encoder": func(g gpu) string { v, _, ret := g.GetEncoderUtilization(); return show(v, ret, "%d %%") },
	"utilization.decoder": func(g gpu) string { v, _, ret := g.GetDecoderUtilization(); return show(v, ret, "%d %%") },
	"memory.total":        memory(func(m nvml.Memory_v2) uint64 { return m.Total }),
	"memory.reserved":     memory(func(m nvml.Memory_v2) uint64 { return m.Reserved }),
	"memory.used":         memory(func(m nvml.Memory_v2) uint64 { return m.Used }),
	"memory.free":         memory(func(m nvml.Memory_v2) uint64 { return m.Free }),
	"ecc.mode.current":    func(g gpu) string { v, _, ret := g.GetEccMode(); return onOff(v, ret) },
	"ecc.mode.pending":    func(g gpu) string { _, v, ret := g.GetEccMode(); return onOff(v, ret) },

	"ecc.errors.corrected.volatile.total":    ecc(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC),
	"ecc.errors.uncorrected.volatile.total":  ecc(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC),
	"ecc.errors.corrected.aggregate.total":   ecc(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC),
	"ecc.errors.uncorrected.aggregate.total": ecc(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC),
	"retired_pages.single_bit_ecc.count":     retired(nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
	"retired_pages.double_bit.count":         retired(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
	"retired_pages.pending":                  retiredPending,
}

func busID(g gpu) string {
	p, ret := g.GetPciInfo()
	return show(fmt.Sprintf("%08X:%02X:%02X.0", p.Domain, p.Bus, p.Device), ret, "%s")
}

func computeMode(g gpu) string {
	v, ret := g.GetComputeMode()
	if ret != nvml.SUCCESS {
		return none
	}
	switch v {
	case nvml.COMPUTEMODE_PROHIBITED:
		return "Prohibited"
	case nvml.COMPUTEMODE_EXCLUSIVE_PROCESS:
		return "Exclusive_Process"
	}
	return "Default"
}

func migMode(g gpu) string {
	v, _, ret := g.GetMigMode()
	return onOff(nvml.EnableState(v), ret)
}

func retiredPending(g gpu) string {
	v, ret := g.GetRetiredPagesPendingStatus()
	if ret != nvml.SUCCESS {
		return none
	}
	if v == nvml.FEATURE_ENABLED {
		return "Yes"
	}
	return "No"
}
