package sysfs

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"warpgauge/collectors/rocm/internal/raw"
)

const topology = "class/kfd/kfd/topology/nodes"

// attach gives each board its nodes of the compute side.
func (r *Reader) attach(boards []raw.GPU) {
	nodes := r.nodes()
	for i := range boards {
		b := &boards[i]
		at, ok := parsePCI(b.PCI)
		if !ok {
			continue
		}
		for _, n := range nodes {
			if n.at.domain != at.domain || n.at.bus != at.bus || n.at.device != at.device {
				continue
			}
			n.instance.ID = len(b.Instances)
			if n.instance.Render == "" {
				n.instance.Render = b.Render
			}
			n.instance.Name = r.platformDevice(n.instance.Render)
			b.Instances = append(b.Instances, n.instance)
			b.Hive = n.hive
		}
	}
}

// platformDevice is the device that a render node of a partition belongs to,
// empty if it belongs to a board.
func (r *Reader) platformDevice(render string) string {
	dir, err := filepath.EvalSymlinks(filepath.Join(r.path("class/drm"), render, "device"))
	if err != nil || render == "" || !isNode(filepath.Base(dir), "amdgpu_xcp_") {
		return ""
	}
	return filepath.Base(dir)
}

// node is one directory of the topology.
type node struct {
	at       location
	hive     uint64
	instance raw.Instance
}

// nodes lists the GPUs of the topology in its order, which is that of partitions.
func (r *Reader) nodes() []node {
	dir := r.path(topology)
	var list []node
	for _, name := range names(dir) {
		n, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if x, ok := readNode(filepath.Join(dir, name)); ok {
			x.instance.Node = n
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b node) int { return cmp.Compare(a.instance.Node, b.instance.Node) })
	return list
}

// readNode reads a node. One of a processor has gpu_id 0, and the properties of
// one that this process may not use, by its device cgroup, are empty.
func readNode(dir string) (node, bool) {
	id := number(dir, "gpu_id")
	p := properties(text(dir, "properties"))
	if id == 0 || len(p) == 0 {
		return node{}, false
	}
	n := node{at: locate(p["location_id"], p["domain"]), hive: p["hive_id"]}
	n.instance = raw.Instance{KFD: id, XCCs: int(p["num_xcc"]), Units: units(p)}
	if minor := p["drm_render_minor"]; minor > 0 {
		n.instance.Render = "renderD" + strconv.FormatUint(minor, 10)
	}
	return n, true
}

// units is the number of compute units.
func units(p map[string]uint64) int {
	if p["simd_per_cu"] == 0 {
		return 0
	}
	return int(p["simd_count"] / p["simd_per_cu"])
}

// locate decodes location_id: bus, device, function. What else is in it is the
// partition, in bits 28 to 31 or, with older kernels, in those of the function.
func locate(id, domain uint64) location {
	return location{domain: domain, bus: id >> 8 & 0xff, device: id >> 3 & 0x1f, function: id & 7}
}

// properties reads lines "key number". Lines of another form are skipped.
func properties(text string) map[string]uint64 {
	p := map[string]uint64{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		if v, ok := ParseUint([]byte(value)); ok {
			p[key] = v
		}
	}
	return p
}

// frameBuffer is how much memory a node has, in bytes.
func frameBuffer(dir string) (uint64, bool) {
	sum, known := uint64(0), false
	for _, bank := range names(filepath.Join(dir, "mem_banks")) {
		p := properties(text(filepath.Join(dir, "mem_banks", bank), "properties"))
		// Heaps 1 and 2 of kfd_ioctl's topology are the frame buffer, visible to
		// processors or not.
		if heap := p["heap_type"]; heap == 1 || heap == 2 {
			sum, known = sum+p["size_in_bytes"], true
		}
	}
	return sum, known
}
