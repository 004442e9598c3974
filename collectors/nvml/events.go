//go:build linux && cgo

package nvml

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/field"
)

const (
	// listenEvery is how often an event set is asked. It is asked without
	// waiting: a wait would keep a thread of the process in the library for each
	// GPU, and Close waiting for it.
	listenEvery = 250 * time.Millisecond

	// Pauses between attempts to open an event set again.
	firstListenPause = time.Second
	lastListenPause  = time.Minute

	// listenPatience is how long a new source waits for the event set of its GPU,
	// and Close for the end of the listening. A GPU that hangs keeps neither.
	listenPatience = time.Second
)

// errNoEvents says that a GPU, or its driver, has no XID events.
var errNoEvents = errors.New("XID events are not supported")

// eventSet is an event set of the library with one GPU in it. One goroutine at a
// time uses it.
type eventSet interface {
	// next returns an event that waits, and none if there is none. It does not
	// wait for one.
	next() (heardEvent, error)
	close()
}

// heardEvent is what an event set tells.
type heardEvent struct {
	kind  eventKind
	event event // of kind xidEvent
}

type eventKind int

const (
	noEvent    eventKind = iota
	xidEvent             // an XID
	migEvent             // MIG was configured anew
	otherEvent           // nothing that anybody asked for
)

// board listens to the events of one GPU, on a goroutine of its own, so that a
// GPU whose calls hang leaves the others audible.
type board struct {
	eventLog
	uuid string
	log  *zap.Logger

	stop  chan struct{}
	done  chan struct{}
	again chan struct{} // a new source has come: an event set may open now
	asked chan struct{} // closed when the first attempt to open an event set has ended

	linksUp atomic.Uint64 // NVLinks that were seen active

	// Under boards.mu.
	refs int

	// Under eventLog.mu.
	open func() (eventSet, error)
	none error // why the GPU has no events; nil while it may have
}

// boards are the GPUs of a library that somebody listens to. All collectors that
// share a library share them: at a reload there are two collectors for a while,
// and one event set per GPU.
type boards struct {
	mu   sync.Mutex
	held map[string]*board // by UUID
}

// join returns the GPU's board and listens if nobody does yet. open makes an
// event set; the one that came with the newest join is used, because handles of
// an earlier one may be outdated. hold, if not nil, is called when the listening
// begins and what it returns when that ends: a call that hangs must not have its
// library shut down. log names the GPU.
func (b *boards) join(uuid string, open func() (eventSet, error), hold func() (release func()), log *zap.Logger) *board {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.held[uuid]; x != nil {
		x.refs++
		x.mu.Lock()
		x.open = open
		x.mu.Unlock()
		select {
		case x.again <- struct{}{}:
		default:
		}
		return x
	}
	x := &board{
		uuid: uuid, log: log, refs: 1,
		stop: make(chan struct{}), done: make(chan struct{}), asked: make(chan struct{}), again: make(chan struct{}, 1),
		open: open,
	}
	if b.held == nil {
		b.held = make(map[string]*board)
	}
	b.held[uuid] = x
	release := func() {}
	if hold != nil {
		release = hold()
	}
	go func() {
		defer close(x.done)
		defer release() // before that, so that the last reference is not ours
		x.listen()
	}()
	return x
}

// leave gives the board back. The last one ends the listening; a call into the
// library that hangs is abandoned.
func (b *boards) leave(x *board) {
	b.mu.Lock()
	x.refs--
	last := x.refs == 0
	if last {
		delete(b.held, x.uuid)
	}
	b.mu.Unlock()
	if !last {
		return
	}
	close(x.stop)
	if !closedIn(x.done, listenPatience) {
		x.log.Warn("event set does not answer, abandoned")
	}
}

// unsupported waits for the first answer of the GPU and returns why it has no
// events, nil if it has. One that does not answer may have.
func (x *board) unsupported() error {
	if !closedIn(x.asked, listenPatience) {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.none
}

// listen keeps an event set open until stop. Events that occur while none is
// open are not seen; that is logged, and none is made up.
func (x *board) listen() {
	var answered, deaf sync.Once
	defer answered.Do(func() { close(x.asked) })
	for pause := firstListenPause; ; pause = min(2*pause, lastListenPause) {
		opened := time.Now()
		err := x.session(func() { answered.Do(func() { close(x.asked) }) })
		switch {
		case err == nil:
			return
		case errors.Is(err, errNoEvents):
			x.mu.Lock()
			x.none = err
			x.mu.Unlock()
			return
		}
		answered.Do(func() { close(x.asked) })
		if time.Since(opened) > lastListenPause {
			pause, deaf = firstListenPause, sync.Once{}
		}
		deaf.Do(func() { x.log.Warn("XIDs of this GPU are not seen until an event set opens again", zap.Error(err)) })
		timer := time.NewTimer(pause)
		select {
		case <-x.stop:
			timer.Stop()
			return
		case <-x.again:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// session opens an event set and listens to it until it fails, or until stop,
// when it returns nil.
func (x *board) session(opened func()) error {
	x.mu.Lock()
	open := x.open
	x.mu.Unlock()
	set, err := open()
	if err != nil {
		return err
	}
	defer set.close()
	x.heard.Store(true)
	defer x.heard.Store(false)
	opened()
	for {
		if err := x.drain(set); err != nil {
			return err
		}
		if closedIn(x.stop, listenEvery) {
			return nil
		}
	}
}

// drain logs the events that wait. A storm must not keep us from the end.
func (x *board) drain(set eventSet) error {
	for range logSize {
		e, err := set.next()
		if err != nil || e.kind == noEvent {
			return err
		}
		switch e.kind {
		case xidEvent:
			// Once per code: what a GPU says before it hangs is in no row.
			if x.add(e.event) {
				x.log.Warn("XID", zap.Uint64("xid", e.event.code), zap.String("meaning", field.XIDText(int(min(e.event.code, 1<<30)))))
			}
		case migEvent:
			x.reconfigured()
		}
	}
	return nil
}

// closedIn waits for c to be closed, but no longer than d. It reports whether it was.
func closedIn(c <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
