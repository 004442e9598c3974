package nvmltest

import "fmt"

// Event types of NVML (nvmlEventType* in nvml.h).
const (
	EventSingleBitECC = 0x1
	EventDoubleBitECC = 0x2
	EventPState       = 0x4
	EventXID          = 0x8
	EventClock        = 0x10
	EventPowerSource  = 0x80
	EventMIGConfig    = 0x100
)

// keptEvents is how far a listener may be behind.
const keptEvents = 1024

// noInstance is what NVML says if an event concerns the whole GPU.
const noInstance = 0xFFFFFFFF

// XID tells those who listen of an XID on a GPU.
func (n *Node) XID(gpu int, code uint64) {
	n.Event(gpu, EventXID, code, noInstance, noInstance)
}

// InstanceXID is XID on an instance.
func (n *Node) InstanceXID(gpu int, code uint64, gi, ci uint32) {
	n.Event(gpu, EventXID, code, gi, ci)
}

// Event tells those who listen of an event. It comes after those before it, once
// to each event set that had registered for it by then.
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
