package rocm

import (
	"bytes"
	"math"
	"os"

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

// smiAPI describes the library. The required functions start and stop it and map indexes to GPUs. AMD's packages use
// sonames 5, 6 and, since ROCm 6.1, 7. Distributions and builds without version tags use 1. The number does not
// determine the layouts.
var smiAPI = libraryAPI{ //nolint:gochecknoglobals // a constant
	Name: "ROCm SMI", Folders: []string{"lib", "lib64"}, Prefix: "RSMI_STATUS_",
	Sonames: []string{
		"librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5",
		"librocm_smi64.so.1", "librocm_smi64.so",
	},
	Functions: smiFunctions,
	Statuses: map[int32]string{
		1: "INVALID_ARGS", 2: "NOT_SUPPORTED", 3: "FILE_ERROR", 4: "PERMISSION", 5: "OUT_OF_RESOURCES", 6: "INTERNAL_EXCEPTION",
		7: "INPUT_OUT_OF_BOUNDS", smiInitError: "INIT_ERROR", 9: "NOT_YET_IMPLEMENTED", 10: "NOT_FOUND", 11: "INSUFFICIENT_SIZE",
		12: "INTERRUPT", 13: "UNEXPECTED_SIZE", 14: "NO_DATA", 15: "UNEXPECTED_DATA", 16: "BUSY", 17: "REFCOUNT_OVERFLOW",
	},
}

// smiInitError is a status of rsmi_init with several possible causes.
const smiInitError = 8

// smiFunctions has no function with a struct, whose layout would depend on the release.
var smiFunctions = []libraryFunction{ //nolint:gochecknoglobals // a constant
	smiInit:          {Name: "rsmi_init", Required: true},
	smiShutDown:      {Name: "rsmi_shut_down", Required: true},
	smiNumDevices:    {Name: "rsmi_num_monitor_devices", Required: true},
	smiPCIID:         {Name: "rsmi_dev_pci_id_get", Required: true},
	smiTemperature:   {Name: "rsmi_dev_temp_metric_get", takes: 2},
	smiPowerAverage:  {Name: "rsmi_dev_power_ave_get", takes: 1},
	smiPowerCap:      {Name: "rsmi_dev_power_cap_get", takes: 1},
	smiPowerCapRange: {Name: "rsmi_dev_power_cap_range_get", takes: 1},
	smiMemoryBusy:    {Name: "rsmi_dev_memory_busy_percent_get"},
	smiMemoryTotal:   {Name: "rsmi_dev_memory_total_get", takes: 1},
	smiPCIReplay:     {Name: "rsmi_dev_pci_replay_counter_get"},
	smiFanRPM:        {Name: "rsmi_dev_fan_rpms_get", takes: 1},
	smiFanSpeed:      {Name: "rsmi_dev_fan_speed_get", takes: 1},
	smiVoltage:       {Name: "rsmi_dev_volt_metric_get", takes: 2},
}

// smiAsk describes the call that reads one value.
type smiAsk struct {
	function int    // smiTemperature …; 0 if it is read from files
	last     uint8  // highest index
	index    uint8  // sensor or memory
	metric   uint32 // of the sensor
	second   bool   // the value is the second output
}

// smiUnset is the value of an output before the call. Some releases return success without writing the output, and
// newer releases open /dev/kfd if the output is 0 after a failed read.
const smiUnset = 1 << 63

// smiAskFor returns the call that reads a value. It returns false for these readings, which package sysfs reads instead
// from the same files:
//   - clocks, RAS errors and bad pages: builds with asserts, such as Debian's, abort the process over unexpected text
//     (a clock in deep sleep, a GPU in reset, deferred errors), https://github.com/ROCm/rocm_smi_lib/issues/182;
//   - GPU utilization: an empty file, as during a reset, is reported as success with 0;
//   - socket power: the library needs a label that not all boards have;
//   - used memory: newer releases open /dev/kfd if the board has no memory of its own, which makes the exporter a
//     process on the GPU.
func smiAskFor(r sysfs.Reading) (smiAsk, bool) {
	q := smiReadings[r.Kind]
	q.index = r.Index
	return q, q.function != 0 && q.index <= q.last
}

// smiReadings has the call for each kind. The library numbers sensors and memories as package sysfs does.
var smiReadings = [sysfs.Kinds]smiAsk{ //nolint:gochecknoglobals // a constant
	sysfs.Temperature:     {function: smiTemperature, last: sysfs.Sensors - 1},
	sysfs.TemperatureCrit: {function: smiTemperature, last: sysfs.Sensors - 1, metric: 5}, // RSMI_TEMP_CRITICAL
	sysfs.TemperatureStop: {function: smiTemperature, last: sysfs.Sensors - 1, metric: 7}, // RSMI_TEMP_EMERGENCY
	sysfs.PowerAverage:    {function: smiPowerAverage},
	sysfs.PowerCap:        {function: smiPowerCap},
	sysfs.PowerCapMax:     {function: smiPowerCapRange},
	sysfs.PowerCapMin:     {function: smiPowerCapRange, second: true},
	sysfs.MemoryBusy:      {function: smiMemoryBusy},
	sysfs.MemoryTotal:     {function: smiMemoryTotal, last: sysfs.Memories - 1},
	sysfs.Replays:         {function: smiPCIReplay},
	sysfs.FanRPM:          {function: smiFanRPM},
	sysfs.FanDuty:         {function: smiFanSpeed},
	sysfs.Voltage:         {function: smiVoltage},
}

// smiCall makes one call for a device. out must come from cNew. Outputs that the function does not write are
// smiUnset. smiCall allocates nothing.
func smiCall(c *caller, device uint32, q smiAsk, out *[2]uint64) (status int32) {
	const none = math.MaxUint32
	*out = [2]uint64{smiUnset, smiUnset}
	if q.function == smiMemoryBusy { // the only function that writes 32 bits
		out[0] = none
	}
	args := [5]uint64{uint64(device), uint64(q.index), uint64(q.metric)}
	n := 1 + smiFunctions[q.function].takes
	args[n], args[n+1] = addressOf(&out[0]), addressOf(&out[1])
	status = c.Call(q.function, args[:n+2]...)
	if q.function == smiMemoryBusy && out[0] == none {
		out[0] = smiUnset
	}
	return status
}

// smiThreadLocks reports whether the library supports the flag for device locks within the process (6.1.2 and later). Older
// libraries leave locks behind in /dev/shm. The environment variable of this name was added together with the flag, so the
// library contains its name. We do not set the variable, because that is not safe while other threads read the environment.
func smiThreadLocks(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && bytes.Contains(text, []byte("RSMI_MUTEX_THREAD_ONLY"))
}
