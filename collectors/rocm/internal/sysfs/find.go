package sysfs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/rocm/internal/gpumetrics"
)

// Limits on the driver's numbers. They are far above any node's, and low enough that a faulty list costs little memory and
// few series.
const (
	maxDevices   = 256 // GPUs and partitions of a node
	maxInstances = gpumetrics.Partitions
	maxUnits     = 1 << 16 // compute units of a partition
)

// Options selects the machine to read.
type Options struct {
	Root string           // directory that holds sys/; "" means "/"
	Log  *zap.Logger      // may be nil
	Now  func() time.Time // nil means time.Now
}

// Reader finds GPUs and opens them.
type Reader struct {
	o       Options
	decoder *gpumetrics.Decoder

	mu      sync.Mutex
	refused map[gpumetrics.Header]error // logged revisions of gpu_metrics
}

// New returns a reader and touches nothing.
func New(o Options) *Reader {
	o.Log = cmp.Or(o.Log, zap.NewNop())
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Reader{o: o, decoder: gpumetrics.New(), refused: map[gpumetrics.Header]error{}}
}

// path returns a path below /sys.
func (r *Reader) path(name string) string { return filepath.Join("/", r.o.Root, "sys", name) }

// Found is the result of Find.
type Found struct {
	GPUs    []GPU    // ordered by PCI address
	Driver  string   // amdgpu's version, else the kernel's release
	LeftOut []string // skipped cards, each with the reason
	Hidden  int      // KFD devices that this process's control group must not use
}

// Find finds the GPUs of the amdgpu driver, ordered by PCI address as in rocm-smi. The order of DRM cards depends on
// probing, and the first may be the display of the server's management controller. No GPU is not an error. Errors: ctx's
// error, or the error from listing the cards.
func (r *Reader) Find(ctx context.Context) (Found, error) {
	entries, err := os.ReadDir(r.path("class/drm"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Found{}, fmt.Errorf("list cards: %w", err)
	}
	var boards []GPU
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return Found{}, fmt.Errorf("list cards: %w", err)
		}
		if !isNode(e.Name(), "card") {
			continue
		}
		if b, ok := r.board(e.Name()); ok {
			boards = append(boards, b)
		}
	}
	slices.SortStableFunc(boards, func(a, b GPU) int { return cmp.Compare(a.PCI, b.PCI) })
	f := Found{Driver: r.driverVersion(), Hidden: r.attach(boards)}
	virtual := r.virtual()
	for i := range boards {
		boards[i].Virtual = virtual
	}
	f.GPUs, f.LeftOut = distinct(boards)
	return f, nil
}

// distinct keeps the distinguishable boards, up to the limit. If two boards have the same address or unique ID, it drops
// the second.
func distinct(boards []GPU) (kept []GPU, leftOut []string) {
	addresses, ids, devices := map[string]string{}, map[uint64]string{}, 0
	for _, b := range boards {
		n := 1
		if len(b.Instances) > 1 {
			n += len(b.Instances)
		}
		why := ""
		switch {
		case addresses[b.PCI] != "":
			why = "same PCI address as " + addresses[b.PCI]
		case b.UniqueID != 0 && ids[b.UniqueID] != "":
			why = fmt.Sprintf("same unique id %016x as %s", b.UniqueID, ids[b.UniqueID])
		case devices+n > maxDevices:
			why = fmt.Sprintf("more than %d devices", maxDevices)
		}
		if why != "" {
			leftOut = append(leftOut, fmt.Sprintf("%s at %s: %s", b.Card, b.PCI, why))
			continue
		}
		addresses[b.PCI], ids[b.UniqueID] = b.Card, b.Card
		devices += n
		kept = append(kept, b)
	}
	return kept, leftOut
}

// Driver reports whether amdgpu is loaded, and describes the files that show it: KFD's topology, or DRM cards in a
// kernel without KFD.
func (r *Reader) Driver() (what string, loaded bool) {
	kfd, module, drm := filepath.Dir(r.path(topology)), r.path("module/amdgpu"), r.path("class/drm")
	switch {
	case exists(kfd):
		return "amdgpu driver with " + kfd, true
	case !exists(module):
		return "no amdgpu driver (neither " + kfd + " nor " + module + ")", false
	}
	for _, card := range names(drm) {
		if isNode(card, "card") && number(filepath.Join(drm, card, "device"), "vendor") == vendorAMD {
			return "amdgpu driver with cards in " + drm + " but no " + kfd, true
		}
	}
	return "amdgpu driver in " + module + " but neither " + kfd + " nor an AMD card in " + drm, false
}

// isNode reports whether a name is the prefix followed by digits: card1, but not card1-DP-1.
func isNode(name, prefix string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

const vendorAMD = 0x1002

// board reads the properties of a card. It returns false for an unreadable card, and for the card of a partition after the
// first, which has no PCI device; attach finds those.
func (r *Reader) board(card string) (GPU, bool) {
	dir, err := filepath.EvalSymlinks(filepath.Join(r.path("class/drm"), card, "device"))
	if err != nil {
		return GPU{}, false
	}
	b := GPU{Card: card, PCI: filepath.Base(dir), Path: dir}
	if _, ok := parsePCI(b.PCI); !ok || number(dir, "vendor") != vendorAMD || driver(dir) != "amdgpu" {
		return GPU{}, false
	}
	b.UniqueID = uniqueID(dir)
	b.Serial, b.VBIOS, b.Number = text(dir, "serial_number"), text(dir, "vbios_version"), text(dir, "product_number")
	b.Compute, b.Memory = text(dir, "current_compute_partition"), text(dir, "current_memory_partition")
	b.Device = uint16(number(dir, "device"))
	b.Model = r.model(dir, b.Device)
	if !strings.HasPrefix(text(dir, "power/runtime_status"), "suspend") { // the link's files would wake it
		b.Bus = linkSpeed([]byte(text(dir, "max_link_speed"))) * float64(number(dir, "max_link_width")) * 1e9 / 8
	}
	for _, n := range names(filepath.Join(dir, "drm")) {
		if isNode(n, "renderD") {
			b.Render = n
		}
	}
	return b, true
}

func uniqueID(dir string) uint64 {
	id, _ := parseHex([]byte(text(dir, "unique_id")))
	return id
}

func number(dir, name string) uint64 {
	v, _ := parseUint([]byte(text(dir, name)))
	return v
}

// text returns the content of a short file without surrounding white space and invalid UTF-8, or "" if it is unreadable.
func text(dir, name string) string {
	t, _ := readText(dir, name)
	return t
}

func readText(dir, name string) (string, error) {
	const enough = 4096
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // read only
	buf := make([]byte, enough)
	n, err := f.Read(buf)
	switch {
	case err != nil:
		return "", err
	case n == enough:
		return "", ErrHuge
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(trim(buf[:n])), "")), nil
}

// driver returns the name of a device's driver, from the kernel's link or from the uevent file.
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

// driverVersion returns the version of the module, which AMD's packages set, or else the kernel's release.
func (r *Reader) driverVersion() string {
	if v := text(r.path("module/amdgpu"), "version"); v != "" {
		return v
	}
	return text(filepath.Join("/", r.o.Root, "proc/sys/kernel"), "osrelease")
}

// virtual reports whether the node is a virtual machine, from the CPU flags of the first processor.
func (r *Reader) virtual() bool {
	f, err := os.Open(filepath.Join("/", r.o.Root, "proc/cpuinfo"))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // read only
	buf := make([]byte, 8192)
	n, _ := io.ReadFull(f, buf) // a shorter file is not an error
	return bytes.Contains(buf[:n], []byte(" hypervisor"))
}

// location is a parsed PCI address.
type location struct{ domain, bus, device, function uint64 }

// parsePCI parses an address such as 0000:41:00.0.
func parsePCI(name string) (l location, ok bool) {
	_, err := fmt.Sscanf(name, "%x:%x:%x.%x", &l.domain, &l.bus, &l.device, &l.function)
	return l, err == nil && fmt.Sprintf("%04x:%02x:%02x.%x", l.domain, l.bus, l.device, l.function) == name
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// names returns a directory's sorted names, or nothing if it is unreadable.
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

const topology = "class/kfd/kfd/topology/nodes"

// attach assigns KFD's nodes to the boards and returns the number of hidden nodes.
func (r *Reader) attach(boards []GPU) (hidden int) {
	nodes, hidden := r.nodes()
	places, taken := make([]location, len(boards)), map[location]bool{}
	for i := range boards {
		places[i], _ = parsePCI(boards[i].PCI) // board has checked it
		taken[places[i]] = true
	}
	for i, at := range places {
		b := &boards[i]
		for _, n := range nodes {
			if n.at.domain != at.domain || n.at.bus != at.bus || n.at.device != at.device {
				continue
			}
			if n.at.function != at.function { // a partition with kernels before Linux 6.5, or another virtual function
				if taken[n.at] {
					continue
				}
				n.partition = n.at.function - at.function
			}
			known := func(i Instance) bool { return i.ID == int(n.partition) }
			if n.partition >= maxInstances || slices.ContainsFunc(b.Instances, known) {
				continue
			}
			n.instance.ID = int(n.partition)
			n.instance.Render = cmp.Or(n.instance.Render, b.Render)
			n.instance.Name = r.platformDevice(n.instance.Render)
			b.Instances = append(b.Instances, n.instance)
		}
		slices.SortFunc(b.Instances, func(a, b Instance) int { return cmp.Compare(a.ID, b.ID) })
	}
	return hidden
}

// platformDevice returns the device that owns a partition's render node, or "" if a board owns it.
func (r *Reader) platformDevice(render string) string {
	dir, err := filepath.EvalSymlinks(filepath.Join(r.path("class/drm"), render, "device"))
	if err != nil || render == "" || !isNode(filepath.Base(dir), "amdgpu_xcp_") {
		return ""
	}
	return filepath.Base(dir)
}

// node is one directory of the topology.
type node struct {
	at        location
	partition uint64 // from the upper bits of the location
	instance  Instance
}

// nodes lists the GPUs of the topology in its order and counts the hidden ones.
func (r *Reader) nodes() (list []node, hidden int) {
	for _, name := range names(r.path(topology)) {
		n, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		x, err := readNode(filepath.Join(r.path(topology), strconv.Itoa(n)))
		switch {
		case errors.Is(err, fs.ErrPermission):
			hidden++
		case err == nil && x.instance.KFD != 0:
			x.instance.Node = n
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b node) int { return cmp.Compare(a.instance.Node, b.instance.Node) })
	return list, hidden
}

// readNode reads a node. A CPU node has gpu_id 0. The kernel denies reading gpu_id and properties to a process whose
// device control group must not use the GPU's render node (node_show in kfd_topology.c).
func readNode(dir string) (node, error) {
	gpu, err := readText(dir, "gpu_id")
	if err != nil {
		return node{}, err
	}
	id, _ := parseUint([]byte(gpu))
	all, err := readText(dir, "properties")
	if err != nil || id == 0 {
		return node{}, err
	}
	p := properties(all)
	n := node{at: locate(p["location_id"], p["domain"]), partition: p["location_id"] >> 28 & 0xf, instance: Instance{KFD: id, Units: units(p), Memory: frameBuffer(dir)}}
	if minor := p["drm_render_minor"]; minor > 0 {
		n.instance.Render = "renderD" + strconv.FormatUint(minor, 10)
	}
	return n, nil
}

// units returns the number of compute units, or 0 if unknown.
func units(p map[string]uint64) int {
	if p["simd_per_cu"] == 0 || p["simd_count"]/p["simd_per_cu"] > maxUnits {
		return 0
	}
	return int(p["simd_count"] / p["simd_per_cu"])
}

// locate decodes location_id: bus, device, function. Since Linux 6.5 bits 28 to 31 hold the partition. Older kernels
// add the partition to the function (kfd_topology_add_device in kfd_topology.c).
func locate(id, domain uint64) location {
	return location{domain: domain, bus: id >> 8 & 0xff, device: id >> 3 & 0x1f, function: id & 7}
}

// properties parses lines "key number". It skips other lines.
func properties(text string) map[string]uint64 {
	p := map[string]uint64{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		if v, ok := parseUint([]byte(value)); ok {
			p[key] = v
		}
	}
	return p
}

// frameBuffer returns the size of a node's memory in bytes, or 0 if unknown.
func frameBuffer(dir string) (sum uint64) {
	for _, bank := range names(filepath.Join(dir, "mem_banks")) {
		p := properties(text(filepath.Join(dir, "mem_banks", bank), "properties"))
		// Heaps 1 and 2 of kfd_ioctl's topology are the frame buffer, visible to processors or not.
		if heap := p["heap_type"]; heap == 1 || heap == 2 {
			sum += p["size_in_bytes"]
		}
	}
	return sum
}

// model returns a board's market name. It tries the board's inventory memory, which only server boards have, then
// libdrm's ID list, and returns the IDs if both fail.
func (r *Reader) model(dir string, device uint16) string {
	if name := text(dir, "product_name"); name != "" {
		return name
	}
	revision := number(dir, "revision")
	for _, list := range []string{"usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids"} {
		text, _ := os.ReadFile(filepath.Join("/", r.o.Root, list)) // may be missing
		if name := strings.ToValidUTF8(findAMDGPU(string(text), device, revision), ""); name != "" {
			return name
		}
	}
	return fmt.Sprintf("AMD GPU 1002:%04x", device)
}

// findAMDGPU searches libdrm's list of lines such as "744C, C8, AMD Radeon RX 7900 XTX".
func findAMDGPU(list string, device uint16, revision uint64) string {
	for line := range strings.Lines(list) {
		id, rest, ok1 := strings.Cut(line, ",")
		rev, name, ok2 := strings.Cut(rest, ",")
		if ok1 && ok2 && sameHex(id, uint64(device)) && sameHex(rev, revision) {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

func sameHex(text string, v uint64) bool {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
	return err == nil && n == v
}
