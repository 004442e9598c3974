// Package accounts counts what each owner has used of each board: energy, time, memory, throttling, XIDs. An owner is a
// container, a batch job, no owner (kind nobody), or unattributed (the user is not known).
//
// A Ledger follows the rows of all boards and integrates each row over the owners that the board had meanwhile. The energy of a
// board's counter goes to its owners without a rest: their sum is the difference of the counter, exactly. What several owners
// share is divided by the method that the counter's label names.
package accounts

import (
	"cmp"
	"math"
	"time"

	"warpgauge/extensions/accounts/report"
	"warpgauge/pkg/field"
)

var (
	vacant       = report.Owner{Kind: report.KindNobody}
	unattributed = report.Owner{Kind: report.KindUnattributed}
)

// compare orders owners.
func compare(o, p report.Owner) int {
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), cmp.Compare(o.Namespace, p.Namespace), cmp.Compare(o.Pod, p.Pod), cmp.Compare(o.UID, p.UID),
		cmp.Compare(o.Container, p.Container), cmp.Compare(o.Job, p.Job))
}

// Methods to find an owner's part of a board.
const (
	methodWhole    = iota // the owner has the board alone
	methodActivity        // by the activity of processes or MIG instances
	methodSlices          // by the size of MIG instances, if all were idle
	methodEqual           // equal parts
	methods
)

var methodNames = [methods]string{"whole", "activity", "slices", "equal"}

// States of an owner's part of a board.
const (
	stateBusy    = iota // something ran
	stateIdle           // nothing ran
	stateUnknown        // no reading says
	states
)

var stateNames = [states]string{"busy", "idle", "unknown"}

// Sources of energy.
const (
	fromCounter = iota // differences of the board's energy counter
	fromPower          // power times time: the board has no counter, or it has stopped
	sources
)

var sourceNames = [sources]string{"counter", "power"}

// account holds what an owner has used of a board.
type account struct {
	owner report.Owner
	board *board

	came, left int64  // ns; left is 0 while the owner has the board
	since      int64  // when it came last
	made       uint64 // gatherings until one certainly has its last values; 0: not made
	before     uint64 // scrapes before that, and one; 0: not yet
	scrapes    int    // with its last values, 2 at most
	hidden     bool   // it is on the page no more
	idle       bool   // for so long that it was told
	told       bool   // the pod's end

	energy    [sources][methods][states]int64 // µJ
	busy      report.Histogram                // activity of the part, weighted with its seconds
	tensor    report.Histogram                // activity of the tensor pipe
	ofu       report.Histogram                // times the clock's part of its peak
	spent     [kinds]float64                  // seconds that the owner had the board, times its part of it, by activity
	memory    float64                         // byte seconds
	peak      float64                         // bytes
	size      float64                         // bytes that it could use; 0: unknown, and so is peak
	throttled [field.ClockReasons]float64
	xids      int
	verdicts  []report.Verdict
	used      int64   // ns, when it was used last
	low       float64 // seconds of activity since
	seen      int64   // ns, until when it is known whether something ran

	use usage // newest
}

// Activities.
const (
	spentComputing = iota
	spentMemory
	spentWaiting
	spentThrottled
	spentRunning
	spentIdle
	spentUnknown
	kinds
)

var kindNames = [kinds]string{report.Compute, report.Memory, report.Waiting, report.Throttled, report.Running, report.Idle, report.Unknown}

// usage adds up the processes of an owner on a board.
type usage struct {
	processes int     // -1: unknown
	busy      float64 // share of the board, 0 to 1; NaN: unknown
	memory    float64 // bytes; NaN: unknown
}

var noUsage = usage{-1, unknown, unknown}

// part holds the readings of a row about an owner's part of a board, from 0 to 1 of the part. NaN is unknown.
type part struct {
	size      float64 // of the board
	activity  float64 // above 1 if an owner of several uses more than an equal part
	tensor    float64 // likewise
	computing float64 // of the activity: the busiest pipe
	traffic   float64 // of the activity: memory
	clock     float64 // as a share of its peak
	memory    float64 // bytes
	capacity  float64 // of the board or instance, bytes
	reasons   uint64  // why clocks are held down
}

// A part is used by an activity of usedAt, or of usedMean on average since it was used last; an idle board has blips of less.
const (
	usedAt     = 0.05
	usedMean   = 0.01
	usedWithin = 60 // seconds, for a mean
)

// add counts some seconds of a row until the time at.
func (a *account) add(seconds float64, at int64, p *part) {
	if p.activity >= 0 {
		quiet := float64(at-max(a.used, a.since)) / second
		if a.low += seconds * p.activity; p.activity >= usedAt || quiet > usedWithin && a.low > usedMean*quiet {
			a.used, a.low = at, 0
		}
	}
	seconds *= p.size
	if p.activity >= 0 {
		a.busy.Add(p.activity, seconds)
		a.seen = at
		a.spend(seconds, p)
	} else {
		a.spent[spentUnknown] += seconds
	}
	if p.tensor >= 0 {
		a.tensor.Add(p.tensor, seconds)
		if p.clock >= 0 {
			a.ofu.Add(p.tensor*p.clock, seconds)
		}
	}
	if p.memory >= 0 {
		a.memory += seconds / p.size * p.memory
		a.peak, a.size = max(a.peak, p.memory), max(a.size, p.memory)
	}
	if p.capacity >= 0 {
		a.size = max(a.size, p.capacity)
	}
	for bit := range a.throttled {
		if p.reasons>>bit&1 == 1 {
			a.throttled[bit] += seconds
		}
	}
}

// spend divides seconds by activity.
func (a *account) spend(seconds float64, p *part) {
	running := seconds * min(p.activity, 1)
	a.spent[spentIdle] += seconds - running
	switch {
	case p.reasons != 0:
		a.spent[spentThrottled] += running
	case p.computing >= 0:
		traffic := 0.0
		if p.traffic >= 0 {
			traffic = min(p.traffic, 1-p.computing)
		}
		a.spent[spentComputing] += running * p.computing
		a.spent[spentMemory] += running * traffic
		a.spent[spentWaiting] += running * (1 - p.computing - traffic)
	default:
		a.spent[spentRunning] += running
	}
}

// state returns the state of a part.
func (p *part) state() int {
	switch {
	case p.activity > 0:
		return stateBusy
	case p.activity == 0:
		return stateIdle
	}
	return stateUnknown
}

// held returns the seconds that the owner has had the board, times its part of it.
func (a *account) held() (sum float64) {
	for _, s := range a.spent {
		sum += s
	}
	return sum
}

// idleReason tells a GPU without a process of its owner from a process that does nothing.
func (a *account) idleReason() string {
	switch {
	case a.use.processes > 0:
		return "process"
	case a.use.processes == 0:
		return "no_process"
	}
	return "unknown"
}

// unused returns for how long the part was not used, as far as is known; negative: unknown, or the owner has left.
func (a *account) unused() time.Duration {
	if a.left > 0 || a.seen <= a.since {
		return -1
	}
	return time.Duration(a.seen - max(a.used, a.since))
}

// unknown is the value of a missing reading.
var unknown = math.NaN()

const second = float64(time.Second)
