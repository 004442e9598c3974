package nvmltest

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Every stands for all functions of a GPU.
const Every = "*"

// fault is a fault of a function on a GPU.
type fault struct {
	gpu      int
	function string
	what     string // "code GPU_IS_LOST", "hang"
	kind     string
}

func (f fault) line() string {
	gpu := "node"
	if f.gpu != Host {
		gpu = strconv.Itoa(f.gpu)
	}
	return fmt.Sprintf("fault %s %s %s", gpu, f.function, f.what)
}

// setFault replaces the fault of that kind.
func (n *Node) setFault(f fault) {
	n.change(func() error {
		n.faults = slices.DeleteFunc(n.faults, func(o fault) bool {
			return o.gpu == f.gpu && o.function == f.function && o.kind == f.kind
		})
		n.faults = append(n.faults, f)
		return nil
	})
}

// Return makes a function answer a code: its name without NVML_ERROR_ ("NOT_SUPPORTED"; "SUCCESS" removes the fault) or
// its number. gpu is Host for functions without a device. function may be Every; a fault of a single function overrides
// a fault of Every.
func (n *Node) Return(gpu int, function, code string) {
	if code == "SUCCESS" || code == "0" {
		n.removeFaults(func(f fault) bool { return f.gpu == gpu && f.function == function && f.kind == "code" })
		return
	}
	n.setFault(fault{gpu: gpu, function: function, kind: "code", what: "code " + code})
}

// Delay makes calls of a function take the given time until end is called or the node is closed.
func (n *Node) Delay(gpu int, function string, d time.Duration) (end func()) {
	f := fault{gpu: gpu, function: function, kind: "delay", what: fmt.Sprintf("delay %d", d.Microseconds())}
	n.setFault(f)
	return func() { n.removeFaults(func(o fault) bool { return o == f }) }
}

// Hang makes calls of a function hang until release is called or the node is closed. release may be called twice.
// Hanging returns how many calls hang.
func (n *Node) Hang(gpu int, function string) (release func()) {
	f := fault{gpu: gpu, function: function, kind: "hang", what: "hang"}
	n.setFault(f)
	return func() {
		n.removeFaults(func(o fault) bool { return o.gpu == gpu && o.function == function && o.kind == "hang" })
	}
}

func (n *Node) removeFaults(which func(fault) bool) {
	n.change(func() error {
		n.faults = slices.DeleteFunc(n.faults, which)
		return nil
	})
}

// Clear removes all faults that Return, Hang and Lose set for a GPU, or with Host for functions without a
// device.
func (n *Node) Clear(gpu int) {
	n.removeFaults(func(f fault) bool { return f.gpu == gpu })
}

// Lose makes a GPU fall off the bus: listeners get XID 79, callers get GPU_IS_LOST.
func (n *Node) Lose(gpu int) {
	n.XID(gpu, 79)
	n.setFault(fault{gpu: gpu, function: Every, kind: "code", what: "code GPU_IS_LOST"})
}

// Remove takes a GPU out of the machine: the count shrinks and the GPUs behind it move up.
func (n *Node) Remove(gpu int) {
	n.change(func() error { n.absent[gpu] = true; return nil })
}

// Restore brings back a GPU that was lost or removed.
func (n *Node) Restore(gpu int) {
	n.change(func() error {
		delete(n.absent, gpu)
		n.faults = slices.DeleteFunc(n.faults, func(f fault) bool {
			return f.gpu == gpu && f.function == Every && f.kind == "code"
		})
		return nil
	})
}

// Unload removes the driver until Load: initialisation fails, and calls of initialised users answer DRIVER_NOT_LOADED.
// The real driver cannot be unloaded while its devices are open: see OpenFiles.
func (n *Node) Unload() {
	n.change(func() error {
		n.faults = append(n.faults, unloaded(n.gpus)...)
		return n.removeDriverFiles()
	})
}

// LoadDriver brings the driver back, in another version if one is given. The library keeps its version; if that no
// longer fits, initialisation answers LIB_RM_VERSION_MISMATCH, as on a node after an upgrade.
func (n *Node) LoadDriver(version string) {
	n.change(func() error {
		gone := unloaded(n.gpus)
		n.faults = slices.DeleteFunc(n.faults, func(f fault) bool { return slices.Contains(gone, f) })
		kernel := n.driver.version
		if version != "" && version != kernel {
			kernel = version
			n.faults = append(n.faults, mismatch()...)
		} else {
			gone = mismatch()
			n.faults = slices.DeleteFunc(n.faults, func(f fault) bool { return slices.Contains(gone, f) })
		}
		return n.makeDriverFiles(kernel)
	})
}

func unloaded(gpus int) (out []fault) {
	for gpu := Host; gpu < gpus; gpu++ {
		out = append(out, fault{gpu: gpu, function: Every, kind: "unloaded", what: "code DRIVER_NOT_LOADED"})
	}
	return out
}

func mismatch() (out []fault) {
	for _, f := range []string{"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"} {
		out = append(out, fault{gpu: Host, function: f, kind: "mismatch", what: "code LIB_RM_VERSION_MISMATCH"})
	}
	return out
}

// Event types of NVML (nvmlEventType* in nvml.h).
const (
	eventXID       = 0x8
	eventMIGConfig = 0x100
)

// keptEvents is how many events a listener may be behind.
const keptEvents = 1024

// noInstance is NVML's ID for an event of the whole GPU.
const noInstance = 0xFFFFFFFF

// XID reports an XID of a GPU to the listeners.
func (n *Node) XID(gpu int, code uint64) { n.InstanceXID(gpu, code, noInstance, noInstance) }

// InstanceXID reports an XID of an instance: once to each event set that was registered for it, after all earlier events.
func (n *Node) InstanceXID(gpu int, code uint64, gi, ci uint32) {
	n.change(func() error { n.event(gpu, eventXID, code, gi, ci); return nil })
}

func (n *Node) event(gpu int, kind, data uint64, gi, ci uint32) {
	n.nextID++
	n.events = append(n.events, fmt.Sprintf("event %d %d %d %d %d %d", n.nextID, gpu, kind, data, gi, ci))
	n.events = n.events[max(0, len(n.events)-keptEvents):]
}
