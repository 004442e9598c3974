package rocmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// GPU is one simulated GPU: a board, or one die of it.
type GPU struct {
	Index    int    // in order of PCI address
	PCI      string // "0000:41:00.0"
	Card     string // "card1"
	Render   string // "renderD128"
	UniqueID uint64
	Serial   string

	// Instances lists the KFD devices: one, or several if the board is
	// partitioned. The first shares the GPU's card and render node.
	Instances []Instance

	State State // contents of the files; change it with Update

	tree   *Tree
	spec   spec
	pinned map[string]bool // files that a test has taken over
	gone   bool
}

// Instance is one device of the compute side.
type Instance struct {
	Index  int
	Node   int // directory in kfd/topology/nodes
	KFD    uint64
	Render string
	Card   string
	Name   string // platform device, "amdgpu_xcp_1"; "" for the first, which is the PCI device
}

func newGPU(t *Tree, m spec, i int) *GPU {
	mode := t.o.Partition
	first0 := 1
	if t.o.NoBMC {
		first0 = 0
	}
	g := &GPU{
		Index: i, tree: t, spec: m,
		PCI:      fmt.Sprintf("0000:%02x:00.0", 0x41+i*8),
		UniqueID: 0x5a1c0de000000000 + uint64(i)*0x1f3d5b79,
		Serial:   fmt.Sprintf("PCB%06d", 31415+i/m.dies*7),
		State:    first(m, i),
		pinned:   map[string]bool{},
	}
	n := m.instances(mode)
	for k := range n {
		at := i*n + k
		inst := Instance{
			Index: k, Node: processors + at, KFD: 51000 + uint64(at)*617,
			Render: "renderD" + strconv.Itoa(128+at), Card: "card" + strconv.Itoa(first0+at),
		}
		if k > 0 {
			inst.Name = "amdgpu_xcp_" + strconv.Itoa(i*(n-1)+k)
		}
		g.Instances = append(g.Instances, inst)
	}
	g.Card, g.Render = g.Instances[0].Card, g.Instances[0].Render
	return g
}

// Path returns the file of a key. A key is a path below the GPU's device directory, where hwmon/ means the directory of the
// GPU's sensors. A key that starts with kfd/ is below the node of the first instance.
func (g *GPU) Path(key string) string {
	if rest, ok := strings.CutPrefix(key, "kfd/"); ok {
		return g.tree.Path(node(g.Instances[0].Node, rest))
	}
	return g.tree.Path(g.dir() + "/" + g.real(key))
}

func (g *GPU) real(key string) string {
	if rest, ok := strings.CutPrefix(key, "hwmon/"); ok {
		return fmt.Sprintf("hwmon/hwmon%d/%s", 40+g.Index, rest)
	}
	return key
}

func (g *GPU) dir() string {
	bus := 0x40 + g.Index*8
	return fmt.Sprintf("devices/pci0000:%02x/0000:%02x:01.1/%s", bus, bus, g.PCI)
}

// Update changes the GPU's state and its files.
func (g *GPU) Update(tb testing.TB, f func(s *State)) {
	tb.Helper()
	f(&g.State)
	must(tb, g.write())
}

// Set writes the file of a key, which then stays unchanged until Reset.
func (g *GPU) Set(tb testing.TB, key, text string) {
	tb.Helper()
	path := g.Path(key)
	g.pinned[key] = true
	err := os.MkdirAll(filepath.Dir(path), 0o750)
	if err == nil {
		err = overwrite(path, []byte(text), false)
	}
	must(tb, err)
}

// Remove removes the file of a key until Reset. For readers that have it open it becomes empty.
func (g *GPU) Remove(tb testing.TB, key string) {
	tb.Helper()
	g.pinned[key] = true
	must(tb, remove(g.Path(key)))
}

// Reset restores the file of a key, which follows the GPU's state again. Files that never change get their original text.
func (g *GPU) Reset(tb testing.TB, key string) {
	tb.Helper()
	delete(g.pinned, key)
	path := g.Path(key)
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().IsRegular():
		err = os.Truncate(path, 0) // readers that have it open keep it
	case err == nil:
		err = remove(path)
	case os.IsNotExist(err):
		err = nil
	}
	if err == nil {
		err = g.build()
	}
	must(tb, err)
}

// remove removes a file or a directory. It first empties all files.
func remove(path string) error {
	if err := empty(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.RemoveAll(path)
}

// overwrite changes a file in place with one write, so that a concurrent reader never sees an empty file. With pad it fills
// the text with line ends to the old length, so that the end of the old text disappears. Readers of sysfs ignore line ends.
func overwrite(path string, text []byte, pad bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if info, err := f.Stat(); err == nil && pad {
		for int64(len(text)) < info.Size() {
			text = append(text, '\n')
		}
	}
	_, err = f.WriteAt(text, 0)
	if err == nil && !pad {
		err = f.Truncate(int64(len(text)))
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
