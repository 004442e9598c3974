package rocm

import (
	"errors"
	"fmt"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
)

// smiFunction is a function of ROCm SMI; numbers are those of smi.h.
type smiFunction uint32

const (
	smiInit smiFunction = iota
	smiShutDown
	smiNumDevices
	smiPCIID
	smiPower // never called: it tells ROCm 6 from ROCm 5
	smiTemperature
	smiPowerAverage
	smiSocketPower
	smiPowerCap
	smiPowerCapRange
	smiBusy
	smiMemoryBusy
	smiMemoryUsage
	smiMemoryTotal
	smiClock
	smiPCIReplay
	smiECCCount
	smiBadPages
	smiFanRPM
	smiFanSpeed
	smiVoltage
	smiFunctionCount
)

// smiFunctions are the library's names, by number.
func smiFunctions() [smiFunctionCount]string {
	return [smiFunctionCount]string{
		smiInit:          "rsmi_init",
		smiShutDown:      "rsmi_shut_down",
		smiNumDevices:    "rsmi_num_monitor_devices",
		smiPCIID:         "rsmi_dev_pci_id_get",
		smiTemperature:   "rsmi_dev_temp_metric_get",
		smiPowerAverage:  "rsmi_dev_power_ave_get",
		smiPower:         "rsmi_dev_power_get",
		smiSocketPower:   "rsmi_dev_current_socket_power_get",
		smiPowerCap:      "rsmi_dev_power_cap_get",
		smiPowerCapRange: "rsmi_dev_power_cap_range_get",
		smiBusy:          "rsmi_dev_busy_percent_get",
		smiMemoryBusy:    "rsmi_dev_memory_busy_percent_get",
		smiMemoryUsage:   "rsmi_dev_memory_usage_get",
		smiMemoryTotal:   "rsmi_dev_memory_total_get",
		smiClock:         "rsmi_dev_gpu_clk_freq_get",
		smiPCIReplay:     "rsmi_dev_pci_replay_counter_get",
		smiECCCount:      "rsmi_dev_ecc_count_get",
		smiBadPages:      "rsmi_dev_memory_reserved_pages_get",
		smiFanRPM:        "rsmi_dev_fan_rpms_get",
		smiFanSpeed:      "rsmi_dev_fan_speed_get",
		smiVoltage:       "rsmi_dev_volt_metric_get",
	}
}

// smiRequired are the functions that nothing works without: those that start
// and end the library, and those that tell which GPU an index means.
func smiRequired() []smiFunction {
	return []smiFunction{smiInit, smiShutDown, smiNumDevices, smiPCIID}
}

func (f smiFunction) String() string {
	if f < smiFunctionCount {
		return smiFunctions()[f]
	}
	return fmt.Sprintf("function %d", uint32(f))
}

// sensor reports whether the function reads hwmon.
func (f smiFunction) sensor() bool {
	switch f {
	case smiTemperature, smiPowerAverage, smiSocketPower, smiPowerCap, smiPowerCapRange, smiFanRPM, smiFanSpeed, smiVoltage:
		return true
	}
	return false
}

// smiAsk is one reading; its layout is that of struct smi_ask.
type smiAsk struct {
	function smiFunction
	argument uint32 // sensor, kind of memory, clock or block; see smi.h
}

// smiAnswer is what came back, in the library's units; its layout is that of
// struct smi_answer, which says what the values are.
type smiAnswer struct {
	value  [3]uint64
	nanos  uint64
	status smiStatus
	_      uint32
}

// smiStatus is rsmi_status_t, and two values of our own.
type smiStatus int32

// smiStatusError is a status that is not success.
type smiStatusError struct{ status smiStatus }

func (e smiStatusError) Error() string { return e.status.String() }

const (
	smiNoValue   smiStatus = -2 // success without a value
	smiNoSymbol  smiStatus = -1 // the library lacks the function
	smiSuccess   smiStatus = 0
	smiInitError smiStatus = 8
)

func (s smiStatus) String() string {
	switch s {
	case smiNoValue:
		return "success without a value"
	case smiNoSymbol:
		return "the library lacks the function"
	}
	names := [...]string{
		"SUCCESS", "INVALID_ARGS", "NOT_SUPPORTED", "FILE_ERROR", "PERMISSION", "OUT_OF_RESOURCES",
		"INTERNAL_EXCEPTION", "INPUT_OUT_OF_BOUNDS", "INIT_ERROR", "NOT_YET_IMPLEMENTED", "NOT_FOUND",
		"INSUFFICIENT_SIZE", "INTERRUPT", "UNEXPECTED_SIZE", "NO_DATA", "UNEXPECTED_DATA", "BUSY",
		"REFCOUNT_OVERFLOW",
	}
	if s >= 0 && int(s) < len(names) {
		return fmt.Sprintf("RSMI_STATUS_%s [code %d]", names[s], int(s))
	}
	return fmt.Sprintf("ROCm SMI status %d", int(s))
}

// smiFailed is what a call's status says, nil for success.
func smiFailed(f smiFunction, s smiStatus) error {
	if s == smiSuccess {
		return nil
	}
	return fmt.Errorf("call %s: %w", f, smiStatusError{s})
}

// notLoaded says what became of the names.
func notLoaded(names []string, err error) error {
	var oe *dl.OpenError
	if errors.As(err, &oe) && oe.Absent() {
		return fmt.Errorf("load ROCm SMI: %w: the loader finds no %s", collector.ErrNotLoaded, strings.Join(names, ", "))
	}
	if errors.Is(err, dl.ErrUnavailable) {
		return fmt.Errorf("load ROCm SMI: %w: %w", collector.ErrNotBuiltIn, err)
	}
	return fmt.Errorf("load ROCm SMI: %w: unusable library: %w", collector.ErrNotLoaded, err)
}
