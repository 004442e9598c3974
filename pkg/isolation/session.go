package isolation

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/field"
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
