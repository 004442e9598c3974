package field

// The fields that dcgm-exporter computes itself. Package accumulate computes XIDErrorsCount … from every
// sampled row of another reading. GPUHealth and P2PStatus are ordinary readings that a collector supplies
// with extra labels (health_watch and health_error_code; peer_gpu and link_status).
const (
	XIDErrorsCount   = FirstExporter + iota // DCGM_EXP_XID_ERRORS_COUNT: XIDs within a window, by xid
	XIDErrorsTotal                          // DCGM_EXP_XID_ERRORS_TOTAL: XIDs since start, by xid
	ClockEventsCount                        // DCGM_EXP_CLOCK_EVENTS_COUNT: clock events active within a window, by reason
	ClockEventsTotal                        // DCGM_EXP_CLOCK_EVENTS_TOTAL: clock events since start, by reason
	GPUHealth                               // DCGM_EXP_GPU_HEALTH_STATUS
	P2PStatus                               // DCGM_EXP_P2P_STATUS
	XIDEvent                                // not in any CSV: the cell holds the code of an XID that arrived in this tick
	XIDsSince                               // not in any CSV: see IsXID
	XIDsUntil                               // not in any CSV: see IsXID
)

// DCGM's ids of readings that the exporter treats specially.
const (
	ClockEventReasons ID = 112 // DCGM_FI_DEV_CLOCKS_EVENT_REASONS, a bit mask
	XIDErrors         ID = 230 // DCGM_FI_DEV_XID_ERRORS, the last XID
)

// exporterFields lists dcgm-exporter's own counters (all six that a CSV can name) by ascending id.
var exporterFields = [...]Descriptor{
	{ID: XIDErrorsCount, Name: "DCGM_EXP_XID_ERRORS_COUNT", Kind: Int64, Level: GPU, Vendor: VendorNVIDIA, Max: maxEvents, Help: "XIDs within the last window, by code"},
	{ID: XIDErrorsTotal, Name: "DCGM_EXP_XID_ERRORS_TOTAL", Kind: Int64, Level: GPU, Vendor: VendorNVIDIA, Max: maxEvents, Help: "XIDs since the exporter's start, by code"},
	{ID: ClockEventsCount, Name: "DCGM_EXP_CLOCK_EVENTS_COUNT", Kind: Int64, Level: GPU, Max: maxEvents, Help: "Clock events within the last window, by reason"},
	{ID: ClockEventsTotal, Name: "DCGM_EXP_CLOCK_EVENTS_TOTAL", Kind: Int64, Level: GPU, Max: maxEvents, Help: "Clock events since the exporter's start, by reason"},
	{ID: GPUHealth, Name: "DCGM_EXP_GPU_HEALTH_STATUS", Kind: Int64, Level: GPU, Vendor: VendorNVIDIA, Max: 20, Cost: Medium, Help: "Health by watch: 0 pass, 10 warn, 20 fail"},
	{ID: P2PStatus, Name: "DCGM_EXP_P2P_STATUS", Kind: Int64, Level: GPU, Vendor: VendorNVIDIA, Max: 6, Cost: Slow, Help: "Whether the GPU reaches a peer over NVLink: 0 yes, else why not"},
}

// maxEvents bounds a count of events to integers that a float64 holds exactly.
const maxEvents = 1 << 53

// xidEvent is the reading behind the XID counters. A CSV cannot name it.
var xidEvent = Descriptor{ID: XIDEvent, Name: "XID_EVENT", Kind: Int64, Level: ComputeInstance, Vendor: VendorNVIDIA, Max: 100_000, Event: true,
	Help: "Code of an XID that arrived in this tick"}

// The columns next to XIDEvent. With them no XID is lost or counted twice between two sessions.
var (
	// Since when the source has every XID of a GPU and its instances (Unix µs, local clock); 0 if it missed
	// none since the collector's previous session. If the value grows, some XIDs may have been missed.
	xidsSince = Descriptor{ID: XIDsSince, Name: "XIDS_SINCE", Kind: Int64, Level: GPU, Vendor: VendorNVIDIA, Max: maxEvents, Help: "Time from which on all XIDs are reported"}
	// The time (Unix µs, source's clock) up to which all XIDs of a device are in a row. The collector's next
	// session gets it (collector.Resumer).
	xidsUntil = Descriptor{ID: XIDsUntil, Name: "XIDS_UNTIL", Kind: Int64, Level: ComputeInstance, Vendor: VendorNVIDIA, Max: maxEvents, Help: "Time up to which all XIDs were reported"}
)

// IsXID reports whether a reading is about XIDs, which describe past events and so stay true of a device.
func IsXID(id ID) bool {
	return id == XIDErrors || id == XIDEvent || id == XIDsSince || id == XIDsUntil
}

// Input returns the reading from which the exporter computes d, or false if a collector supplies d itself.
func Input(d *Descriptor) (*Descriptor, bool) {
	switch d.ID {
	case XIDErrorsCount, XIDErrorsTotal:
		return ByID(XIDEvent)
	case ClockEventsCount, ClockEventsTotal:
		return ByID(ClockEventReasons)
	}
	return nil, false
}

// LinkStatuses lists the values of P2PStatus and, in dcgm-exporter's spelling, of its label link_status. DCGM
// (dcgmNvLinkGpuP2PStatus_t) and NVML (nvmlGpuP2PStatus_t) number them alike.
var LinkStatuses = [...]string{"OK", "ChipsetNotSupported", "GPUNotSupported", "TopologyNotSupported", "DisabledByRegKey", "NotSupported", "Unknown"}

// clockReasons holds dcgm-exporter's names of the bits of ClockEventReasons. NVIDIA's header calls them
// DCGM_CLOCKS_EVENT_REASON_…
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

// ClockReasons is the number of named bits in ClockEventReasons.
const ClockReasons = len(clockReasons)

// ClockReason returns the label clock_event for a bit of ClockEventReasons, counted from 0, or false for a
// bit without a name.
func ClockReason(bit int) (string, bool) {
	if bit < 0 || bit >= ClockReasons {
		return "", false
	}
	return clockReasons[bit], true
}
