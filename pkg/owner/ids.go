package owner

import (
	"fmt"
	"strings"
)

// Form is how an id names a device.
type Form uint8

// The forms that device plugins use.
const (
	FormUUID      Form = iota + 1 // GPU-…
	FormMIG                       // MIG-…, the UUID of a MIG device
	FormMIGLegacy                 // MIG-GPU-…/3/0: GPU, GPU instance, compute instance; drivers before R470
	FormNode                      // nvidia0, nvidia0/gi3: GKE's plugin
	FormIndex                     // 0/vgpu1
	FormPCI                       // 0000:3b:00.0: AMD's plugin, and those that pass GPUs through
	FormPartition                 // amdgpu_xcp_1: AMD's plugin
	FormAll                       // all: NVIDIA's plugin on WSL, which has one device for all GPUs; tegra: on Tegra, likewise
)

// ID is what a device plugin calls a device, taken apart.
type ID struct {
	Form     Form
	Name     string // in the form in which devices are looked up: lower-case UUID, "nvidia0", "0", "00000000:3B:00.0", "amdgpu_xcp_1"
	Instance string // id of the GPU instance, if the id names one by number
	Compute  string // id of the compute instance, likewise
	Replica  string // which share of the device; "" if it is not shared, or not numbered
}

// What separates the share from the device: that of NVIDIA's plugin and that of GKE's.
const (
	replicaMark = "::"
	vgpuMark    = "/vgpu"
)

// ParseID takes an id of the kubelet apart. ok is false for what is none of the
// forms.
func ParseID(id string) (out ID, ok bool) {
	if base, replica, found := strings.Cut(id, replicaMark); found {
		if !isWord(replica) {
			return ID{}, false
		}
		out, ok = parseUUID(base)
		if !ok {
			out, ok = parsePlain(base)
		}
		out.Replica = replica
		return out, ok && out.Form != FormIndex
	}
	if base, replica, found := strings.Cut(id, vgpuMark); found {
		out, ok = parseNode(base)
		if !ok && isNumber(base) {
			out, ok = ID{Form: FormIndex, Name: base}, true
		}
		if ok && isNumber(replica) {
			out.Replica = replica
		}
		return out, ok
	}
	if out, ok = parseUUID(id); ok {
		return out, true
	}
	return parsePlain(id)
}

// parsePlain is for forms that are neither UUIDs nor shares of GKE's.
func parsePlain(id string) (ID, bool) {
	if out, ok := parseNode(id); ok {
		return out, true
	}
	if address, ok := parsePCI(id); ok {
		return ID{Form: FormPCI, Name: address}, true
	}
	if number, found := strings.CutPrefix(id, "amdgpu_xcp_"); found && isNumber(number) {
		return ID{Form: FormPartition, Name: id}, true
	}
	if id == "all" || id == "tegra" {
		return ID{Form: FormAll, Name: id}, true
	}
	return ID{}, false
}

func parseUUID(id string) (ID, bool) {
	if rest, found := strings.CutPrefix(id, "MIG-GPU-"); found {
		parts := strings.Split(rest, "/")
		if len(parts) != 3 || !isUUID(parts[0]) || !isNumber(parts[1]) || !isNumber(parts[2]) {
			return ID{}, false
		}
		return ID{Form: FormMIGLegacy, Name: foldUUID("GPU-" + parts[0]), Instance: parts[1], Compute: parts[2]}, true
	}
	if rest, found := strings.CutPrefix(id, "MIG-"); found && isUUID(rest) {
		return ID{Form: FormMIG, Name: foldUUID(id)}, true
	}
	if rest, found := strings.CutPrefix(id, "GPU-"); found && isUUID(rest) {
		return ID{Form: FormUUID, Name: foldUUID(id)}, true
	}
	return ID{}, false
}

// parseNode takes nvidia0 and nvidia0/gi3 apart.
func parseNode(id string) (ID, bool) {
	number, found := strings.CutPrefix(id, "nvidia")
	if !found {
		return ID{}, false
	}
	number, instance, divided := strings.Cut(number, "/gi")
	if !isNumber(number) || divided && !isNumber(instance) {
		return ID{}, false
	}
	return ID{Form: FormNode, Name: "nvidia" + number, Instance: instance}, true
}

// parsePCI returns an address as devices carry it: a domain of eight digits,
// upper case.
func parsePCI(id string) (string, bool) {
	domain, rest, found := strings.Cut(id, ":")
	if !found || len(domain) < 4 || len(domain) > 8 || !isHex(domain) {
		return "", false
	}
	// What follows is bb:dd.f.
	if len(rest) != 7 || rest[2] != ':' || rest[5] != '.' || !isHex(rest[:2]) || !isHex(rest[3:5]) || rest[6] < '0' || rest[6] > '7' {
		return "", false
	}
	return strings.ToUpper(fmt.Sprintf("%08s:%s", domain, rest)), true
}

// foldUUID makes UUIDs comparable, however their digits are written.
func foldUUID(s string) string { return strings.ToLower(s) }

// isNumber reports whether s is a decimal number of a length that numbers of
// devices have.
func isNumber(s string) bool {
	return s != "" && len(s) <= 9 && strings.Trim(s, "0123456789") == ""
}

func isHex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// isUUID is lenient: AMD's have 16 digits without hyphens, and GPUs without a
// unique id are called by their address.
func isUUID(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "0123456789abcdefABCDEF-:.") == ""
}

// isWord reports whether s may number a share: whatever a plugin thinks of, in
// the letters of a Kubernetes name.
func isWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return s != ""
}
