package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// ControlFD is the descriptor number of the control channel in a child.
const ControlFD = 3

const (
	reportEvery   = 3                     // seconds between states and costs that have not changed
	reportSpacing = 50 * time.Millisecond // minimum time between two reports of changed states
)

// ErrOrphaned ends a child whose session does not end although its parent has closed the channel or is gone.
var ErrOrphaned = errors.New("the exporter that this process belongs to has asked it to stop, or is gone, and a library call does not return")

// Child runs sessions in a process that a Supervisor has started, one after the other, with the lists that the parent
// sends, until the parent closes its end of the control channel or a session fails. Event sets stay open from one
// session to the next. extend completes a list. Child returns an error if the channel is broken, or if a session does not
// end in time because library calls hang; then the caller must end the process.
func Child(ctx context.Context, control *os.File, stopTimeout time.Duration, open collector.Factory, extend func(field.List) field.List, o session.Options) error {
	// Only the parent ends a child. Signals to all processes of a service, as an init system sends them, are for the
	// parent, and so are SIGHUP, SIGUSR1 and SIGUSR2.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	conn, err := connOf(control)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &inside{to: &sender{conn: conn}, fail: cancel, orders: make(chan []byte), stopTimeout: stopTimeout}
	o.Parent, o.Keep = c, true
	go c.listen(ctx, conn)
	defer func() { releaseWithin(stopTimeout, o.Former) }()
	for {
		var first []byte
		select {
		case first = <-c.orders:
		case <-ctx.Done():
			return nil
		}
		if len(first) == 0 {
			continue // the session had ended by itself
		}
		list, until, err := readInput(first)
		if err != nil {
			return err
		}
		o.Until = until
		s := session.New(open, extend(list), o)
		again, err := c.run(ctx, s)
		if errors.Is(err, ErrOrphaned) {
			o.Former = nil // its library hangs
			return err
		}
		if o.Former = s; !again {
			return nil
		}
	}
}

// releaseWithin closes the event sets of the last session, which may be nil. A call that hangs does not keep the process from
// ending.
func releaseWithin(patience time.Duration, s *session.Session) {
	if s == nil {
		return
	}
	released := make(chan struct{})
	go func() {
		defer close(released)
		s.Release()
	}()
	select {
	case <-released:
	case <-time.After(patience):
	}
}

// listen passes on the parent's orders until the parent asks the child to stop.
func (c *inside) listen(ctx context.Context, conn *net.UnixConn) {
	for {
		order, err := readFrame(conn, maxInput)
		if err != nil {
			c.fail(nil)
			return
		}
		select {
		case c.orders <- order:
		case <-ctx.Done():
			return
		}
	}
}

// run runs a session. It reports whether another one may follow in this process.
func (c *inside) run(ctx context.Context, s *session.Session) (again bool, err error) {
	sctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(sctx) }()
	err, returned := c.report(sctx, stop, s, ended)
	if !returned {
		select {
		case err = <-ended:
		case <-time.After(c.stopTimeout):
			return false, ErrOrphaned
		}
	}
	if err == nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		err = context.Cause(ctx)
	}
	last := statesMessage{Ended: true, Cause: session.CauseOf(err)}
	if err != nil {
		last.Reason = printable(err.Error())
	}
	last.Waits = ctx.Err() == nil && (err == nil || last.Cause == session.CauseChanged)
	_ = c.to.send(&message{States: &last, Costs: s.Costs()}, -1) // if the parent is gone, this process ends soon
	return last.Waits, nil
}

// inside is the child's side of the control channel. It implements session.Parent.
type inside struct {
	to          *sender
	fail        context.CancelCauseFunc // ends the process
	orders      chan []byte
	stopTimeout time.Duration
	region      *ring.Region
}

func (c *inside) Memory(words int) ([]atomic.Uint64, any, error) {
	region, err := ring.CreateRegion(words)
	if err != nil {
		return nil, nil, err
	}
	c.region = region
	return region.Words(), region, nil
}

func (c *inside) Publish(sources []*view.Source) {
	var m viewMessage
	for _, s := range sources {
		m = append(m, sourceMessage{s.Ring.Rows(), *s})
	}
	if err := c.to.send(&message{View: m}, c.region.FD()); err != nil {
		c.fail(fmt.Errorf("send view: %w", err))
	}
	_ = c.region.CloseFD()
}

// report sends states and costs until the session has ended, with its error, or ctx has. An order stops the session.
func (c *inside) report(ctx context.Context, stop func(), s *session.Session, ended <-chan error) (err error, returned bool) {
	var told []deviceMessage
	for ticks := 0; ; ticks++ {
		select {
		case <-ctx.Done():
			return nil, false
		case err := <-ended:
			return err, true
		case <-c.orders:
			stop()
			return nil, false
		case <-view.Tick(time.Second): // a call that has hung for too long, or no longer hangs, does not tell
		case <-s.Changed():
			time.Sleep(reportSpacing) // collect changes that occur together
			ticks = 0
		}
		if states := statesOf(s.Status().Devices); ticks%reportEvery == 0 || !slices.Equal(states.Devices, told) {
			told = states.Devices
			_ = c.to.send(&message{States: states, Costs: s.Costs()}, -1)
		}
	}
}

// statesOf makes a message within the size limit: only the first devices have reasons.
func statesOf(all []session.DeviceStatus) *statesMessage {
	room := 512 << 10 // JSON may encode a byte of a reason as six
	m := &statesMessage{}
	for i, d := range all {
		if d.State != session.Up || d.Cause != session.CauseNone {
			reason := d.Reason[:min(len(d.Reason), maxText, room)]
			room -= len(reason)
			m.Devices = append(m.Devices, deviceMessage{i, d.State, d.Cause, reason})
		}
	}
	return m
}

// readInput decodes what inputOf encodes.
func readInput(text []byte) (list field.List, until map[string]int64, err error) {
	var in input
	if err = json.Unmarshal(text, &in); err == nil {
		list, _, err = field.Parse(strings.NewReader(in.List), field.ParseOptions{File: "the list of the exporter"})
	}
	if err != nil {
		return field.List{}, nil, fmt.Errorf("read the exporter's field list: %w", err)
	}
	list.Dialect = in.Dialect
	return list, in.Until, nil
}
