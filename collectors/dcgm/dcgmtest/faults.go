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

// Every stands for all functions. What takes things back (unwatch, destroy,
// disconnect) is left out of codes for Every.
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

// Return makes a function answer a code of DCGM; 0 takes it back.
func (e *Engine) Return(function string, code int) {
	f := fault{function, "code", "code " + strconv.Itoa(code)}
	if code == 0 {
		f.what = ""
	}
	e.setFault(f)
}

// Hang makes calls of a function hang until release is called, which may be done
// twice, or the Engine is closed.
func (e *Engine) Hang(function string) (release func()) {
	e.setFault(fault{function, "hang", "hang"})
	return func() { e.setFault(fault{function, "hang", ""}) }
}

// Hanging is how many calls hang, in all processes.
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

// FailNth makes the nth call from now, counted from 1, answer a code, once. Calls
// that take things back do not count.
func (e *Engine) FailNth(n, code int) {
	for _, w := range [][2]int{{wordFailed, 0}, {wordFailCode, -code}, {wordFailAt, n}} {
		if err := e.lib.Control.Write(w[0], uint64(w[1])); err != nil {
			e.fail(err)
		}
	}
}

// Failed is the function whose call FailNth made fail, "" if none has yet.
func (e *Engine) Failed() string {
	if n := e.word(wordFailed); n > 0 {
		return functions()[n-1].Name
	}
	return ""
}

// Restart loses all connections and everything that the engine keeps for them, as
// when its process is started again. Embedded engines live on only in name: their
// calls fail, too.
func (e *Engine) Restart() {
	if err := errors.Join(e.begin(), e.lib.Control.Next(wordEngine)); err != nil {
		e.fail(err)
	}
}

// begin notes when the engine began.
func (e *Engine) begin() error { return e.lib.Control.Write(wordSince, uint64(time.Now().UnixMicro())) }

// Stop is Restart without the start: connecting answers a code, as -21, until
// Start.
func (e *Engine) Stop(code int) {
	e.setting("down", strconv.Itoa(code))
	e.Restart()
}

// Start ends Stop.
func (e *Engine) Start() { e.setting("down", "0") }

// RefuseEmbedded makes starting an embedded engine answer a code; 0 takes it back.
func (e *Engine) RefuseEmbedded(code int) { e.setting("embedding", strconv.Itoa(code)) }

// RefuseListing makes listing the entities of a kind answer a code; 0 takes it back.
func (e *Engine) RefuseListing(k Kind, code int) {
	e.setting(fmt.Sprintf("unlisted %d", k), strconv.Itoa(code))
}

// RefuseProfiling makes everything about profiling answer a code (-33 without the
// module, -36 on GPUs without it); 0 takes it back.
func (e *Engine) RefuseProfiling(code int) { e.setting("profiling", strconv.Itoa(code)) }

// Reverse makes replies come in the opposite order.
func (e *Engine) Reverse(on bool) { e.setting("order", digit(on)) }

// CountAll makes all lists say that they have so many entries, whatever they have; 0 takes it back.
func (e *Engine) CountAll(n uint32) { e.setting("counts", strconv.FormatUint(uint64(n), 10)) }

// FirstValue is how long after a watch the engine has the first value.
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

// Freeze stops an entity's values, and with All or Everything those of many: the
// engine continues answering with the last ones. A GPU takes its instances and links
// along.
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

// family is an entity and what is part of it.
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

// XID makes a GPU have an XID now.
func (e *Engine) XID(gpu, code int) { e.XIDOf(GPU(gpu), code) }

// XIDOf makes a GPU, a GPU instance or a compute instance have an XID now.
func (e *Engine) XIDOf(of Entity, code int) {
	e.change(func() error {
		e.xids = append(e.xids, fmt.Sprintf("xid %s %d %d", of, time.Now().UnixMicro(), code))
		return nil
	})
}

// Incident is what the engine's health checks find of an entity from now on.
// system is a bit of DCGM_HEALTH_WATCH_…, health 10 (warn) or 20 (fail), code a
// DCGM_FR_….
func (e *Engine) Incident(of Entity, system uint32, health, code int, message string) {
	e.change(func() error {
		e.incidents = append(e.incidents, fmt.Sprintf("incident %s %d %d %d %s", of, system, health, code, message))
		return nil
	})
}

// Healthy takes all incidents back.
func (e *Engine) Healthy() {
	e.change(func() error { e.incidents = nil; return nil })
}
