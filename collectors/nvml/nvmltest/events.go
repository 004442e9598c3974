package nvmltest

import "fmt"

// Event types of NVML (nvmlEventType* in nvml.h).
const (
	EventXID       = 0x8
	EventClock     = 0x10
	EventMIGConfig = 0x100
)

// keptEvents is how many events a listener may be behind.
const keptEvents = 1024

// noInstance is NVML's ID for an event of the whole GPU.
const noInstance = 0xFFFFFFFF

// XID reports an XID of a GPU to the listeners.
func (n *Node) XID(gpu int, code uint64) {
	n.Event(gpu, EventXID, code, noInstance, noInstance)
}

// InstanceXID reports an XID of an instance.
func (n *Node) InstanceXID(gpu int, code uint64, gi, ci uint32) {
	n.Event(gpu, EventXID, code, gi, ci)
}

// Event reports an event to the listeners: once to each event set that was registered for it, after all earlier events.
func (n *Node) Event(gpu int, kind, data uint64, gi, ci uint32) {
	n.change(func() error { n.event(gpu, kind, data, gi, ci); return nil })
}

func (n *Node) event(gpu int, kind, data uint64, gi, ci uint32) {
	n.nextID++
	n.events = append(n.events, fmt.Sprintf("event %d %d %d %d %d %d", n.nextID, gpu, kind, data, gi, ci))
	if len(n.events) > keptEvents {
		n.events = n.events[len(n.events)-keptEvents:]
	}
}
