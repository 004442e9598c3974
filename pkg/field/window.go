package field

// Window describes how a library measures a reading: a mean over a second shows a twentieth of a 50 ms burst.
// An empty text means unknown.
type Window struct {
	Library  string `json:"library"`          // "NVML", "DCGM", "AMD sysfs"
	Update   string `json:"update,omitempty"` // time between new values
	Mean     string `json:"mean,omitempty"`   // time that the value averages
	Evidence string `json:"source"`           // who says so
}

const (
	atOnce       = "momentary"
	betweenTicks = "the time between two readings"
	lastPeriod   = "1/6 s to 1 s, by board"
	firmware     = "at most 1 ms old"
	cacheManager = "DCGM 4.6, DcgmCacheManager.cpp"
)

// windows lists the known windows, by library.
var windows = []struct {
	first, last ID
	Window
}{
	{155, 155, Window{"NVML", "", "1 s on Ampere and newer, but momentary on GA100 and older", "nvml.h, nvmlDeviceGetPowerUsage"}},
	{155, 155, Window{"DCGM", "the watch's interval", "as NVML, which it asks", cacheManager}},
	{155, 155, Window{"AMD sysfs", firmware, "about 100 ms", "ROCm/legacy-rocm-build#1649, ROCm/ROC-smi#89; Linux, amdgpu_pm.c: power1_average"}},
	{157, 157, Window{"NVML", "", atOnce, "nvml.h, NVML_FI_DEV_POWER_INSTANT; of A100 and H100 arXiv:2312.02741 measured that it sees a quarter of the time"}},
	{157, 157, Window{"DCGM", "the watch's interval", "as NVML, which it asks", cacheManager}},
	{157, 157, Window{"AMD sysfs", firmware, atOnce, "ROCm/legacy-rocm-build#1649; Linux, amdgpu_pm.c: power1_input"}},
	{203, 204, Window{"NVML", lastPeriod, lastPeriod, "nvml.h, nvmlUtilization_t"}},
	{203, 204, Window{"DCGM", "the watch's interval", "as NVML, which it asks", cacheManager}},
	{206, 207, Window{"NVML", "", "a period that the driver names at each call", "nvml.h, nvmlDeviceGetEncoderUtilization"}},
	{1001, 1083, Window{"NVML", "100 ms", betweenTicks, "nvml.h, nvmlGpmSampleGet"}},
	{1001, 1083, Window{"DCGM", "the watch's interval", "the watch's interval", "NVIDIA/DCGM#63"}},
	{1001, 1001, Window{"AMD sysfs", "1 ms", betweenTicks, "Linux, kgd_pp_interface.h: gfx_activity_acc"}},
	{1005, 1005, Window{"AMD sysfs", "1 ms", betweenTicks, "Linux, kgd_pp_interface.h: mem_activity_acc"}},
}

// Windows returns the known Windows of a reading, one for each library. A name in a base unit has the windows
// of its reading.
func Windows(d *Descriptor) []Window {
	id := d.ID
	if d.Factor != 0 {
		id = d.Of
	}
	var out []Window
	for _, w := range windows {
		if id >= w.first && id <= w.last {
			out = append(out, w.Window)
		}
	}
	return out
}
