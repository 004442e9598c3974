// Package accounts counts what each owner has used of each board: energy, time, memory, throttling, XIDs. An owner is a
// container, a batch job, nobody (the board has no owner), or unattributed (who used the board is not known).
//
// A Ledger follows the rows of all boards and integrates each row over the owners that the board had meanwhile. The energy of a
// board's counter goes to its owners without a rest: their sum is the difference of the counter, exactly. What several owners
// share is divided by the method that the counter's label names.
package accounts

import (
	"cmp"
	"math"
	"time"

	"warpgauge/pkg/field"
)

// Owner is who uses a board. It is comparable.
type Owner struct {
	Kind      string `json:"kind"` // a constant below
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"` // the pod's, if known
	Container string `json:"container,omitempty"`
	Job       string `json:"job,omitempty"`
}

// Kinds of owners.
const (
	KindPod          = "pod"
	KindJob          = "job"
	KindNobody       = "nobody"
	KindUnattributed = "unattributed"
)

var (
	nobody       = Owner{Kind: KindNobody}
	unattributed = Owner{Kind: KindUnattributed}
)

// compare orders owners.
func (o *Owner) compare(p *Owner) int {
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), cmp.Compare(o.Namespace, p.Namespace), cmp.Compare(o.Pod, p.Pod), cmp.Compare(o.UID, p.UID),
		cmp.Compare(o.Container, p.Container), cmp.Compare(o.Job, p.Job))
}

// Methods by which an owner's part of a board is found.
const (
	methodWhole    = iota // the owner has the board alone
	methodActivity        // by the activity of processes or MIG instances
	methodSlices          // by the size of MIG instances, of which none was active
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
	fromPower          // power times time: the board has no counter, or it stands still
	sources
)

var sourceNames = [sources]string{"counter", "power"}

// account holds what an owner has used of a board.
type account struct {
	owner Owner
	board *board

	came, left int64 // ns; left is 0 while the owner has the board
	scrapes    int   // since it left

	energy    [sources][methods][states]int64 // µJ
	held      float64                         // seconds that the owner had the board, times its part of it
	observed  float64                         // of them with a known utilisation
	busy      float64                         // of them at which something ran
	profiled  float64                         // with a known activity of the tensor pipe
	tensor    float64                         // times that activity
	clocked   float64                         // with a known activity and clock
	ofu       float64                         // times activity and the clock's part of its peak
	memory    float64                         // byte seconds
	peak      float64                         // bytes
	throttled [field.ClockReasons]float64
	xids      int
	used      int64 // ns, when something ran last

	use Use // newest, of a board that it shares
}

// Use is what the processes of an owner do on a board that several owners share. NaN is unknown.
type Use struct {
	Busy   float64 // share of the board, 0 to 1
	Memory float64 // bytes
}

// part is what a row says of an owner's part of a board.
type part struct {
	size     float64 // of the board
	activity float64 // of the part, 0 to 1; NaN: unknown
	tensor   float64 // of the part, 0 to 1; NaN: unknown
	clock    float64 // as a share of its peak; NaN: unknown
	memory   float64 // bytes; NaN: unknown
	reasons  uint64  // why clocks are held down
}

// add counts some seconds of a row until the time at.
func (a *account) add(seconds float64, at int64, p *part) {
	seconds *= p.size
	if p.activity >= 0 {
		a.observed += seconds
		a.busy += seconds * p.activity
	}
	if p.activity > 0 {
		a.used = at
	}
	if p.tensor >= 0 {
		a.profiled += seconds
		a.tensor += seconds * p.tensor
		if p.clock >= 0 {
			a.clocked += seconds
			a.ofu += seconds * p.tensor * p.clock
		}
	}
	if p.memory >= 0 {
		a.memory += seconds / p.size * p.memory
		a.peak = max(a.peak, p.memory)
	}
	for bit := range a.throttled {
		if p.reasons>>bit&1 == 1 {
			a.throttled[bit] += seconds
		}
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

// joules returns all energy of the account, µJ.
func (a *account) joules() (sum int64) {
	for _, of := range a.energy {
		for _, by := range of {
			for _, e := range by {
				sum += e
			}
		}
	}
	return sum
}

// unknown is the value of what no reading says.
var unknown = math.NaN()

const second = float64(time.Second)
