package rocm

import (
	"bytes"
	"fmt"
	"math"
	"os"

	"warpgauge/collectors/rocm/internal/native"
	"warpgauge/collectors/rocm/internal/sysfs"
)

// The functions of ROCm SMI.
const (
	smiInit = iota
	smiShutDown
	smiNumDevices
	smiPCIID
	smiTemperature
	smiPowerAverage
	smiPowerCap
	smiPowerCapRange
	smiMemoryBusy
	smiMemoryTotal
	smiPCIReplay
	smiFanRPM
	smiFanSpeed
	smiVoltage
)

// smiFunctions lists the library's names. The required functions start and stop the library and map indexes to GPUs.
var smiFunctions = []native.Function{ //nolint:gochecknoglobals // a constant
	smiInit:          {Name: "rsmi_init", Required: true},
	smiShutDown:      {Name: "rsmi_shut_down", Required: true},
	smiNumDevices:    {Name: "rsmi_num_monitor_devices", Required: true},
	smiPCIID:         {Name: "rsmi_dev_pci_id_get", Required: true},
	smiTemperature:   {Name: "rsmi_dev_temp_metric_get"},
	smiPowerAverage:  {Name: "rsmi_dev_power_ave_get"},
	smiPowerCap:      {Name: "rsmi_dev_power_cap_get"},
	smiPowerCapRange: {Name: "rsmi_dev_power_cap_range_get"},
	smiMemoryBusy:    {Name: "rsmi_dev_memory_busy_percent_get"},
	smiMemoryTotal:   {Name: "rsmi_dev_memory_total_get"},
	smiPCIReplay:     {Name: "rsmi_dev_pci_replay_counter_get"},
	smiFanRPM:        {Name: "rsmi_dev_fan_rpms_get"},
	smiFanSpeed:      {Name: "rsmi_dev_fan_speed_get"},
	smiVoltage:       {Name: "rsmi_dev_volt_metric_get"},
}

// smiTakes is the number of arguments between the device and the outputs. No used function has a struct, whose layout
// would depend on the release.
var smiTakes = [...]int{ //nolint:gochecknoglobals // a constant
	smiTemperature: 2, smiPowerAverage: 1, smiPowerCap: 1, smiPowerCapRange: 1, smiMemoryTotal: 1, smiFanRPM: 1, smiFanSpeed: 1, smiVoltage: 2,
}

// smiAsk says how to read one value from the library.
type smiAsk struct {
	function int    // smiTemperature …
	a, b     uint32 // sensor or memory, and the sensor's metric
	second   bool   // the value is the second output
}

// smiUnset is the value of an output before the call. Some releases return success without writing the output, and
// newer ones open /dev/kfd if they find a 0 there after a failed read.
const smiUnset = 1 << 63

// smiAskFor returns how to read a value from the library. It returns false for the readings that package sysfs reads
// instead, from the same files:
//   - clocks, RAS errors and bad pages: builds with asserts, such as Debian's, abort the process over unexpected text
//     (a clock in deep sleep, a GPU in reset, deferred errors), https://github.com/ROCm/rocm_smi_lib/issues/182;
//   - GPU utilization: an empty file, as during a reset, is reported as success with 0;
//   - socket power: the library wants a label that not all boards have;
//   - used memory: newer releases open /dev/kfd if the board has no memory of its own, which makes the exporter a
//     process on the GPU.
func smiAskFor(r sysfs.Reading) (smiAsk, bool) {
	const critical, emergency = 5, 7 // RSMI_TEMP_CRITICAL, RSMI_TEMP_EMERGENCY
	switch r.Kind {
	// The library numbers sensors and memories as package sysfs does.
	case sysfs.Temperature:
		return smiAsk{function: smiTemperature, a: uint32(r.Index)}, r.Index < sysfs.Sensors
	case sysfs.TemperatureCrit:
		return smiAsk{function: smiTemperature, a: uint32(r.Index), b: critical}, r.Index < sysfs.Sensors
	case sysfs.TemperatureStop:
		return smiAsk{function: smiTemperature, a: uint32(r.Index), b: emergency}, r.Index < sysfs.Sensors
	case sysfs.PowerAverage:
		return smiAsk{function: smiPowerAverage}, r.Index == 0
	case sysfs.PowerCap:
		return smiAsk{function: smiPowerCap}, r.Index == 0
	case sysfs.PowerCapMax:
		return smiAsk{function: smiPowerCapRange}, r.Index == 0
	case sysfs.PowerCapMin:
		return smiAsk{function: smiPowerCapRange, second: true}, r.Index == 0
	case sysfs.MemoryBusy:
		return smiAsk{function: smiMemoryBusy}, r.Index == 0
	case sysfs.MemoryTotal:
		return smiAsk{function: smiMemoryTotal, a: uint32(r.Index)}, r.Index < sysfs.Memories
	case sysfs.Replays:
		return smiAsk{function: smiPCIReplay}, r.Index == 0
	case sysfs.FanRPM:
		return smiAsk{function: smiFanRPM}, r.Index == 0
	case sysfs.FanDuty:
		return smiAsk{function: smiFanSpeed}, r.Index == 0
	case sysfs.Voltage:
		return smiAsk{function: smiVoltage}, r.Index == 0
	default:
		return smiAsk{}, false
	}
}

// smiStatus is rsmi_status_t.
type smiStatus int32

// smiStatusError is a status other than success.
type smiStatusError struct{ status smiStatus }

func (e smiStatusError) Error() string { return e.status.String() }

const (
	smiSuccess   smiStatus = 0
	smiInitError smiStatus = 8
)

func (s smiStatus) String() string {
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

// smiCall makes one call for a device. out must come from native.New; it keeps smiUnset if the function writes nothing.
// smiCall allocates nothing.
func smiCall(c *native.Caller, device uint32, q smiAsk, out *[2]uint64) smiStatus {
	const none = math.MaxUint32
	*out = [2]uint64{smiUnset, smiUnset}
	if q.function == smiMemoryBusy { // the only function that writes 32 bits
		out[0] = none
	}
	args := [5]uint64{uint64(device), uint64(q.a), uint64(q.b)}
	n := 1 + smiTakes[q.function]
	args[n], args[n+1] = native.Address(&out[0]), native.Address(&out[1])
	status := smiStatus(c.Call(q.function, args[:n+2]...))
	if q.function == smiMemoryBusy && out[0] == none {
		out[0] = smiUnset
	}
	return status
}

// smiFailed returns the error of a call's status, nil for success.
func smiFailed(f int, s smiStatus) error {
	if s == smiSuccess {
		return nil
	}
	return fmt.Errorf("call %s: %w", smiFunctions[f].Name, smiStatusError{s})
}

// smiSonames returns the sonames in order of preference. AMD's packages use 5, 6 and, from ROCm 6.1 on, 7;
// distributions and builds without version tags use 1. The number does not determine the layouts.
func smiSonames() []string {
	return []string{
		"librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5",
		"librocm_smi64.so.1", "librocm_smi64.so",
	}
}

// smiThreadLocks reports whether the library supports the flag for device locks within the process (6.1.2 and later).
// Older libraries leave locks behind in /dev/shm. The variable of this name was added together with the flag, and only
// its name is visible from outside. The variable itself stays untouched: setting it is not safe while other threads
// read the environment.
func smiThreadLocks(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && bytes.Contains(text, []byte("RSMI_MUTEX_THREAD_ONLY"))
}
