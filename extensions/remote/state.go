package remote

import (
	"cmp"
	"errors"
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
func (m *Manager) Refused(err error) { m.recordOutcome(lists.Refused, err.Error(), "") }

// state returns the delivery state, which must not be changed.
func (m *Manager) state() *lists.Delivery { return m.o.Desk.Status().Delivery }

// update changes the delivery state.
func (m *Manager) update(change func(*lists.Delivery)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := *m.state()
	change(&d)
	m.o.Desk.SetDelivery(d)
}

// maxText bounds a message, in bytes.
const maxText = 4 << 10

func bounded(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// recordOutcome records the outcome of a list, logs it if it is new, and returns it.
func (m *Manager) recordOutcome(a lists.Answer, text, tried string, refused ...lists.Refusal) *lists.Outcome {
	text = bounded(text)
	out := &lists.Outcome{Answer: a, Refused: refused}
	if a.Bad() || a == lists.Ended {
		out.Err = errors.New(text)
	}
	if was := m.state(); was.Status == a && was.Text == text && was.Tried == tried && slices.Equal(was.Refused, refused) {
		return out
	}
	m.update(func(s *lists.Delivery) {
		s.Status, s.Text, s.Tried, s.Refused, s.Since = a, text, tried, refused, time.Now()
	})
	log := m.log.With(zap.String("status", string(a)), zap.String("hash", tried))
	if !a.Bad() {
		log.Info("list of the server", zap.String("text", cmp.Or(text, "it is in service")))
		return out
	}
	for _, r := range refused {
		log.Error("the list is refused: "+r.Text, zap.Int("line", r.Line))
	}
	log.Error("list of the server", zap.String("text", text))
	return out
}
