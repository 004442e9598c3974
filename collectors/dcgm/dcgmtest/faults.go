package dcgmtest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"warpgauge/collectors/internal/simulated"
	"warpgauge/internal/testkit/eventually"
)

// Every stands for all functions, except those that release something (unwatch, destroy, disconnect).
const Every = "*"

type fault struct{ function, kind, what string }

func (e *Engine) setFault(f fault) {
	e.change(func() error {
		if f.function != Every && !simulated.Has(functions(), f.function) {
			return fmt.Errorf("fault in %q: the simulated DCGM has no such function", f.function)
		}
		e.faults = slices.DeleteFunc(e.faults, func(o fault) bool { return o.function == f.function && o.kind == f.kind })
		if f.what != "" {
			e.faults = append(e.faults, f)
		}
		return nil
	})
}

// Return makes a function answer a code of DCGM; 0 removes the fault.
func (e *Engine) Return(function string, code int) {
	f := fault{function, "code", "code " + strconv.Itoa(code)}
	if code == 0 {
		f.what = ""
	}
	e.setFault(f)
}

// Hang makes calls of a function hang until release is called or the Engine is closed. release may be called twice.
func (e *Engine) Hang(function string) (release func()) {
	e.setFault(fault{function, "hang", "hang"})
	return func() { e.setFault(fault{function, "hang", ""}) }
}

// Hanging returns the number of hanging calls, in all processes.
func (e *Engine) Hanging() int { return int(e.word(simulated.Hanging)) }

// WaitHanging waits until n calls hang, at most eventually.Patience.
func (e *Engine) WaitHanging(n int) {
	for end := time.Now().Add(eventually.Patience); e.Hanging() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			e.fail(fmt.Errorf("waited %v for %d calls to hang: %d do", eventually.Patience, n, e.Hanging()))
			return
		}
	}
}

// FailNth makes the nth call from now, counted from 1, answer a code, once. Calls that release something do not count.
func (e *Engine) FailNth(n, code int) {
	for _, w := range [][2]int{{wordFailed, 0}, {wordFailCode, -code}, {wordFailAt, n}} {
		if err := e.lib.Control.Write(w[0], uint64(w[1])); err != nil {
			e.fail(err)
		}
	}
}

// Failed returns the function that FailNth made fail, "" if none has yet.
func (e *Engine) Failed() string {
	if n := e.word(wordFailed); n > 0 {
		return functions()[n-1].Name
	}
	return ""
}

// Restart loses all connections and everything that the engine keeps for them, like a restarted process. Embedded
// engines exist only in name then: their calls fail, too.
func (e *Engine) Restart() {
	if err := errors.Join(e.begin(), e.lib.Control.Next(wordEngine)); err != nil {
		e.fail(err)
	}
}

// begin records when the engine began.
func (e *Engine) begin() error { return e.lib.Control.Write(wordSince, uint64(time.Now().UnixMicro())) }

// Stop is Restart without the start: connecting answers a code, for example -21, until Start.
func (e *Engine) Stop(code int) {
	e.setting("down", strconv.Itoa(code))
	e.Restart()
}

// Start ends Stop.
func (e *Engine) Start() { e.setting("down", "0") }

// RefuseEmbedded makes starting an embedded engine answer a code; 0 removes the fault.
func (e *Engine) RefuseEmbedded(code int) { e.setting("embedding", strconv.Itoa(code)) }

// RefuseListing makes listing the entities of a kind answer a code; 0 removes the fault.
func (e *Engine) RefuseListing(k Kind, code int) {
	e.setting(fmt.Sprintf("unlisted %d", k), strconv.Itoa(code))
}

// RefuseProfiling makes all profiling calls answer a code (-33 without the module, -36 on GPUs without it); 0 removes
// the fault.
func (e *Engine) RefuseProfiling(code int) { e.setting("profiling", strconv.Itoa(code)) }

// Reverse makes replies come in the opposite order.
func (e *Engine) Reverse(on bool) { e.setting("order", digit(on)) }

// CountAll makes all lists report this number of entries; 0 removes the fault.
func (e *Engine) CountAll(n uint32) { e.setting("counts", strconv.FormatUint(uint64(n), 10)) }

// FirstValue sets how long after a watch the engine has the first value.
func (e *Engine) FirstValue(d time.Duration) {
	e.setting("first", strconv.FormatInt(d.Microseconds(), 10))
}

func digit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

func (e *Engine) setting(key, value string) {
	e.change(func() error {
		e.settings = append(slices.DeleteFunc(e.settings, func(s string) bool { return len(s) > len(key) && s[:len(key)+1] == key+" " }), key+" "+value)
		return nil
	})
}

type freeze struct {
	of Entity
	at time.Time
}

// Freeze freezes an entity's values, or with All or Everything those of many: the engine keeps answering with the last
// ones. A GPU's instances and links freeze with it.
func (e *Engine) Freeze(of Entity) {
	e.change(func() error {
		for _, x := range e.family(of) {
			e.freezes = append(e.freezes, freeze{x, time.Now()})
		}
		return nil
	})
}

// Thaw ends Freeze.
func (e *Engine) Thaw(of Entity) {
	e.change(func() error {
		all := e.family(of)
		e.freezes = slices.DeleteFunc(e.freezes, func(f freeze) bool { return slices.Contains(all, f.of) })
		return nil
	})
}

// family returns an entity with its parts.
func (e *Engine) family(of Entity) []Entity {
	out := []Entity{of}
	for _, l := range e.links {
		if l.of == of {
			for n := range l.states {
				out = append(out, Link(of, n))
			}
		}
	}
	for _, m := range e.instances {
		if slices.Contains(out, m.parent) {
			out = append(out, m.entity)
		}
	}
	return out
}

// XID gives a GPU an XID now.
func (e *Engine) XID(gpu, code int) { e.XIDOf(GPU(gpu), code) }

// XIDOf gives a GPU, a GPU instance or a compute instance an XID now.
func (e *Engine) XIDOf(of Entity, code int) {
	e.change(func() error {
		e.xids = append(e.xids, fmt.Sprintf("xid %s %d %d", of, time.Now().UnixMicro(), code))
		return nil
	})
}

// Incident adds a finding of the engine's health checks. system is a bit of DCGM_HEALTH_WATCH_…, health 10 (warn) or 20
// (fail), code a DCGM_FR_….
func (e *Engine) Incident(of Entity, system uint32, health, code int, message string) {
	e.change(func() error {
		e.incidents = append(e.incidents, fmt.Sprintf("incident %s %d %d %d %s", of, system, health, code, message))
		return nil
	})
}

// Healthy removes all incidents.
func (e *Engine) Healthy() {
	e.change(func() error { e.incidents = nil; return nil })
}
