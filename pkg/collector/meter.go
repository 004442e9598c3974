package collector

import (
	"sync/atomic"
	"time"
)

// CallMeter is an optional ability of a Source. It reports the cost of each kind of library call, so that users see
// which fields are expensive. A source that knows only the time of a whole Sample omits it, because the session measures
// that time.
type CallMeter interface {
	// Calls returns the costs since Open, one entry per kind of call, in any
	// order. It may run concurrently with Sample and must not wait for it.
	Calls() []CallCost
}

// CallCost is the cost of one kind of library call so far.
type CallCost struct {
	Call    string // the vendor's function or a group of them: "nvmlDeviceGetFieldValues"
	Count   uint64
	Time    time.Duration
	Running bool // a call has begun and not returned
}

// Prober is an optional ability of a Source whose call hangs: it tells whether the device answers others.
type Prober interface {
	// Probe makes a call other than running, a name of CallCost, and reports whether the device answers, with an error or
	// without. It runs next to Sample and may hang.
	Probe(running string) bool
}

// Meter counts the calls of one kind and their time. It is safe for concurrent use.
type Meter struct {
	Call         string
	count, nanos atomic.Int64
	running      atomic.Bool
}

// Begin returns the time, from which a call runs until Record.
func (m *Meter) Begin() time.Time {
	m.running.Store(true)
	return time.Now()
}

// Record counts calls that began at since and have just ended.
func (m *Meter) Record(calls int, since time.Time) {
	m.running.Store(false)
	m.count.Add(int64(calls))
	m.nanos.Add(int64(time.Since(since)))
}

// Cost returns the cost of the calls so far.
func (m *Meter) Cost() CallCost {
	return CallCost{Call: m.Call, Count: uint64(m.count.Load()), Time: time.Duration(m.nanos.Load()), Running: m.running.Load()}
}
