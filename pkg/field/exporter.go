package field

// The fields that dcgm-exporter computes itself. XIDErrorsCount … are computed
// here from another reading, by accumulation over every sampled row (package
// accumulate); GPUHealth and P2PStatus are ordinary readings with extra labels
// (health_watch and health_error_code; peer_gpu and link_status) that a
// collector supplies.
const (
	XIDErrorsCount   = FirstExporter + iota // DCGM_EXP_XID_ERRORS_COUNT: XIDs within a window, by xid
	XIDErrorsTotal                          // DCGM_EXP_XID_ERRORS_TOTAL: XIDs since start, by xid
	ClockEventsCount                        // DCGM_EXP_CLOCK_EVENTS_COUNT: clock events active within a window, by reason
	ClockEventsTotal                        // DCGM_EXP_CLOCK_EVENTS_TOTAL: clock events since start, by reason
	GPUHealth                               // DCGM_EXP_GPU_HEALTH_STATUS
	P2PStatus                               // DCGM_EXP_P2P_STATUS
	XIDEvent                                // not in any CSV: the cell holds the code of an XID that arrived in this tick
)

// DCGM's ids of readings that are special to the exporter.
const (
	ClockEventReasons ID = 112 // DCGM_FI_DEV_CLOCKS_EVENT_REASONS, a bit mask
	XIDErrors         ID = 230 // DCGM_FI_DEV_XID_ERRORS, the last XID
)

// Input returns the reading that the field d is computed from, and false if a
// collector supplies d itself.
func Input(d *Descriptor) (*Descriptor, bool) {
	switch d.ID {
	case XIDErrorsCount, XIDErrorsTotal:
		return ByID(XIDEvent)
	case ClockEventsCount, ClockEventsTotal:
		return ByID(ClockEventReasons)
	}
	return nil, false
}
