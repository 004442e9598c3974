package rocmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Kinds of links, as KFD numbers them.
const (
	linkPCIe = 2
	linkXGMI = 11
)

// links adds the missing links between KFD nodes and removes the links to GPUs that have left. It does not touch
// existing links, because a library may be reading them. Every node has both directories, even without a link: ROCm SMI
// crashes where io_links is missing.
func (t *Tree) links() error {
	if t.o.NoKFD {
		return nil
	}
	there := map[int]bool{}
	for i := range processors {
		there[i] = true
	}
	for _, g := range t.GPUs {
		for _, i := range g.Instances {
			there[i.Node] = !g.gone
		}
	}
	for from := range len(there) {
		if !there[from] {
			continue
		}
		for _, d := range []string{"io_links", "p2p_links"} {
			if err := os.MkdirAll(t.Path(node(from, d)), 0o750); err != nil {
				return err
			}
		}
		for n, to := range t.neighbours(from) {
			if err := t.linkNodes(from, to, n, there[to]); err != nil {
				return err
			}
		}
	}
	return nil
}

// neighbours are the nodes that a node has links to: processors to each other and
// to their GPUs, a GPU to its processor and, where boards have XGMI, to every other
// GPU.
func (t *Tree) neighbours(node int) []int {
	var to []int
	for p := range processors {
		if p != node && (node < processors || t.processorOf(node) == p) {
			to = append(to, p)
		}
	}
	for _, g := range t.GPUs {
		for _, i := range g.Instances {
			if i.Node != node && (node < processors && g.numa() == node || node >= processors && g.spec.xgmi) {
				to = append(to, i.Node)
			}
		}
	}
	return to
}

// processorOf is the processor next to the GPU of a node.
func (t *Tree) processorOf(node int) int {
	return t.GPUs[(node-processors)/len(t.GPUs[0].Instances)].numa()
}

// numa is the processor next to the GPU, which is its node of memory and of KFD.
func (g *GPU) numa() int { return g.Index * processors / len(g.tree.GPUs) }

// linkNodes makes or removes link number n of a node.
func (t *Tree) linkNodes(from, to, n int, there bool) error {
	name := node(from, "io_links", strconv.Itoa(n), "properties")
	if !there {
		return remove(filepath.Dir(t.Path(name)))
	}
	if _, err := os.Stat(t.Path(name)); err == nil {
		return nil
	}
	kind, weight := linkXGMI, 15
	if from < processors || to < processors {
		kind, weight = linkPCIe, 20
	}
	return t.put(name, fmt.Sprintf("type %d", kind), "version_major 0", "version_minor 0", fmt.Sprintf("node_from %d", from),
		fmt.Sprintf("node_to %d", to), fmt.Sprintf("weight %d", weight), "min_latency 0", "max_latency 0", "min_bandwidth 64000",
		"max_bandwidth 64000", "recommended_transfer_size 0", "flags 1")
}

// node is a path in the directory of a node of KFD.
func node(n int, path ...string) string {
	return filepath.Join(append([]string{"devices/virtual/kfd/kfd/topology/nodes", strconv.Itoa(n)}, path...)...)
}
