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

// of is a property that one call answers.
func of[T any](call func(nvml.Device) (T, nvml.Return), format string) property {
	return func(g gpu) string { v, ret := call(g); return show(v, ret, format) }
}

// by is a property that one call answers for an argument.
func by[A, T any](call func(nvml.Device, A) (T, nvml.Return), arg A, format string) property {
	return of(func(d nvml.Device) (T, nvml.Return) { return call(d, arg) }, format)
}

func milliwatts(call func(nvml.Device) (uint32, nvml.Return)) property {
	return func(g gpu) string { return watts(call(g)) }
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

func memory(part func(nvml.Memory_v2) uint64) property {
	return func(g gpu) string { m, ret := g.GetMemoryInfo_v2(); return mebibytes(part(m), ret) }
}

// properties lists the columns of --query-gpu.
var properties = map[string]property{
	"count":                        func(g gpu) string { return fmt.Sprint(g.count) },
	"index":                        func(g gpu) string { return fmt.Sprint(g.index) },
	"uuid":                         of(nvml.Device.GetUUID, "%s"),
	"name":                         of(nvml.Device.GetName, "%s"),
	"serial":                       of(nvml.Device.GetSerial, "%s"),
	"vbios_version":                of(nvml.Device.GetVbiosVersion, "%s"),
	"driver_version":               func(g gpu) string { v, ret := g.api.SystemGetDriverVersion(); return show(v, ret, "%s") },
	"pci.bus_id":                   busID,
	"inforom.img":                  of(nvml.Device.GetInforomImageVersion, "%s"),
	"inforom.oem":                  by(nvml.Device.GetInforomVersion, nvml.INFOROM_OEM, "%s"),
	"inforom.ecc":                  by(nvml.Device.GetInforomVersion, nvml.INFOROM_ECC, "%s"),
	"compute_mode":                 computeMode,
	"persistence_mode":             func(g gpu) string { return onOff(g.GetPersistenceMode()) },
	"mig.mode.current":             migMode,
	"clocks.sm":                    by(nvml.Device.GetClockInfo, nvml.CLOCK_SM, "%d MHz"),
	"clocks.mem":                   by(nvml.Device.GetClockInfo, nvml.CLOCK_MEM, "%d MHz"),
	"clocks.video":                 by(nvml.Device.GetClockInfo, nvml.CLOCK_VIDEO, "%d MHz"),
	"clocks.max.sm":                by(nvml.Device.GetMaxClockInfo, nvml.CLOCK_SM, "%d MHz"),
	"clocks.max.memory":            by(nvml.Device.GetMaxClockInfo, nvml.CLOCK_MEM, "%d MHz"),
	"clocks.applications.graphics": by(nvml.Device.GetApplicationsClock, nvml.CLOCK_GRAPHICS, "%d MHz"),
	"clocks.applications.memory":   by(nvml.Device.GetApplicationsClock, nvml.CLOCK_MEM, "%d MHz"),
	"clocks_event_reasons.active":  of(nvml.Device.GetCurrentClocksEventReasons, "0x%016x"),
	"temperature.gpu":              by(nvml.Device.GetTemperature, nvml.TEMPERATURE_GPU, "%d"),
	"temperature.memory":           field(nvml.FI_DEV_MEMORY_TEMP, func(v uint32) string { return fmt.Sprint(v) }),
	"power.draw":                   milliwatts(nvml.Device.GetPowerUsage),
	"power.draw.average":           field(nvml.FI_DEV_POWER_AVERAGE, func(v uint32) string { return watts(v, nvml.SUCCESS) }),
	"power.draw.instant":           field(nvml.FI_DEV_POWER_INSTANT, func(v uint32) string { return watts(v, nvml.SUCCESS) }),
	"power.limit":                  milliwatts(nvml.Device.GetPowerManagementLimit),
	"power.default_limit":          milliwatts(nvml.Device.GetPowerManagementDefaultLimit),
	"power.min_limit":              func(g gpu) string { v, _, ret := g.GetPowerManagementLimitConstraints(); return watts(v, ret) },
	"power.max_limit":              func(g gpu) string { _, v, ret := g.GetPowerManagementLimitConstraints(); return watts(v, ret) },
	"enforced.power.limit":         milliwatts(nvml.Device.GetEnforcedPowerLimit),
	"pstate":                       of(nvml.Device.GetPerformanceState, "P%d"),
	"fan.speed":                    of(nvml.Device.GetFanSpeed, "%d %%"),
	"pcie.link.gen.current":        of(nvml.Device.GetCurrPcieLinkGeneration, "%d"),
	"pcie.link.gen.max":            of(nvml.Device.GetMaxPcieLinkGeneration, "%d"),
	"pcie.link.width.current":      of(nvml.Device.GetCurrPcieLinkWidth, "%d"),
	"pcie.link.width.max":          of(nvml.Device.GetMaxPcieLinkWidth, "%d"),
	"utilization.gpu":              func(g gpu) string { v, ret := g.GetUtilizationRates(); return show(v.Gpu, ret, "%d %%") },
	"utilization.memory":           func(g gpu) string { v, ret := g.GetUtilizationRates(); return show(v.Memory, ret, "%d %%") },
	"utilization.encoder":          func(g gpu) string { v, _, ret := g.GetEncoderUtilization(); return show(v, ret, "%d %%") },
	"utilization.decoder":          func(g gpu) string { v, _, ret := g.GetDecoderUtilization(); return show(v, ret, "%d %%") },
	"memory.total":                 memory(func(m nvml.Memory_v2) uint64 { return m.Total }),
	"memory.reserved":              memory(func(m nvml.Memory_v2) uint64 { return m.Reserved }),
	"memory.used":                  memory(func(m nvml.Memory_v2) uint64 { return m.Used }),
	"memory.free":                  memory(func(m nvml.Memory_v2) uint64 { return m.Free }),
	"ecc.mode.current":             func(g gpu) string { v, _, ret := g.GetEccMode(); return onOff(v, ret) },
	"ecc.mode.pending":             func(g gpu) string { _, v, ret := g.GetEccMode(); return onOff(v, ret) },

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
