package owner

import (
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/podmeta"
	"warpgauge/pkg/podresources"
)

// Kinds of devices in ResourceSlices, as podmeta tells them.
const (
	sliceMIG       = "mig"
	slicePartition = "partition"
)

// claimed returns the device of a claim, or why there is none.
func (n *devices) claimed(driver, name string, s podmeta.Device) (d *collector.Device, reason string) {
	switch {
	case s.Type == sliceMIG && s.UUID != "":
		if d = n.byMIG[foldUUID(s.UUID)]; d == nil {
			return nil, reasonInstance
		}
	case s.Type == sliceMIG: // one that is made when a claim asks for it
		return n.onlyInstance(n.byUUID[foldUUID(s.ParentUUID)], s.Profile)
	case s.Type == slicePartition && driver == driverAMD:
		return n.rendered(n.byPCI[pciOf(s)], name, s.Attributes["renderIndex"])
	default:
		if d = n.byUUID[foldUUID(s.UUID)]; d == nil {
			d = n.byPCI[pciOf(s)]
		}
	}
	if d == nil {
		return nil, reasonDevice
	}
	return d, ""
}

func pciOf(s podmeta.Device) string {
	address, _ := parsePCI(s.PCIBusID)
	return address
}

// onlyInstance returns the GPU's instance of a profile if there is one only: the
// slice of an instance that is made on demand does not say which it became.
func (n *devices) onlyInstance(gpu *collector.Device, profile string) (*collector.Device, string) {
	if gpu == nil {
		return nil, reasonDevice
	}
	var found *collector.Device
	for _, d := range n.parts[gpu.ID] {
		if d.InstanceProfile != profile || profile == "" {
			continue
		}
		if found != nil {
			return nil, reasonInstance
		}
		found = d
	}
	if found == nil {
		return nil, reasonInstance
	}
	return found, ""
}

// rendered returns the partition of AMD's GPU with a render node: the slice has its
// number, and so has the device's name, gpu-1-129. Partitions that are made on
// demand (gpu-0-cpx-nps4) have neither, so nobody says which they became.
func (n *devices) rendered(gpu *collector.Device, name, minor string) (*collector.Device, string) {
	if gpu == nil {
		return nil, reasonDevice
	}
	if parts := strings.Split(name, "-"); minor == "" && len(parts) == 3 && isNumber(parts[2]) {
		minor = parts[2]
	}
	for _, d := range n.parts[gpu.ID] {
		if minor != "" && d.Node == "renderD"+minor {
			return d, ""
		}
	}
	return nil, reasonInstance
}

// claimLabels are the labels of a claim's device, by name.
func claimLabels(c *podresources.Claim, s podmeta.Device) []collector.Label {
	out := []collector.Label{
		{Name: "dra_claim_name", Value: c.Name},
		{Name: "dra_claim_namespace", Value: c.Namespace},
		{Name: "dra_device_name", Value: c.Device},
		{Name: "dra_driver_name", Value: c.Driver},
	}
	if s.Type == sliceMIG {
		out = append(out, collector.Label{Name: "dra_mig_device_uuid", Value: s.UUID}, collector.Label{Name: "dra_mig_profile", Value: s.Profile})
	}
	return append(out, collector.Label{Name: "dra_pool_name", Value: c.Pool})
}
