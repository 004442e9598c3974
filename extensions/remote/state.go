package remote

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// State is how the delivery is.
type State struct {
	Status  string    // see the constants
	Text    string    // why, or what was found, in words
	Tried   string    // hash of the list that was delivered last
	Refused []Refusal // of it
	Since   time.Time // of the status and text
	Unkept  string    // why the list in service is not kept; "": it is
	Down    string    // why the server cannot be reached; "": it can
}

// Values of State.Status, which are labels.
const (
	StateWaiting     = "waiting" // no list was delivered yet
	StateApplied     = "applied"
	StateReported    = "reported"
	StateRefused     = "refused"     // the parser or the guard does not take it
	StateFailed      = "failed"      // it could not be put into service
	StateEnded       = "ended"       // its time is over
	StateUnreachable = "unreachable" // the last request failed
)

// Answered notes that the server has answered, although without another list.
func (m *Manager) Answered() { m.update(func(s *State) { s.Down = "" }) }

// Unreachable notes that a request has failed.
func (m *Manager) Unreachable(err error) {
	text := bounded(err.Error())
	if m.State().Down != text {
		m.log.Warn("the server of lists cannot be used; the list in service stays", zap.String("error", text))
	}
	m.update(func(s *State) { s.Down = text })
}

// Refused notes an offer that no list can be taken from.
func (m *Manager) Refused(err error) { m.say(StateRefused, err.Error(), "", nil) }

// InService returns the list of the server that is in service; nil: it is the local one.
func (m *Manager) InService() *List { return m.inService.Load() }

// State returns how the delivery is.
func (m *Manager) State() *State { return m.state.Load() }

// Condition is the status, as a label.
func (s *State) Condition() string {
	if s.Down != "" {
		return StateUnreachable
	}
	return s.Status
}

func (m *Manager) update(change func(*State)) {
	for {
		was := m.state.Load()
		next := *was
		change(&next)
		if m.state.CompareAndSwap(was, &next) {
			return
		}
	}
}

// maxText bounds what is kept of a message.
const maxText = 4 << 10

func bounded(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// say notes what became of a list, and logs it if that is new.
func (m *Manager) say(status, text, tried string, refused []Refusal) {
	text = bounded(text)
	was := m.State()
	if was.Status == status && was.Text == text && was.Tried == tried && slices.Equal(was.Refused, refused) {
		return
	}
	m.update(func(s *State) {
		s.Status, s.Text, s.Tried, s.Refused, s.Since = status, text, tried, refused, time.Now()
	})
	bad := func(status string) bool { return status == StateRefused || status == StateFailed }
	if bad(status) || bad(was.Status) {
		more := ""
		if len(refused) > 0 && refused[0].Text != text {
			more = "; " + refused[0].String()
		}
		m.o.Event("list of the server is "+status+": "+cmp.Or(text, "it is in service")+more, bad(status))
	}
	log := m.log.With(zap.String("status", status), zap.String("hash", tried))
	if status == StateApplied || status == StateReported || status == StateEnded {
		log.Info("list of the server", zap.String("text", cmp.Or(text, "it is in service")))
		return
	}
	for _, r := range refused {
		log.Error("the list is refused: "+r.Text, zap.Int("line", r.Line))
	}
	log.Error("list of the server", zap.String("text", text))
}
