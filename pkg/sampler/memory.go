package sampler

import (
	"sync"
	"time"

	"warpgauge/pkg/field"
)

// memory keeps the boards that were sampled once and that Open no longer finds,
// so that a GPU that fell off the bus stays a fact on the page and does not
// just disappear. Instances and links come and go by configuration and are not
// kept.
type memory struct {
	keep time.Duration

	mu   sync.Mutex
	gone map[string]departed
}

type departed struct {
	status DeviceStatus
	since  time.Time
}

// remember notes what old had and now has not.
func (m *memory) remember(old, now *binding, at time.Time) {
	present := make(map[string]bool)
	for _, w := range now.workers {
		for _, d := range w.view.Devices {
			present[d.ID] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range old.workers {
		for i, d := range w.view.Devices {
			if present[d.ID] || d.Parent != "" || (d.Level != field.GPU && d.Level != field.Switch && d.Level != field.ConnectX) {
				continue
			}
			st := w.device(i, at)
			st.State, st.Cause, st.Reason = Lost, CauseVanished, "discovery no longer finds the device"
			if m.gone == nil {
				m.gone = make(map[string]departed)
			}
			m.gone[d.ID] = departed{st, at}
		}
	}
}

// forget drops the boards that are back.
func (m *memory) forget(now *binding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range now.workers {
		for _, d := range w.view.Devices {
			delete(m.gone, d.ID)
		}
	}
}

// append adds the boards still remembered, in the order of their ids.
func (m *memory) append(dst []DeviceStatus, now time.Time) []DeviceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, d := range m.gone {
		if now.Sub(d.since) > m.keep {
			delete(m.gone, id)
			continue
		}
		dst = append(dst, d.status)
	}
	return dst
}
