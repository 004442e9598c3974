package nvml

import "warpgauge/pkg/field"

// Label fields with a text, by DCGM's ids. Those with a number come from the table
// of readings.
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

// textFacts are all of them, for the documentation.
func textFacts() []field.ID {
	return []field.ID{
		factDriver, factNVML, factName, factBrand, factSerial, factUUID, factOEMVersion, factPCI,
		factVisibleDevices, factECCVersion, factPowerVersion, factImageVersion, factVBIOS, factCluster, factGUID, factChassis,
	}
}
