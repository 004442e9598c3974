package supervisor

import (
	"context"
	"strings"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// life is a running session: in this process (local) or in a child process (child). Its methods may be called from any
// goroutine and do not wait.
type life interface {
	sources() []*view.Source        // nil until the session has bound them
	states() []session.DeviceStatus // states of the devices of sources, in their order
	costs() *session.Costs          // nil before the first counts
	changed() <-chan struct{}       // receives when one of the above changes
	held() string                   // names the hanging library calls, or ""
	returned(at time.Time) bool     // no call that ran at that time delays the end
	check(now time.Time)            // ends a child that hangs or uses too much memory
	stop(grace time.Duration)       // asks the session to end, with its process; a child is killed after grace
	finish(grace time.Duration)     // asks the session to end; its process may stay for the next one
	done() <-chan struct{}          // closed when the session has ended
	ended() ending                  // how it ended; valid after done
	logFields() []zap.Field
}

// ending tells how a session ended.
type ending struct {
	cause  session.Cause // cause of the error of Session.Run
	reason string        // why a child had to be replaced: one of Reason…; "" after a normal end
	text   string        // the cause or reason in words
}

// local is a session in this process.
type local struct {
	s      *session.Session
	cancel context.CancelFunc
	end    chan struct{}
	err    error // after end
}

func startLocal(list field.List, until map[string]int64, o *Options) *local {
	ctx, cancel := context.WithCancel(context.Background())
	settings := o.Session
	settings.Until = until
	l := &local{s: session.New(o.Open, list, settings), cancel: cancel, end: make(chan struct{})}
	go func() {
		defer close(l.end)
		l.err = l.s.Run(ctx)
	}()
	return l
}

func (l *local) sources() []*view.Source        { return l.s.Sources() }
func (l *local) states() []session.DeviceStatus { return l.s.Status().Devices }
func (l *local) costs() *session.Costs          { return l.s.Costs() }
func (l *local) held() string                   { return heldBy(l.states()) }
func (l *local) changed() <-chan struct{}       { return l.s.Changed() }
func (l *local) returned(at time.Time) bool     { return l.s.Returned(at) }
func (l *local) check(time.Time)                {}
func (l *local) stop(time.Duration)             { l.cancel() }
func (l *local) finish(time.Duration)           { l.cancel() }
func (l *local) done() <-chan struct{}          { return l.end }
func (l *local) logFields() []zap.Field         { return nil }

func (l *local) ended() ending {
	e := ending{cause: session.CauseOf(l.err)}
	if l.err != nil {
		e.text = l.err.Error()
	}
	return e
}

// heldBy names the devices whose library call hangs.
func heldBy(all []session.DeviceStatus) string {
	var ids []string
	for _, d := range all {
		if d.Cause.Hangs() {
			ids = append(ids, d.Device.ID)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return "library calls for " + strings.Join(ids, ", ") + " have not returned"
}
