package podmeta

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Drivers whose devices are known. Attribute names are those of their sources:
// https://github.com/NVIDIA/k8s-dra-driver-gpu (cmd/gpu-kubelet-plugin/deviceinfo.go, 25.3.0 to
// May 2026) and https://github.com/ROCm/k8s-gpu-dra-driver (docs/driver-attributes.md, 0.1 to 1.0).
const (
	driverNVIDIA = "gpu.nvidia.com"
	driverAMD    = "gpu.amd.com"
)

// maxText bounds what is taken from an attribute or name; the API allows 64 bytes for
// an attribute and 253 for the longest name.
const maxText = 253

// sliceOf converts a ResourceSlice of any version; false: not of a driver that is
// known, or without what every slice has. The field basic is where v1beta1 has what
// later versions have in the device itself.
func sliceOf(object map[string]any) (slice, bool) {
	spec := child(object, "spec")
	pool := child(spec, "pool")
	s := slice{
		pool:       poolName{driver: text(spec["driver"]), name: text(pool["name"])},
		generation: whole64(pool["generation"]),
		count:      whole64(pool["resourceSliceCount"]),
	}
	if s.pool.name == "" || s.pool.driver != driverNVIDIA && s.pool.driver != driverAMD {
		return slice{}, false
	}
	list, _ := spec["devices"].([]any)
	for _, element := range list {
		device, _ := element.(map[string]any)
		name := text(device["name"])
		if name == "" {
			continue
		}
		published := child(device, "attributes")
		if basic := child(device, "basic"); basic != nil {
			published = child(basic, "attributes")
		}
		s.devices = append(s.devices, namedDevice{name: name, Device: deviceOf(s.pool.driver, name, attributes{s.pool.driver, published})})
	}
	return s, true
}

func deviceOf(driver, name string, a attributes) Device {
	d := Device{
		Type:       typeOf(a.text("type")),
		UUID:       a.text("uuid"),
		ParentUUID: a.text("parentUUID"),
		Profile:    a.text("profile", "partitionProfile"),
		PCIBusID:   busID(a.text(standard+"pciBusID", "pcieBusID", "pciAddr", "parentPciAddr")),
		Index:      -1,
	}
	if i, err := strconv.ParseInt(a.number("index"), 10, 32); err == nil && i >= 0 {
		d.Index = int(i)
	}
	d.read(driver, name, a)
	return d
}

// FromName returns what the name of a device tells by itself, for claims whose
// slice was never seen; false: nothing. The Attributes minor and parentMinor are those
// of NVIDIA's device files, renderIndex that of an AMD device's DRM file.
func FromName(n DeviceName) (Device, bool) {
	d := Device{Index: -1}
	d.read(n.Driver, n.Device, attributes{})
	switch {
	case d.Attributes["parentMinor"] != "":
		d.Type = "mig"
	case d.Attributes["minor"] != "":
		d.Type = "gpu"
	}
	return d, d.Attributes != nil
}

// read adds what is particular to a driver.
func (d *Device) read(driver, name string, a attributes) {
	switch driver {
	case driverNVIDIA:
		d.nvidia(name, a)
	case driverAMD:
		d.amd(name, a)
	}
}

// nvidia adds what names tell: gpu-MINOR; gpu-MINOR-mig-PROFILE-ID-START with the id of
// the GPU instance's profile and the first of its memory slices, which is all there is
// of a MIG device before it is made. Up to 25.8 that was gpu-MINOR-mig-ID-START-SIZE.
func (d *Device) nvidia(name string, a attributes) {
	d.note("minor", a.number("minor"))
	if m := nvidiaGPU.FindStringSubmatch(name); m != nil {
		d.note("minor", m[1])
	}
	m := nvidiaMIG.FindStringSubmatch(name)
	if m == nil {
		return
	}
	id, start := m[3], m[4]
	if digits.MatchString(m[2]) {
		id, start = m[2], m[3]
	}
	d.note("parentMinor", m[1])
	d.note("profileID", id)
	d.note("placementStart", start)
}

// amd adds what names tell: gpu-CARD-RENDER for what exists, gpu-INDEX-COMPUTE-MEMORY
// for partitions that are made when a claim is prepared.
func (d *Device) amd(name string, a attributes) {
	if compute, memory := a.text("computePartition"), a.text("memoryPartition"); d.Profile == "" && compute != "" && memory != "" {
		d.Profile = compute + "_" + memory
	}
	for _, key := range []string{"cardIndex", "renderIndex", "gpuIndex", "isVF"} {
		d.note(key, a.number(key))
	}
	if m := amdDRM.FindStringSubmatch(name); m != nil {
		d.note("cardIndex", m[1])
		d.note("renderIndex", m[2])
	}
}

// note keeps the first that is known.
func (d *Device) note(key, value string) {
	if value == "" || d.Attributes[key] != "" {
		return
	}
	if d.Attributes == nil {
		d.Attributes = make(map[string]string)
	}
	d.Attributes[key] = value
}

func typeOf(published string) string {
	switch published {
	case "amdgpu":
		return "gpu"
	case "amdgpu-partition":
		return "partition"
	}
	return published
}

var (
	nvidiaGPU = regexp.MustCompile(`^gpu-([0-9]{1,6})$`)
	nvidiaMIG = regexp.MustCompile(`^gpu-([0-9]{1,6})-mig-([0-9a-z-]+)-([0-9]{1,6})-([0-9]{1,6})$`)
	amdDRM    = regexp.MustCompile(`^gpu-([0-9]{1,6})-([0-9]{1,6})$`)
	digits    = regexp.MustCompile(`^[0-9]+$`)
	address   = regexp.MustCompile(`^([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$`)
)

// busID brings an address into the form of sysfs. NVML's has eight digits of domain.
func busID(published string) string {
	m := address.FindStringSubmatch(strings.ToLower(published))
	if m == nil {
		return ""
	}
	domain := m[1]
	for len(domain) > 4 && domain[0] == '0' {
		domain = domain[1:]
	}
	return domain + ":" + m[2] + ":" + m[3] + "." + m[4]
}

// standard is the domain of attributes that mean the same for all drivers.
const standard = "resource.kubernetes.io/"

// attributes of a device. A name without a domain is in the driver's, so that uuid
// and gpu.nvidia.com/uuid are the same.
type attributes struct {
	driver string
	all    map[string]any
}

// value returns that of the first name that is there.
func (a attributes) value(kinds []string, names ...string) any {
	for _, name := range names {
		for _, key := range []string{name, a.driver + "/" + name} {
			for _, kind := range kinds {
				if v, ok := child(a.all, key)[kind]; ok {
					return v
				}
			}
		}
	}
	return nil
}

func (a attributes) text(names ...string) string {
	return text(a.value([]string{"string"}, names...))
}

// number returns an int or bool as text.
func (a attributes) number(name string) string {
	switch v := a.value([]string{"int", "bool"}, name).(type) {
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= 1<<53 {
			return strconv.FormatInt(int64(v), 10)
		}
	}
	return ""
}

func child(m map[string]any, key string) map[string]any {
	c, _ := m[key].(map[string]any)
	return c
}

// text is empty for what is none, is no UTF-8 or is too long for the API.
func text(v any) string {
	s, _ := v.(string)
	if len(s) > maxText || !utf8.ValidString(s) {
		return ""
	}
	return s
}

func whole64(v any) int64 {
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
