package supervisor

import (
	"context"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// life is a running session: in this process (local) or in a child process (child). Its methods may be called from any
// goroutine and do not wait.
type life interface {
	sources() []*view.Source        // nil until the session has bound them
	states() []session.DeviceStatus // of the devices of sources, in their order
	metrics() []*dto.MetricFamily   // the session's own metrics
	changed() <-chan struct{}       // receives when one of the above changes
	held() string                   // names the library calls that hang; "" if none does
	check(now time.Time)            // ends a child that hangs or uses too much memory
	stop(grace time.Duration)       // asks the session to end; a child is killed after grace
	done() <-chan struct{}          // closed when the session is completely gone
	ended() ending                  // how it ended; valid after done
	logFields() []zap.Field
}

// ending says how a session ended.
type ending struct {
	err    error  // returned by Session.Run
	reason string // why a child had to be replaced: one of Reason…; "" after a normal end
	text   string // the reason in words
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
func (l *local) changed() <-chan struct{}       { return l.s.Changed() }
func (l *local) check(time.Time)                {}
func (l *local) stop(time.Duration)             { l.cancel() }
func (l *local) done() <-chan struct{}          { return l.end }
func (l *local) logFields() []zap.Field         { return nil }

func (l *local) metrics() []*dto.MetricFamily {
	all, err := l.s.Metrics().Gather()
	if err != nil {
		return nil
	}
	return all
}

func (l *local) held() string { return heldBy(l.states()) }

func (l *local) ended() ending {
	e := ending{err: l.err}
	if l.err != nil {
		e.text = l.err.Error()
	}
	return e
}

// heldBy names the devices whose library call hangs.
func heldBy(all []session.DeviceStatus) string {
	var ids []string
	for _, d := range all {
		if d.Cause == session.CauseHung {
			ids = append(ids, d.Device.ID)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return "library calls for " + strings.Join(ids, ", ") + " have not returned"
}

// errorOf restores an error from a child's cause and text.
func errorOf(cause session.Cause, text string) error {
	return &childError{cause: session.ErrorOf(cause), text: text}
}

type childError struct {
	cause error
	text  string
}

func (e *childError) Error() string { return e.text }

func (e *childError) Unwrap() error { return e.cause }
