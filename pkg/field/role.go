package field

import (
	"slices"
	"strings"
)

// A Role is the meaning of a reading, such as temperature, independent of vendor and name, so that
// a page or a terminal can show it without knowing fields.
type Role string

// The roles. Each has a unit, to which values of its readings convert (Role.Unit).
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
	// Of one link, or of a device's links together; data is a rate, or a counter in bytes.
	RoleLinkData     Role = "link_data" // in both directions
	RoleLinkSent     Role = "link_sent"
	RoleLinkReceived Role = "link_received"
	RoleLinkUp       Role = "link_up"
	RoleLinkErrors   Role = "link_errors"
)

// Meaning is a role that series of a reading have.
type Meaning struct {
	Role  Role
	Label string // value of one of the series' labels; "": the series has none, or AnyLabel
	Rank  int    // of several series with one role, the one with the lowest rank counts
}

// AnyLabel is the Label of a Meaning that all series of a reading have.
const AnyLabel = "*"

// ownRank is the rank of a vendor's own reading: those that all vendors have come first.
const ownRank = 10

// meanings are the roles of DCGM's fields by their names, in order of preference. MIG instances have
// no DCGM_FI_DEV_GPU_UTIL. A name with * stands for all that match. A vendor's own readings have theirs in Descriptor.Meanings.
var meanings = []struct {
	role  Role
	names []string
}{
	{RoleActivity, []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}},
	{RoleSMActivity, []string{"DCGM_FI_PROF_SM_ACTIVE"}},
	{RoleTensorActivity, []string{"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"}},
	{RoleMemoryActivity, []string{"DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_DEV_MEM_COPY_UTIL"}},
	{RolePower, []string{"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_POWER_USAGE_INSTANT"}},
	{RolePowerLimit, []string{"DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_POWER_MGMT_LIMIT"}},
	{RoleEnergy, []string{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}},
	{RoleTemperature, []string{"DCGM_FI_DEV_GPU_TEMP"}},
	{RoleMemoryTemperature, []string{"DCGM_FI_DEV_MEMORY_TEMP"}},
	{RoleSlowdownTemperature, []string{"DCGM_FI_DEV_SLOWDOWN_TEMP"}},
	{RoleShutdownTemperature, []string{"DCGM_FI_DEV_SHUTDOWN_TEMP"}},
	{RoleClock, []string{"DCGM_FI_DEV_SM_CLOCK"}},
	{RoleMemoryClock, []string{"DCGM_FI_DEV_MEM_CLOCK"}},
	{RoleMaxClock, []string{"DCGM_FI_DEV_MAX_SM_CLOCK"}},
	{RoleClockEvents, []string{"DCGM_FI_DEV_CLOCKS_EVENT_REASONS"}},
	{RoleMemoryUsed, []string{"DCGM_FI_DEV_FB_USED"}},
	{RoleMemoryFree, []string{"DCGM_FI_DEV_FB_FREE"}},
	{RoleMemoryReserved, []string{"DCGM_FI_DEV_FB_RESERVED"}},
	{RoleMemoryTotal, []string{"DCGM_FI_DEV_FB_TOTAL"}},
	{RoleLinkThroughput, []string{"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"}},
	{RoleLinkData, []string{"DCGM_FI_DEV_NVLINK_BANDWIDTH_L*", "DCGM_FI_DEV_NVLINK_THROUGHPUT_PER_LINK"}},
	{RoleLinkSent, []string{"DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_*", "DCGM_FI_DEV_NVLINK_TX_THROUGHPUT_PER_LINK", "DCGM_FI_PROF_NVLINK_*TX_BYTES"}},
	{RoleLinkReceived, []string{"DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_*", "DCGM_FI_DEV_NVLINK_RX_THROUGHPUT_PER_LINK", "DCGM_FI_PROF_NVLINK_*RX_BYTES"}},
	{RoleLinkErrors, []string{"DCGM_FI_DEV_*NVLINK_*ERR*", "DCGM_FI_DEV_NVLINK_*UNCORRECTABLE*", "DCGM_FI_DEV_NVLINK_*LINK_DOWN*", "DCGM_FI_DEV_NVSWITCH_LINK_*ERRORS*"}},
}

// Roles returns the meanings of the readings of a field's series; none if it has no role.
func (d *Descriptor) Roles() []Meaning { return slices.Clone(index().meanings[d.ID]) }

// RoleOf returns the role of a series of a reading with these values of labels.
func (d *Descriptor) RoleOf(labels ...string) (Meaning, bool) {
	for _, m := range index().meanings[d.ID] {
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

// units are factors of units that values of one role come in.
var units = map[[2]string]float64{
	{"ratio", "%"}: 100, {"MiB", "bytes"}: 1 << 20, {"Hz", "MHz"}: 1e-6, {"kHz", "MHz"}: 1e-3,
	{"mJ", "J"}: 1e-3, {"MB/s", "bytes/s"}: 1e6, {"KB/s", "bytes/s"}: 1e3,
}

// UnitFactor returns what a value in one unit is multiplied with for another one: 1 if they are the
// same or have nothing in common.
func UnitFactor(from, to string) float64 {
	if f, ok := units[[2]string{from, to}]; ok {
		return f
	}
	return 1
}
