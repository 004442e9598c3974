package kube

import (
	"cmp"
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// DeviceName is the name of a device in an allocated claim.
type DeviceName struct{ Driver, Pool, Device string }

func (n DeviceName) compare(o DeviceName) int {
	return cmp.Or(cmp.Compare(n.Driver, o.Driver), cmp.Compare(n.Pool, o.Pool), cmp.Compare(n.Device, o.Device))
}

// Kind is the kind of a device in a ResourceSlice.
type Kind uint8

// Kinds.
const (
	OtherDevice Kind = iota
	WholeGPU
	MIGDevice
	GPUPartition
)

// SliceDevice is a ResourceSlice's description of a device. Empty texts are unknown.
type SliceDevice struct {
	Kind       Kind
	UUID       string
	ParentUUID string // UUID of a MIG device's GPU
	Profile    string // profile of a MIG device or partition
	PCIBusID   string // as published; for a partition its GPU's
	RenderNode string // DRM render node of an existing partition: "renderD129"
}

// sliceSpec is the needed part of a ResourceSlice of any version. v1beta1 wraps in the member basic what later versions
// have in the device itself.
type sliceSpec struct {
	Driver string
	Pool   struct {
		Name       string
		Generation int64
	}
	Devices []struct {
		Name       string
		Attributes attributes
		Basic      *struct{ Attributes attributes }
	}
}

// attributes holds the attributes of a device by name. A name without a domain belongs to the driver's domain, so uuid
// and gpu.nvidia.com/uuid are the same.
type attributes map[string]struct {
	String string
	Int    *int64
}

// readSlice returns the devices of a ResourceSlice. It returns false if no vendor's driver published it, or if mandatory
// fields are missing.
//
// The attribute names come from https://github.com/NVIDIA/k8s-dra-driver-gpu (cmd/gpu-kubelet-plugin/deviceinfo.go,
// 25.3.0 to May 2026) and https://github.com/ROCm/k8s-gpu-dra-driver (docs/driver-attributes.md, 0.1 to 1.0).
func readSlice(spec *sliceSpec) (slice, bool) {
	s := slice{driver: spec.Driver, pool: shortText(spec.Pool.Name), generation: spec.Pool.Generation}
	vendor := field.VendorByDriver(s.driver)
	if s.pool == "" || vendor == nil {
		return slice{}, false
	}
	for _, d := range spec.Devices {
		name := shortText(d.Name)
		if name == "" {
			continue
		}
		if d.Basic != nil {
			d.Attributes = d.Basic.Attributes
		}
		s.devices = append(s.devices, namedDevice{name, readDevice(vendor, name, d.Attributes)})
	}
	return s, true
}

func readDevice(v *field.Vendor, name string, a attributes) SliceDevice {
	text := func(names ...string) string { // the first one that the device has
		for _, name := range names {
			if s := cmp.Or(a[name].String, a[v.Driver+"/"+name].String); s != "" {
				return shortText(s)
			}
		}
		return ""
	}
	d := SliceDevice{
		UUID:       text("uuid"),
		ParentUUID: text("parentUUID"),
		Profile:    text("profile", "partitionProfile"),
		PCIBusID:   text("resource.kubernetes.io/pciBusID", "pcieBusID", "pciAddr", "parentPciAddr"),
	}
	if compute, memory := text("computePartition"), text("memoryPartition"); d.Profile == "" && compute != "" && memory != "" {
		d.Profile = compute + "_" + memory
	}
	switch text("type") {
	case "":
	case v.SliceGPU:
		d.Kind = WholeGPU
	case v.SliceMIG:
		d.Kind = MIGDevice
	case v.SlicePartition:
		d.Kind = GPUPartition
		// An existing partition is named gpu-CARD-RENDER. A partition that is created when a claim is prepared is
		// gpu-INDEX-COMPUTE-MEMORY and has no render node yet.
		render := ""
		if parts := strings.Split(name, "-"); len(parts) == 3 {
			render = parts[2]
		}
		if n := cmp.Or(a["renderIndex"].Int, a[v.Driver+"/renderIndex"].Int); n != nil {
			render = strconv.FormatInt(*n, 10)
		}
		if n, err := strconv.ParseUint(render, 10, 20); err == nil {
			d.RenderNode = "renderD" + strconv.FormatUint(n, 10)
		}
	}
	return d
}

// shortText returns s if it is within the API's limits, else "".
func shortText(s string) string {
	const most = 253 // bytes of the longest name; an attribute has at most 64
	if len(s) > most {
		return ""
	}
	return s
}
