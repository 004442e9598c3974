package owner

import (
	"fmt"
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
	formPCI                       // 0000:3b:00.0: plugins that know GPUs by address, or pass them through
	formPartition                 // a platform device, see field.Vendor.Partition
	formAll                       // all: one device for all GPUs
)

// deviceID is a parsed ID of a device plugin.
type deviceID struct {
	form     form
	name     string // as in devices: lower-case UUID, "nvidia0", "0", "00000000:3B:00.0", the platform device of a partition, a vendor's name for formAll
	instance string // GPU instance ID, if the ID has its number
	compute  string // compute instance ID, if the ID has its number
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
		if replica != "" && !isWord(replica) {
			return deviceID{}, false
		}
		out, ok = parseName(base)
		out.replica = replica
		return out, ok
	}
	if base, replica, found := strings.Cut(id, vgpuMark); found {
		if isNumber(base) {
			out, ok = deviceID{form: formIndex, name: base}, true
		} else if out, ok = parseName(base); out.form != formNode {
			return deviceID{}, false
		}
		if isNumber(replica) {
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
		ok := len(parts) == 3 && isUUID(parts[0]) && isNumber(parts[1]) && isNumber(parts[2])
		if !ok {
			return deviceID{}, false
		}
		return deviceID{form: formMIGLegacy, name: foldUUID(v.UUID + parts[0]), instance: parts[1], compute: parts[2]}, true
	}
	if rest, found := cutPrefix(id, v.MIG); found && isUUID(rest) {
		return deviceID{form: formMIG, name: foldUUID(id)}, true
	}
	if rest, found := cutPrefix(id, v.UUID); found && isUUID(rest) {
		return deviceID{form: formUUID, name: foldUUID(id)}, true
	}
	if rest, found := cutPrefix(id, v.Node); found {
		number, instance, divided := strings.Cut(rest, "/gi")
		if isNumber(number) && (!divided || isNumber(instance)) {
			return deviceID{form: formNode, name: v.Node + number, instance: instance}, true
		}
	}
	if number, found := cutPrefix(id, v.Partition); found && isNumber(number) {
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

// parsePCI returns an address in the form of devices: a domain of eight digits, upper case.
func parsePCI(id string) (string, bool) {
	domain, rest, found := strings.Cut(id, ":")
	if !found || len(domain) < 4 || len(domain) > 8 || !isHex(domain) {
		return "", false
	}
	// The rest is bb:dd.f.
	if len(rest) != 7 || rest[2] != ':' || rest[5] != '.' || !isHex(rest[:2]) || !isHex(rest[3:5]) || rest[6] < '0' || rest[6] > '7' {
		return "", false
	}
	return strings.ToUpper(fmt.Sprintf("%08s:%s", domain, rest)), true
}

// foldUUID makes UUIDs comparable regardless of case.
func foldUUID(s string) string { return strings.ToLower(s) }

// isNumber reports whether s is a decimal number of plausible length for a device.
func isNumber(s string) bool {
	return s != "" && len(s) <= 9 && strings.Trim(s, "0123456789") == ""
}

func isHex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// isUUID is lenient: some vendors' UUIDs have 16 digits without hyphens, and GPUs without a unique ID have their address
// instead.
func isUUID(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "0123456789abcdefABCDEF-:.") == ""
}

// isWord reports whether s can number a share: letters allowed in Kubernetes names.
func isWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	})
}
