package isolation

import (
	"errors"
	"fmt"
	"io"
	"time"

	"warpgauge/pkg/field"
)

// read takes what the child says until it is gone or breaks a rule.
func (s *session) read(version uint64, list field.List) {
	s.mu.Lock()
	s.lists[version] = list
	s.mu.Unlock()
	err := s.converse(version, list)
	switch {
	case errors.Is(err, errVersion):
		s.kill(ReasonVersion, err.Error())
	case errors.Is(err, errFrame), errors.Is(err, errMessage):
		s.kill(ReasonProtocol, "broke the protocol: "+err.Error())
	case isTimeout(err):
		// the process is gone, or what it started holds the socket
	default:
		s.hungUp()
	}
}

// hungUp ends a child that has closed the channel, if it does not end by itself.
func (s *session) hungUp() {
	t := time.NewTimer(hangUpGrace)
	defer t.Stop()
	select {
	case <-s.reaped:
	case <-t.C:
		s.kill(ReasonProtocol, "closed the control channel and went on")
	}
}

// hangUpGrace is the time between the end of the channel and that of the process.
const hangUpGrace = 2 * time.Second

var errVersion = errors.New("the child is of another build")

func (s *session) converse(version uint64, list field.List) error {
	l := &ledger{collector: s.o.Name, bound: map[uint64]*boundSource{}, lists: s.lists}
	if err := s.greet(version, list); err != nil {
		return err
	}
	for {
		k, payload, err := s.conn.next()
		if err != nil {
			return err
		}
		s.heard.Store(int64(time.Since(s.born)))
		if s.frames.Add(1) > framesPerTick {
			return fmt.Errorf("%w: too many of them", errMessage)
		}
		if err := s.take(k, payload, l); err != nil {
			return err
		}
	}
}

// greet wants hello first and answers with the setup.
func (s *session) greet(version uint64, list field.List) error {
	k, payload, err := s.conn.next()
	if err != nil {
		return err
	}
	s.heard.Store(int64(time.Since(s.born)))
	var h hello
	if k != kindHello {
		return fmt.Errorf("%w: message %d before hello", errMessage, k)
	}
	if err := unmarshal(payload, &h); err != nil {
		return err
	}
	if h.build != s.o.Build {
		return fmt.Errorf("%w: it says %q, want %q", errVersion, h.build, s.o.Build)
	}
	m := s.o.setup()
	m.version, m.list = version, field.Format(list)
	if err := s.conn.send(kindSetup, &m); err != nil {
		s.sendFailed(err)
		return io.EOF
	}
	return nil
}

// take handles a message.
func (s *session) take(k kind, payload []byte, l *ledger) error {
	switch k {
	case kindSource:
		return s.takeSource(payload, l)
	case kindService:
		return s.takeService(payload, l)
	case kindRelease:
		var m release
		if err := unmarshal(payload, &m); err != nil {
			return err
		}
		for _, id := range m.ids {
			if b := l.bound[id]; b != nil && b.view == nil {
				l.drop(id)
			}
		}
	case kindStatus:
		m := &status{}
		if err := unmarshal(payload, m); err != nil {
			return err
		}
		s.state.Store(m)
		s.notify()
	case kindMetrics:
		m := &metricSet{}
		if err := unmarshal(payload, m); err != nil {
			return err
		}
		s.counts.Store(m)
	case kindLog:
		var m logEntry
		if err := unmarshal(payload, &m); err != nil {
			return err
		}
		s.relay.take(&m)
	case kindReloaded:
		var m reloaded
		if err := unmarshal(payload, &m); err != nil {
			return err
		}
		s.mu.Lock()
		s.answers = append(s.answers, m)
		s.mu.Unlock()
		s.notify()
	case kindSampled:
		s.again.Store(true)
		s.notify()
	default: // of a later version
	}
	return nil
}

func (s *session) takeSource(payload []byte, l *ledger) error {
	b, region, problem, err := l.bind(payload)
	if err != nil {
		return err
	}
	m, fd := memory{id: b.id}, -1
	if problem != nil {
		m.problem = problem.Error()
	} else {
		fd = region.FD()
		defer func() { _ = region.CloseFD() }()
	}
	if err := s.conn.sendFile(kindMemory, &m, fd); err != nil {
		s.sendFailed(err)
		return io.EOF
	}
	return nil
}

func (s *session) takeService(payload []byte, l *ledger) error {
	var m service
	if err := unmarshal(payload, &m); err != nil {
		return err
	}
	s.mu.Lock()
	shown, err := l.serve(&m)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if s.shown.Swap(&shown) == nil {
		s.mu.Lock()
		s.answers = append(s.answers, reloaded{version: s.first}) // the list that it began with
		s.mu.Unlock()
	}
	s.notify()
	return nil
}
