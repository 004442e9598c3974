package kube

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

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

// readSlice converts a ResourceSlice of any version. It returns false if no vendor's driver published it, or if
// mandatory fields are missing. v1beta1 wraps in the field basic the fields that later versions have in the device
// itself.
//
// The attribute names come from https://github.com/NVIDIA/k8s-dra-driver-gpu (cmd/gpu-kubelet-plugin/deviceinfo.go,
// 25.3.0 to May 2026) and https://github.com/ROCm/k8s-gpu-dra-driver (docs/driver-attributes.md, 0.1 to 1.0).
func readSlice(object map[string]any) (slice, bool) {
	spec := child(object, "spec")
	pool := child(spec, "pool")
	s := slice{
		pool:       poolName{driver: shortText(spec["driver"]), name: shortText(pool["name"])},
		generation: integer(pool["generation"]),
		count:      integer(pool["resourceSliceCount"]),
	}
	vendor := field.VendorByDriver(s.pool.driver)
	if s.pool.name == "" || vendor == nil {
		return slice{}, false
	}
	list, _ := spec["devices"].([]any)
	for _, element := range list {
		device, _ := element.(map[string]any)
		name := shortText(device["name"])
		if name == "" {
			continue
		}
		published := child(device, "attributes")
		if basic := child(device, "basic"); basic != nil {
			published = child(basic, "attributes")
		}
		s.devices = append(s.devices, namedDevice{name, readDevice(vendor, name, attributes{vendor.Driver, published})})
	}
	return s, true
}

func readDevice(v *field.Vendor, name string, a attributes) SliceDevice {
	d := SliceDevice{
		UUID:       a.text("uuid"),
		ParentUUID: a.text("parentUUID"),
		Profile:    a.text("profile", "partitionProfile"),
		PCIBusID:   a.text("resource.kubernetes.io/pciBusID", "pcieBusID", "pciAddr", "parentPciAddr"),
	}
	if compute, memory := a.text("computePartition"), a.text("memoryPartition"); d.Profile == "" && compute != "" && memory != "" {
		d.Profile = compute + "_" + memory
	}
	switch kind := a.text("type"); {
	case kind == "":
	case kind == v.SliceGPU:
		d.Kind = WholeGPU
	case kind == v.SliceMIG:
		d.Kind = MIGDevice
	case kind == v.SlicePartition:
		d.Kind = GPUPartition
		render := a.number("renderIndex")
		// An existing partition is named gpu-CARD-RENDER. A partition that is created when a claim is prepared is
		// gpu-INDEX-COMPUTE-MEMORY and has no render node yet.
		if parts := strings.Split(name, "-"); render == "" && len(parts) == 3 {
			render = parts[2]
		}
		if n, err := strconv.ParseUint(render, 10, 20); err == nil {
			d.RenderNode = "renderD" + strconv.FormatUint(n, 10)
		}
	}
	return d
}

// attributes are the attributes of a device. A name without a domain belongs to the driver's domain, so uuid and
// gpu.nvidia.com/uuid are the same.
type attributes struct {
	driver string
	all    map[string]any
}

// value returns the value of the first name that has one of the given type.
func (a attributes) value(kind string, names ...string) any {
	for _, name := range names {
		for _, key := range []string{name, a.driver + "/" + name} {
			if v, ok := child(a.all, key)[kind]; ok {
				return v
			}
		}
	}
	return nil
}

func (a attributes) text(names ...string) string { return shortText(a.value("string", names...)) }

func (a attributes) number(name string) string {
	v := a.value("int", name)
	if v == nil {
		return ""
	}
	return strconv.FormatInt(integer(v), 10)
}

func child(m map[string]any, key string) map[string]any {
	c, _ := m[key].(map[string]any)
	return c
}

// maxText bounds an attribute or name; the API allows 64 bytes for an attribute and 253 for the longest name.
const maxText = 253

// shortText returns v if it is a UTF-8 text within the API's limits, else "".
func shortText(v any) string {
	s, _ := v.(string)
	if len(s) > maxText || !utf8.ValidString(s) {
		return ""
	}
	return s
}

func integer(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		if n == math.Trunc(n) && math.Abs(n) <= 1<<53 {
			return int64(n)
		}
	}
	return 0
}
