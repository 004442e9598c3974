package nvmltest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"warpgauge/collectors/internal/simulated"
)

// Host selects functions without a device, or all GPUs.
const Host = -1

// Node is one simulated node. Its methods may be called by several goroutines,
// while the library is in use; each change is complete when the method returns.
type Node struct {
	config Config
	lib    *library
	fail   func(error)
	alone  bool // the library is only for this Node

	dir    string // contains dev and proc
	base   []string
	driver driver
	gpus   int
	model  string

	mu                 sync.Mutex
	closed             bool
	clock              clock
	sets               []setting
	faults             []fault
	loads              []string
	mig                map[int][]Instance
	extra              []string
	procs              map[int][]string
	events             []string
	nextID             uint64
	absent             map[int]bool
	unloaded, mismatch bool              // driver faults
	calls              map[string]uint64 // counts at the last ResetCalls
}

// setting is a value that differs from the preset's.
type setting struct{ gpu, key, value string }

// prepare reads the preset and makes the node's devices.
func (n *Node) prepare() error {
	p, err := readPreset(n.config.Preset)
	if err != nil {
		return err
	}
	if n.driver, err = findDriver(n.config.Driver); err != nil {
		return err
	}
	n.gpus, n.model = p.gpus, p.model
	if n.config.GPUs > 0 {
		n.gpus = n.config.GPUs
	}
	n.mig, n.absent, n.calls = make(map[int][]Instance), make(map[int]bool), make(map[string]uint64)
	n.procs = make(map[int][]string)
	n.nextID = uint64(time.Now().UnixNano())
	n.clock.start()
	n.base = slices.Concat(identity(n.gpus), profileLines(n.config.Preset), p.lines, n.config.Lines)
	for gpu, profiles := range p.mig {
		if gpu < n.gpus {
			if n.mig[gpu], err = instances(n.config.Preset, gpu, profiles); err != nil {
				return err
			}
		}
	}
	for gpu, profiles := range n.config.MIG {
		if n.mig[gpu], err = instances(n.config.Preset, gpu, profiles); err != nil {
			return err
		}
	}
	if n.dir == "" {
		if n.dir, err = os.MkdirTemp("", "nvmltest-"); err != nil {
			return err
		}
	}
	return n.makeDevices()
}

// Library returns the path of the simulated libnvidia-ml.so.1, for --nvml-library.
func (n *Node) Library() string { return n.lib.Path }

// Root returns a directory with proc/driver/nvidia and dev, like "/" on a node with a driver.
func (n *Node) Root() string { return n.dir }

// GPUs returns the number of boards, absent ones included.
func (n *Node) GPUs() int { return n.gpus }

// Close removes the node and its files. The library then shows the previous Node, if any. The error reports script
// lines that the library could not read.
func (n *Node) Close() error {
	n.mu.Lock()
	closed := n.closed
	n.closed, n.faults = true, nil
	n.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if nodes.shown(n) {
		err = n.show() // ends the hanging calls
	}
	bad := n.scriptError()
	return errors.Join(err, bad, nodes.pop(n), os.RemoveAll(n.dir))
}

// scriptError returns the script lines that the library could not read, or nil.
func (n *Node) scriptError() error {
	bad, err := n.lib.Control.Read(simulated.Errors)
	if err != nil || bad == 0 {
		return err
	}
	if err := n.lib.Control.Write(simulated.Errors, 0); err != nil {
		return err
	}
	return fmt.Errorf("simulated NVML: %s", n.lib.Control.Message())
}

// show makes the library read the node's script.
func (n *Node) show() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lib.Write(n.text())
}

// change applies f and tells the library, if it shows this node.
func (n *Node) change(f func() error) {
	n.mu.Lock()
	err := f()
	n.mu.Unlock()
	if err == nil && nodes.shown(n) {
		err = n.show()
	}
	if err != nil {
		n.fail(err)
	}
}

func (n *Node) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("node driver %s", n.driver.version)
	line("node nvml %s", n.driver.nvmlVersion())
	line("node cuda %d", n.driver.cuda)
	line("node fields %d", n.driver.fields)
	line("node gpm %d", n.driver.gpm)
	line("node dev %s", filepath.Join(n.dir, "dev"))
	line("gpus %d", n.gpus)
	line("%s", n.clock.line())
	for _, l := range n.base {
		line("%s", l)
	}
	for gpu := range n.gpus {
		if list, on := n.mig[gpu]; on {
			line("gpu %d mig.mode 1", gpu)
			line("gpu %d mig.pending 1", gpu)
			for _, in := range list {
				line("%s", in.line(gpu))
			}
		}
		if n.absent[gpu] {
			line("absent %d", gpu)
		}
		for _, l := range n.procs[gpu] {
			line("%s", l)
		}
	}
	for _, s := range n.sets {
		line("gpu %s %s %s", s.gpu, s.key, s.value)
	}
	for _, group := range [][]string{n.loads, n.extra, n.events, n.driverFaults()} {
		for _, l := range group {
			line("%s", l)
		}
	}
	for _, f := range n.faults {
		line("%s", f.line())
	}
	return b.String()
}

// Set changes a value of a GPU (all GPUs: Host): a key of lib/keys.def, and a number, an expression, a text, "none"
// (the GPU does not support it) or "!CODE" (reading it returns that code). Close reports an unknown key.
func (n *Node) Set(gpu int, key, value string) {
	n.change(func() error {
		s := setting{selector(gpu), key, value}
		n.sets = slices.DeleteFunc(n.sets, func(o setting) bool { return o.gpu == s.gpu && o.key == s.key })
		n.sets = append(n.sets, s)
		return nil
	})
}

// SetNumber is Set with a number.
func (n *Node) SetNumber(gpu int, key string, value float64) {
	n.Set(gpu, key, strconv.FormatFloat(value, 'g', -1, 64))
}

// Unset undoes Set.
func (n *Node) Unset(gpu int, key string) {
	n.change(func() error {
		n.sets = slices.DeleteFunc(n.sets, func(o setting) bool { return o.gpu == selector(gpu) && o.key == key })
		return nil
	})
}

// Line adds a script line that no method writes.
func (n *Node) Line(format string, args ...any) {
	n.change(func() error {
		n.extra = append(n.extra, fmt.Sprintf(format, args...))
		return nil
	})
}

func selector(gpu int) string {
	if gpu == Host {
		return "*"
	}
	return strconv.Itoa(gpu)
}
