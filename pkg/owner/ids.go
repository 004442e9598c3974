package owner

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"warpgauge/pkg/field"
)

// form is the form of a device ID.
type form uint8

// Forms of device plugins' IDs. Prefixes come from field.Vendor.
const (
	formUUID      form = iota + 1 // GPU-…
	formMIG                       // MIG-…, the UUID of a MIG device
	formMIGLegacy                 // MIG-GPU-…/3/0: GPU, GPU instance, compute instance; drivers before R470
	formNode                      // nvidia0, nvidia0/gi3: GKE's plugin
	formIndex                     // 0/vgpu1
	formPCI                       // 0000:3b:00.0: from plugins that name GPUs by address, or pass them through
	formPartition                 // a platform device, see field.Vendor.Partition
	formAll                       // all: one device for all GPUs
)

// deviceID is a parsed ID of a device plugin.
type deviceID struct {
	form     form
	name     string // same form as in devices: lower-case UUID, "nvidia0", "0", "00000000:3B:00.0", the platform device of a partition, a vendor's name for formAll
	instance string // GPU instance ID, if the ID contains it
	compute  string // compute instance ID, if the ID contains it
	replica  string // number of the share; empty if the device is not shared or its shares are not numbered
}

// Separators between device and share: NVIDIA's plugin's and GKE's.
const (
	replicaMark = "::"
	vgpuMark    = "/vgpu"
)

// parseID parses an ID of the kubelet. ok is false for an unknown form.
func parseID(id string) (out deviceID, ok bool) {
	if base, replica, found := strings.Cut(id, replicaMark); found {
		if replica != "" && !wordForm.MatchString(replica) {
			return deviceID{}, false
		}
		out, ok = parseName(base)
		out.replica = replica
		return out, ok
	}
	if base, replica, found := strings.Cut(id, vgpuMark); found {
		if numberForm.MatchString(base) {
			out, ok = deviceID{form: formIndex, name: base}, true
		} else if out, ok = parseName(base); out.form != formNode {
			return deviceID{}, false
		}
		if numberForm.MatchString(replica) {
			out.replica = replica
		}
		return out, ok
	}
	return parseName(id)
}

// parseName parses an ID without a share.
func parseName(id string) (deviceID, bool) {
	for _, v := range field.Vendors() {
		if out, ok := parseVendorID(v, id); ok {
			return out, true
		}
	}
	if address, ok := parsePCI(id); ok {
		return deviceID{form: formPCI, name: address}, true
	}
	return deviceID{}, false
}

func parseVendorID(v *field.Vendor, id string) (deviceID, bool) {
	if rest, found := cutPrefix(id, v.MIG+v.UUID); found && v.MIG != "" && v.UUID != "" {
		parts := strings.Split(rest, "/")
		if len(parts) != 3 || !uuidForm.MatchString(parts[0]) || !numberForm.MatchString(parts[1]) || !numberForm.MatchString(parts[2]) {
			return deviceID{}, false
		}
		return deviceID{form: formMIGLegacy, name: foldUUID(v.UUID + parts[0]), instance: parts[1], compute: parts[2]}, true
	}
	if rest, found := cutPrefix(id, v.MIG); found && uuidForm.MatchString(rest) {
		return deviceID{form: formMIG, name: foldUUID(id)}, true
	}
	if rest, found := cutPrefix(id, v.UUID); found && uuidForm.MatchString(rest) {
		return deviceID{form: formUUID, name: foldUUID(id)}, true
	}
	if rest, found := cutPrefix(id, v.Node); found {
		number, instance, divided := strings.Cut(rest, "/gi")
		if numberForm.MatchString(number) && (!divided || numberForm.MatchString(instance)) {
			return deviceID{form: formNode, name: v.Node + number, instance: instance}, true
		}
	}
	if number, found := cutPrefix(id, v.Partition); found && numberForm.MatchString(number) {
		return deviceID{form: formPartition, name: id}, true
	}
	if slices.Contains(v.All, id) {
		return deviceID{form: formAll, name: v.Name}, true
	}
	return deviceID{}, false
}

// cutPrefix is strings.CutPrefix for a prefix that may be missing.
func cutPrefix(s, prefix string) (string, bool) {
	if prefix == "" {
		return "", false
	}
	return strings.CutPrefix(s, prefix)
}

var pciForm = regexp.MustCompile(`^([[:xdigit:]]{4,8}):([[:xdigit:]]{2}:[[:xdigit:]]{2}\.[0-7])$`)

// parsePCI returns an address in the form of devices: a domain of eight digits, upper case.
func parsePCI(id string) (string, bool) {
	m := pciForm.FindStringSubmatch(id)
	if m == nil {
		return "", false
	}
	return strings.ToUpper(fmt.Sprintf("%08s:%s", m[1], m[2])), true
}

// foldUUID makes UUIDs comparable regardless of case.
func foldUUID(s string) string { return strings.ToLower(s) }

var (
	numberForm = regexp.MustCompile(`^\d{1,9}$`) // of plausible length for a device
	wordForm   = regexp.MustCompile(`^[\w.-]+$`) // the number of a share: letters allowed in Kubernetes names
	// uuidForm is lenient: some vendors' UUIDs have 16 digits without hyphens, and GPUs without a unique ID have their
	// address instead.
	uuidForm = regexp.MustCompile(`^[[:xdigit:]:.-]{1,64}$`)
)
