//go:build linux && cgo

package dcgm

import (
	"context"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
)

// asidePatience is how long a sample waits for a call that is made aside. It
// takes milliseconds, unless a GPU is in trouble.
const asidePatience = 250 * time.Millisecond

// aside makes one kind of call on a goroutine of its own, one at a time: a call
// for which the engine may have to wait for a GPU must not hold up the values of
// the others.
type aside struct {
	session *session
	name    string
	call    func() error

	timer  *time.Timer
	begun  bool // a call whose answer nobody has taken
	result chan outcome
	run    func() // bound once: a go statement with arguments allocates

	count, nanos atomic.Int64
}

type outcome struct{ err error }

func newAside(s *session, name string, call func() error) *aside {
	a := &aside{session: s, name: name, call: call, result: make(chan outcome, 1), timer: time.NewTimer(0)}
	a.timer.Stop()
	a.run = a.make
	return a
}

func (a *aside) make() {
	start := time.Now()
	err := a.call()
	a.count.Add(1)
	a.nanos.Add(int64(time.Since(start)))
	a.result <- outcome{err}
}

// ask makes the call, unless an earlier one is still under way, and waits for the
// answer as long as patience lasts. Until it reports true nothing of what the call
// writes may be looked at.
func (a *aside) ask() (answered bool, err error) {
	if !a.begun {
		a.begun = true
		go a.run()
	}
	a.timer.Reset(asidePatience)
	defer a.timer.Stop()
	select {
	case r := <-a.result:
		a.begun = false
		return true, r.err
	case <-a.timer.C:
		return false, nil
	}
}

func (a *aside) cost() collector.CallCost {
	return collector.CallCost{Call: a.name, Count: uint64(a.count.Load()), Time: time.Duration(a.nanos.Load())}
}

// close calls release when no call is in progress, which may be long after it has
// returned. The session is held until then.
func (a *aside) close(release func()) {
	if !a.begun {
		release()
		return
	}
	if a.session.home.hold(context.Background(), a.session) != nil {
		return // the engine is gone, and with it what there was to release
	}
	go func() {
		<-a.result
		release()
		_ = a.session.home.release(a.session) // nobody is left who could be told
	}()
}
