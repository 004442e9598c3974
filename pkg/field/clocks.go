package field

// clockReasons are dcgm-exporter's names of the bits of ClockEventReasons, which
// NVIDIA's header calls DCGM_CLOCKS_EVENT_REASON_…
var clockReasons = [...]string{
	0: "gpu_idle",       // nothing to do
	1: "clocks_setting", // application clocks
	2: "power_cap",      // software power limit
	3: "hw_slowdown",    // too hot, too much power or power brake
	4: "sync_boost",     // a GPU of the same group is slower
	5: "sw_thermal",     // software temperature limit
	6: "hw_thermal",     // hardware temperature limit
	7: "hw_power_brake", // the system's power supply asked for it
	8: "display_clocks", // display clocks
}

// ClockReasons is the number of bits of ClockEventReasons that have a name.
const ClockReasons = len(clockReasons)

// ClockReason returns the value of label clock_event for a bit of
// ClockEventReasons, counted from 0, and false for a bit without a name.
func ClockReason(bit int) (string, bool) {
	if bit < 0 || bit >= ClockReasons {
		return "", false
	}
	return clockReasons[bit], true
}
