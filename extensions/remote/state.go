package remote

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/lists"
)

// Answered records that the server answered, with or without a new list.
func (m *Manager) Answered() { m.update(func(s *lists.Delivery) { s.Down = "" }) }

// Unreachable records a failed request.
func (m *Manager) Unreachable(err error) {
	text := bounded(err.Error())
	if m.state().Down != text {
		m.log.Warn("cannot use the server of lists; the list in service stays", zap.String("error", text))
	}
	m.update(func(s *lists.Delivery) { s.Down = text })
}

// Refused records an offer without a usable list.
func (m *Manager) Refused(err error) { m.recordOutcome(lists.Refused, err.Error(), "", nil) }

// state returns a copy of the delivery state.
func (m *Manager) state() *lists.Delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.delivery
	return &d
}

// update changes the delivery state and reports it to the Desk.
func (m *Manager) update(change func(*lists.Delivery)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.delivery)
	m.o.Desk.SetDelivery(m.delivery)
}

// maxText bounds a message, in bytes.
const maxText = 4 << 10

func bounded(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// recordOutcome records the outcome of a list and logs it if it is new.
func (m *Manager) recordOutcome(a lists.Answer, text, tried string, refused []lists.Refusal) {
	text = bounded(text)
	if was := m.state(); was.Status == a && was.Text == text && was.Tried == tried && slices.Equal(was.Refused, refused) {
		return
	}
	m.update(func(s *lists.Delivery) {
		s.Status, s.Text, s.Tried, s.Refused, s.Since = a, text, tried, refused, time.Now()
	})
	log := m.log.With(zap.String("status", string(a)), zap.String("hash", tried))
	if !a.Bad() {
		log.Info("list of the server", zap.String("text", cmp.Or(text, "it is in service")))
		return
	}
	for _, r := range refused {
		log.Error("the list is refused: "+r.Text, zap.Int("line", r.Line))
	}
	log.Error("list of the server", zap.String("text", text))
}
