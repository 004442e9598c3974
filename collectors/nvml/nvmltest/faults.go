package nvmltest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Every means all functions of a GPU.
const Every = "*"

// fault is a fault of a function on a GPU: "code GPU_IS_LOST", "hang", "delay 5000".
type fault struct {
	gpu            int
	function, what string
}

func (f fault) line() string {
	gpu := "node"
	if f.gpu != Host {
		gpu = strconv.Itoa(f.gpu)
	}
	return fmt.Sprintf("fault %s %s %s", gpu, f.function, f.what)
}

// replaceFault removes the fault of that kind, the first word of what, and adds f if add is set.
func (n *Node) replaceFault(f fault, add bool) {
	kind, _, _ := strings.Cut(f.what, " ")
	n.change(func() error {
		n.faults = slices.DeleteFunc(n.faults, func(o fault) bool {
			return o.gpu == f.gpu && o.function == f.function && strings.HasPrefix(o.what, kind)
		})
		if add {
			n.faults = append(n.faults, f)
		}
		return nil
	})
}

// Return makes a function return a code: its name without NVML_ERROR_ ("NOT_SUPPORTED"; "SUCCESS" removes the fault)
// or its number. gpu is Host for functions without a device. function may be Every; a fault of a single function
// overrides a fault of Every. Close reports an unknown function.
func (n *Node) Return(gpu int, function, code string) {
	n.replaceFault(fault{gpu, function, "code " + code}, code != "SUCCESS")
}

// Delay makes calls of a function take the given time until end is called or the node is closed.
func (n *Node) Delay(gpu int, function string, d time.Duration) (end func()) {
	return n.until(fault{gpu, function, fmt.Sprintf("delay %d", d.Microseconds())})
}

// Hang makes calls of a function hang until release is called or the node is closed. release may be called twice.
// Hanging returns how many calls hang.
func (n *Node) Hang(gpu int, function string) (release func()) {
	return n.until(fault{gpu, function, "hang"})
}

func (n *Node) until(f fault) (end func()) {
	n.replaceFault(f, true)
	return func() { n.replaceFault(f, false) }
}

// Clear removes all faults that Return, Hang and Lose set for a GPU, or with Host for functions without a device.
func (n *Node) Clear(gpu int) {
	n.change(func() error {
		n.faults = slices.DeleteFunc(n.faults, func(f fault) bool { return f.gpu == gpu })
		return nil
	})
}

// Lose makes a GPU fall off the bus: listeners get XID 79, callers get GPU_IS_LOST.
func (n *Node) Lose(gpu int) {
	n.XID(gpu, 79)
	n.Return(gpu, Every, "GPU_IS_LOST")
}

// Remove takes a GPU out of the machine: the count shrinks and the GPUs behind it move up.
func (n *Node) Remove(gpu int) {
	n.change(func() error { n.absent[gpu] = true; return nil })
}

// Restore brings back a GPU that was lost or removed.
func (n *Node) Restore(gpu int) {
	n.change(func() error { delete(n.absent, gpu); return nil })
	n.Return(gpu, Every, "SUCCESS")
}

// Unload removes the driver until LoadDriver: initialisation fails, and calls of initialised users answer
// DRIVER_NOT_LOADED. The real driver cannot be unloaded while its devices are open: see OpenFiles.
func (n *Node) Unload() {
	n.change(func() error { n.unloaded = true; return n.removeDriverFiles() })
}

// LoadDriver brings the driver back, in another version if one is given. The library keeps its version; if that no
// longer fits, initialisation answers LIB_RM_VERSION_MISMATCH, as on a node after an upgrade.
func (n *Node) LoadDriver(version string) {
	version = cmp.Or(version, n.driver.version)
	n.change(func() error {
		n.unloaded, n.mismatch = false, version != n.driver.version
		return n.makeDriverFiles(version)
	})
}

// driverFaults returns the script lines for a driver that is not loaded or does not match the library's version.
func (n *Node) driverFaults() (out []string) {
	if n.unloaded {
		out = append(out, "fault node * code DRIVER_NOT_LOADED", "fault * * code DRIVER_NOT_LOADED")
	}
	if n.mismatch {
		for _, f := range []string{"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"} {
			out = append(out, "fault node "+f+" code LIB_RM_VERSION_MISMATCH")
		}
	}
	return out
}

// Event types of NVML (nvmlEventType* in nvml.h).
const (
	eventXID       = 0x8
	eventMIGConfig = 0x100
)

// keptEvents is how many events a listener may be behind the newest.
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
