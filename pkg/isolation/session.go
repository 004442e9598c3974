package isolation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/field"
	"warpgauge/pkg/sampler"
)

// session is one child from its start to its end. Its goroutines only note what
// the child says and end it where it must be ended; what follows from that is
// decided by the supervisor.
type session struct {
	o      *Options
	log    *zap.Logger // of what the supervisor says of the child
	relay  *relay      // of what the child says
	proc   *process
	pid    int
	conn   *conn
	words  lastWords
	notify func() // something changed; must not block

	born      time.Time
	heard     atomic.Int64 // when the last frame came, ns since born
	frames    atomic.Int64 // since the last look
	usage     atomic.Pointer[usage]
	overLimit atomic.Bool
	stuck     atomic.Bool // killed and still there
	state     atomic.Pointer[status]
	counts    atomic.Pointer[metricSet]
	shown     atomic.Pointer[[]*boundSource] // in service; nil before the first time
	again     atomic.Bool                    // has sampled everything since it was asked to

	first   uint64 // version of the list that it began with
	mu      sync.Mutex
	lists   map[uint64]field.List // sent to the child
	answers []reloaded            // that the supervisor has not taken yet
	planned *verdict              // why the parent ends it
	ended   time.Time             // when that began; zero: not
	hungFor time.Time             // since when every call hangs; of look

	reaped  chan struct{} // closed when the process is gone
	done    chan struct{} // closed when nothing of the child is left
	verdict verdict       // after done
	cpu     time.Duration // after done
	counted bool          // its end is among the restarts; of the supervisor
	beside  bool          // began while another was in service; of the supervisor
	asked   bool          // to sample again; of the supervisor
	buried  bool          // its costs are in the past; guarded by metrics.mu
}

func newSession(o *Options, p *process, log *zap.Logger) (*session, error) {
	c, err := newConn(p.control)
	if err != nil {
		return nil, err
	}
	s := &session{
		o: o, proc: p, pid: p.cmd.Process.Pid, conn: c.parentEnd(), born: time.Now(),
		lists: map[uint64]field.List{}, reaped: make(chan struct{}), done: make(chan struct{}),
	}
	s.log = log.With(zap.Int("pid", s.pid))
	s.relay = &relay{log: o.Logger, collector: o.Name, pid: s.pid}
	s.usage.Store(&usage{})
	return s, nil
}

// run lives as long as the process, which ctx does not end.
func (s *session) run(ctx context.Context, version uint64, list field.List) {
	s.first = version
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	wg.Go(func() { s.words.read(s.proc.output, s.o.Stderr) })
	wg.Go(func() { s.read(version, list) })
	wg.Go(func() { s.watch(ctx) })
	e := s.proc.wait()
	close(s.reaped)
	cancel()
	// What the child had said before it ended is still in the socket and in the
	// pipe. Neither may be held open for long by a process that it has started.
	const drain = 200 * time.Millisecond
	_ = s.conn.unix.SetReadDeadline(time.Now().Add(drain))
	_ = s.proc.output.SetReadDeadline(time.Now().Add(drain))
	wg.Wait()
	s.conn.close()
	_ = s.proc.output.Close()
	s.cpu = e.cpu
	s.mu.Lock()
	if s.planned != nil {
		s.verdict = *s.planned
	} else {
		s.verdict = judge(e, &s.words)
	}
	s.mu.Unlock()
	close(s.done)
	s.notify()
}

// takeAnswers returns how reloads ended since the last call. What they put into
// service is in shown by then.
func (s *session) takeAnswers() []reloaded {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.answers
	s.answers = nil
	return out
}

// isDone reports whether the process is gone.
func (s *session) isDone() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// kill ends the child at once. The first reason counts.
func (s *session) kill(reason, text string) {
	s.mu.Lock()
	if s.planned == nil {
		s.planned = &verdict{reason, text}
	}
	if s.ended.IsZero() {
		s.ended = time.Now()
	}
	s.mu.Unlock()
	_ = s.o.sigkill(s.proc.cmd.Process) // an error means that it has ended
}

// stop asks the child to end and kills it if it does not within grace.
func (s *session) stop(v verdict, grace time.Duration) {
	s.mu.Lock()
	if s.planned != nil {
		s.mu.Unlock()
		return
	}
	s.planned = &v
	s.mu.Unlock()
	go func() {
		if err := s.conn.send(kindStop, empty{}); err == nil {
			t := time.NewTimer(grace)
			defer t.Stop()
			select {
			case <-s.reaped:
				return
			case <-t.C:
			}
		}
		s.kill(v.reason, v.text)
	}()
}

// ending reports whether the parent has decided to end it.
func (s *session) ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.planned != nil
}

// reload sends another list.
func (s *session) reload(version uint64, list field.List) {
	s.mu.Lock()
	s.lists[version] = list
	s.mu.Unlock()
	if err := s.conn.send(kindList, &listChange{version, field.Format(list)}); err != nil {
		s.sendFailed(err)
	}
}

// sendFailed judges an error of send: a child that is gone is reaped elsewhere.
func (s *session) sendFailed(err error) {
	if isTimeout(err) {
		s.kill(ReasonHung, "does not read what it is told")
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

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

// watch looks after the child until ctx ends.
func (s *session) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.look(time.Now())
		}
	}
}

// lookEvery is how often a child is looked at.
const lookEvery = 250 * time.Millisecond

func (s *session) look(now time.Time) {
	s.frames.Store(0)
	s.relay.tick()
	if u, err := readUsage(s.pid); err == nil {
		s.usage.Store(&u)
		if limit := s.o.MemoryLimit; limit > 0 && u.resident > limit {
			if u.resident > 2*limit && u.resident > limit+(512<<20) {
				s.kill(ReasonMemory, fmt.Sprintf("took %d MiB, the limit is %d", u.resident>>20, limit>>20))
			}
			s.overLimit.Store(true)
			s.notify()
		}
	}
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if !ended.IsZero() {
		if now.Sub(ended) > s.o.killGrace && !s.stuck.Swap(true) {
			s.log.Error("child does not end after SIGKILL and is abandoned; no other is started before it is gone")
			s.notify()
		}
		return
	}
	if silent := now.Sub(s.born) - time.Duration(s.heard.Load()); silent > s.o.Silence {
		s.kill(ReasonHung, fmt.Sprintf("silent for %v", silent.Round(100*time.Millisecond)))
		return
	}
	s.lookForHang(now)
}

// killGrace is how long SIGKILL may take. A process in an uninterruptible sleep
// takes for ever.
const killGrace = 5 * time.Second

// lookForHang kills a child of which every call hangs. One hung GPU is no reason:
// the others would lose their child.
func (s *session) lookForHang(now time.Time) {
	st := s.state.Load()
	if st == nil {
		return
	}
	shown := s.shown.Load()
	if shown == nil {
		if limit := s.o.OpenTimeout + s.o.Deadline; st.cause == string(sampler.CauseOpening) && now.Sub(s.born) > limit {
			s.kill(ReasonHung, fmt.Sprintf("has not opened its library after %v", limit))
		}
		return
	}
	devices, hung := 0, 0
	for _, b := range *shown {
		devices += len(b.devices)
	}
	for i := range st.devices {
		if st.devices[i].cause == string(sampler.CauseHung) {
			hung++
		}
	}
	switch {
	case devices == 0 || hung < devices:
		s.hungFor = time.Time{}
	case s.hungFor.IsZero():
		s.hungFor = now
	case now.Sub(s.hungFor) > s.o.hangLimit():
		s.kill(ReasonHung, "no library call returns")
	}
}

// hangs reports whether a call of the child hangs.
func (s *session) hangs() bool {
	if st := s.state.Load(); st != nil {
		for i := range st.devices {
			if c := sampler.Cause(st.devices[i].cause); c == sampler.CauseHung || c == sampler.CauseWaiting {
				return true
			}
		}
	}
	return false
}
