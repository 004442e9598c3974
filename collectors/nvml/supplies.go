//go:build linux && cgo

package nvml

import "warpgauge/pkg/field"

// Text label fields, by DCGM's IDs. Numeric label fields come from the table of readings.
const (
	factDriver         field.ID = 1
	factNVML           field.ID = 2
	factName           field.ID = 50
	factBrand          field.ID = 51
	factSerial         field.ID = 53
	factUUID           field.ID = 54
	factOEMVersion     field.ID = 56
	factPCI            field.ID = 57
	factVisibleDevices field.ID = 68
	factECCVersion     field.ID = 80
	factPowerVersion   field.ID = 81
	factImageVersion   field.ID = 82
	factVBIOS          field.ID = 85
	factCluster        field.ID = 172
	factGUID           field.ID = 571
	factChassis        field.ID = 572
)

// textFacts returns all text label fields.
func textFacts() []field.ID {
	return []field.ID{
		factDriver, factNVML, factName, factBrand, factSerial, factUUID, factOEMVersion, factPCI,
		factVisibleDevices, factECCVersion, factPowerVersion, factImageVersion, factVBIOS, factCluster, factGUID, factChassis,
	}
}

// Has returns a function that reports whether the collector supplies a field on some GPU and driver.
func Has() func(*field.Descriptor) bool {
	has := map[field.ID]bool{
		field.XIDErrors: true, field.XIDErrorsCount: true, field.XIDErrorsTotal: true,
		field.ClockEventsCount: true, field.ClockEventsTotal: true, field.GPUHealth: true, field.P2PStatus: true,
	}
	for _, r := range allReadings() {
		has[r.id] = true
	}
	for _, p := range profilings() {
		has[p.id] = true
	}
	for _, id := range textFacts() {
		has[id] = true
	}
	return func(d *field.Descriptor) bool { return has[d.ID] }
}
