package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"warpgauge/collectors/rocm/internal/raw"
)

// boards lists the GPUs of DRM whose driver is amdgpu. A card that cannot be
// read is left out.
func (r *Reader) boards() ([]raw.GPU, error) {
	entries, err := os.ReadDir(r.path("class/drm"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list cards: %w", err)
	}
	var boards []raw.GPU
	for _, e := range entries {
		if !isNode(e.Name(), "card") {
			continue
		}
		if b, ok := r.board(e.Name()); ok {
			boards = append(boards, b)
		}
	}
	slices.SortFunc(boards, func(a, b raw.GPU) int { return cmp.Compare(a.PCI, b.PCI) })
	r.attach(boards)
	return boards, nil
}

// isNode reports whether a name is a prefix and digits: card1, but not card1-DP-1.
func isNode(name, prefix string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

const vendorAMD = 0x1002

// board reads what a card is. The cards of a board's other partitions have no
// PCI device and are no boards: topology.go finds them.
func (r *Reader) board(card string) (raw.GPU, bool) {
	dir, err := filepath.EvalSymlinks(filepath.Join(r.path("class/drm"), card, "device"))
	if err != nil {
		return raw.GPU{}, false
	}
	b := raw.GPU{Card: card, PCI: filepath.Base(dir), Path: dir}
	if _, ok := parsePCI(b.PCI); !ok || number(dir, "vendor") != vendorAMD || driver(dir) != "amdgpu" {
		return raw.GPU{}, false
	}
	b.UniqueID = uniqueID(dir)
	b.Serial, b.VBIOS = text(dir, "serial_number"), text(dir, "vbios_version")
	b.DeviceID = uint16(number(dir, "device"))
	b.Compute, b.Memory = text(dir, "current_compute_partition"), text(dir, "current_memory_partition")
	b.Model = r.model(dir, b.DeviceID)
	// Only APUs show the voltage of their north bridge.
	b.APU = text(hwmonOf(dir), "in1_label") == "vddnb"
	for _, n := range names(filepath.Join(dir, "drm")) {
		if isNode(n, "renderD") {
			b.Render = n
		}
	}
	return b, true
}

func uniqueID(dir string) uint64 {
	id, _ := ParseHex([]byte(text(dir, "unique_id")))
	return id
}

func number(dir, name string) uint64 {
	v, _ := ParseUint([]byte(text(dir, name)))
	return v
}

// text is a short file of a directory without white space around it, "" if it
// cannot be read.
func text(dir, name string) string {
	const enough = 4096
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // read only
	buf := make([]byte, enough)
	n, err := f.Read(buf)
	if err != nil || n == enough {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(trim(buf[:n])), ""))
}

// driver is the name of the driver that serves a device, by the link that the
// kernel keeps, or by its uevent.
func driver(dir string) string {
	if link, err := os.Readlink(filepath.Join(dir, "driver")); err == nil {
		return filepath.Base(link)
	}
	for line := range strings.Lines(text(dir, "uevent")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DRIVER="); ok {
			return name
		}
	}
	return ""
}

// location is a PCI address in numbers.
type location struct{ domain, bus, device, function uint64 }

// parsePCI reads an address such as 0000:41:00.0.
func parsePCI(name string) (location, bool) {
	domain, rest, ok1 := strings.Cut(name, ":")
	bus, rest, ok2 := strings.Cut(rest, ":")
	device, function, ok3 := strings.Cut(rest, ".")
	if !ok1 || !ok2 || !ok3 || len(bus) != 2 || len(device) != 2 || len(function) != 1 {
		return location{}, false
	}
	var l location
	var ok [4]bool
	l.domain, ok[0] = ParseHex([]byte(domain))
	l.bus, ok[1] = ParseHex([]byte(bus))
	l.device, ok[2] = ParseHex([]byte(device))
	l.function, ok[3] = ParseHex([]byte(function))
	return l, !slices.Contains(ok[:], false)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// names lists a directory in order, empty if it cannot be read.
func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Name()
	}
	return list
}

// driverVersion is the version of amdgpu: that of the module, which AMD's own
// packages set, else the kernel's release.
func (r *Reader) driverVersion() string {
	if v := text(r.path("module/amdgpu"), "version"); v != "" {
		return v
	}
	return text(filepath.Join("/", r.o.Root, "proc/sys/kernel"), "osrelease")
}
