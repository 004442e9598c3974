package field

import (
	"slices"
	"strings"
)

// Role is the meaning of a reading, such as temperature, for all vendors and names. A page or a terminal can
// show a role without knowing fields.
type Role string

// The roles. Each has a unit, to which its readings convert (Role.Unit).
const (
	RoleActivity            Role = "activity"
	RoleSMActivity          Role = "sm_activity"
	RoleTensorActivity      Role = "tensor_activity"
	RoleMemoryActivity      Role = "memory_activity"
	RolePower               Role = "power"
	RolePowerLimit          Role = "power_limit"
	RoleEnergy              Role = "energy"
	RoleTemperature         Role = "temperature"
	RoleMemoryTemperature   Role = "memory_temperature"
	RoleSlowdownTemperature Role = "slowdown_temperature"
	RoleShutdownTemperature Role = "shutdown_temperature"
	RoleClock               Role = "clock"
	RoleMemoryClock         Role = "memory_clock"
	RoleMaxClock            Role = "max_clock"
	RoleClockEvents         Role = "clock_events" // a bit mask, see ClockReason
	RoleThrottling          Role = "throttling"   // by reason, 1 while it holds the device back
	RoleMemoryUsed          Role = "memory_used"
	RoleMemoryFree          Role = "memory_free"
	RoleMemoryReserved      Role = "memory_reserved"
	RoleMemoryTotal         Role = "memory_total"
	RoleLinkThroughput      Role = "link_throughput" // over all NVLinks or XGMI links
	// For one link, or for a device's links together; data is a rate, or a counter in bytes.
	RoleLinkData     Role = "link_data" // in both directions
	RoleLinkSent     Role = "link_sent"
	RoleLinkReceived Role = "link_received"
	RoleLinkUp       Role = "link_up"
	RoleLinkErrors   Role = "link_errors"
)

// Meaning is a role of a reading's series.
type Meaning struct {
	Role  Role
	Label string // value of a series label; "": no label, or AnyLabel
	Rank  int    // of several series with one role, the one with the lowest rank counts
}

// AnyLabel is the Label of a Meaning that all series of a reading have.
const AnyLabel = "*"

// ownRank is the rank of a vendor's own reading: those that all vendors have come first.
const ownRank = 10

// RoleOf returns the role of a series of a reading with these values of labels.
func (d *Descriptor) RoleOf(labels ...string) (Meaning, bool) {
	for _, m := range d.Meanings {
		if m.Label == AnyLabel || m.Label == "" && len(labels) == 0 || m.Label != "" && slices.Contains(labels, m.Label) {
			return m, true
		}
	}
	return Meaning{}, false
}

// Unit returns the unit of a role, in the terms of Descriptor.Unit.
func (r Role) Unit() string {
	switch {
	case strings.HasSuffix(string(r), "activity"):
		return "%"
	case strings.HasSuffix(string(r), "temperature"):
		return "celsius"
	case strings.HasSuffix(string(r), "clock"):
		return "MHz"
	case strings.HasPrefix(string(r), "power"):
		return "W"
	case strings.HasPrefix(string(r), "memory"):
		return "bytes"
	case r == RoleEnergy:
		return "J"
	case r == RoleLinkThroughput, r == RoleLinkData:
		return "bytes/s"
	}
	return ""
}

// units holds the factors of units within one role.
var units = map[[2]string]float64{
	{"ratio", "%"}: 100, {"MiB", "bytes"}: 1 << 20, {"Hz", "MHz"}: 1e-6, {"kHz", "MHz"}: 1e-3,
	{"mJ", "J"}: 1e-3, {"MB/s", "bytes/s"}: 1e6, {"KB/s", "bytes/s"}: 1e3,
}

// UnitFactor returns the factor from one unit to another: 1 if they are the same or unrelated.
func UnitFactor(from, to string) float64 {
	if f, ok := units[[2]string{from, to}]; ok {
		return f
	}
	return 1
}
