package dcgmtest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"warpgauge/collectors/internal/simulated"
	"warpgauge/pkg/field"
)

// Engine is one simulated DCGM. Its methods are safe for concurrent use, also while
// the library is in use. Each change is complete when the method returns.
type Engine struct {
	config Config
	fail   func(error)
	lib    *simulated.Copy

	mu        sync.Mutex
	closed    bool
	base      []string // lines with the values of the preset
	script    []line
	forgotten []int                  // fields
	links     map[Entity][]LinkState // by owner
	parts     []instance
	calls     map[string]uint64 // at the last ResetCalls
}

// line is a line of the script. A later line with the same key replaces it. For some lines the key is the whole line.
type line struct{ key, rest string }

// put replaces a line of the script, or removes it. The key and rest are words.
func (e *Engine) put(on bool, rest any, key ...any) {
	l := line{strings.TrimSpace(fmt.Sprintln(key...)), fmt.Sprint(rest)}
	e.script = slices.DeleteFunc(e.script, func(o line) bool { return o.key == l.key })
	if on {
		e.script = append(e.script, l)
	}
}

// set calls put and makes the library read the script.
func (e *Engine) set(on bool, rest any, key ...any) {
	e.change(func() { e.put(on, rest, key...) })
}

// change applies f and makes the library read the script.
func (e *Engine) change(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	if err := e.lib.Write(e.text()); err != nil {
		e.fail(err)
	}
}

// text returns the script: the catalogue's fields, then the lines.
func (e *Engine) text() string {
	var b strings.Builder
	for _, d := range field.All() {
		if d.ID > 0 && d.ID < field.FirstExporter && !slices.Contains(e.forgotten, int(d.ID)) {
			kind := map[field.Kind]string{field.Int64: "i", field.Double: "d", field.String: "s"}[d.Kind]
			fmt.Fprintf(&b, "field %d %s %g %g\n", d.ID, cmp.Or(kind, "b"), d.Min, d.Max)
		}
	}
	for _, l := range e.base {
		fmt.Fprintln(&b, l)
	}
	for _, l := range e.script {
		fmt.Fprintln(&b, l.key, l.rest)
	}
	return b.String()
}

// Library returns the path of the simulated libdcgm.so.4, for --dcgm-library.
func (e *Engine) Library() string { return e.lib.Path }

// Close ends hanging calls. The error reports a script that could not be read, structs whose version is in none of
// DCGM's headers, and exceeded limits.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	e.script = slices.DeleteFunc(e.script, func(l line) bool { return strings.HasPrefix(l.key, "fault ") })
	return errors.Join(e.lib.Write(e.text()), e.Trouble(), e.lib.Control.Close())
}

// Trouble reports errors in the library's script and in its callers.
func (e *Engine) Trouble() error {
	var errs []error
	if e.word(simulated.Errors) != 0 {
		errs = append(errs, fmt.Errorf("simulated DCGM: %s", e.lib.Control.Message()))
	}
	if n := e.word(wordVersions); n != 0 {
		errs = append(errs, fmt.Errorf("simulated DCGM: %d structs of a wrong size or version", n))
	}
	if n := e.word(wordLimits); n != 0 {
		errs = append(errs, fmt.Errorf("simulated DCGM: %d calls beyond a limit", n))
	}
	e.write(simulated.Errors, 0)
	e.write(wordVersions, 0)
	e.write(wordLimits, 0)
	return errors.Join(errs...)
}

func (e *Engine) word(w int) uint64 {
	v, err := e.lib.Control.Read(w)
	if err != nil {
		e.fail(err)
	}
	return v
}

func (e *Engine) write(w int, v uint64) {
	if err := e.lib.Control.Write(w, v); err != nil {
		e.fail(err)
	}
}

// Set sets a field of an entity. A setting for one entity overrides settings for All and Everything.
func (e *Engine) Set(of Entity, field int, v Value) { e.set(true, v.text, "value", of, field) }

// Unset undoes Set.
func (e *Engine) Unset(of Entity, field int) { e.set(false, "", "value", of, field) }

// Refuse makes a watch that contains the field return a code, and likewise a call that reads it from the driver.
func (e *Engine) Refuse(of Entity, field, code int) { e.set(true, code, "refuse", of, field) }

// Forget makes a field unknown to the engine: it refuses field groups with it.
func (e *Engine) Forget(field int) { e.change(func() { e.forgotten = append(e.forgotten, field) }) }

// Every means all functions except those that release something (unwatch, destroy, disconnect).
const Every = "*"

// Return makes a function return a code of DCGM; 0 removes the fault.
func (e *Engine) Return(function string, code int) { e.set(code != 0, code, "fault", function, "code") }

// Hang makes calls of a function hang until release is called or the Engine is closed. release may be called twice.
func (e *Engine) Hang(function string) (release func()) {
	e.set(true, "", "fault", function, "hang")
	return func() { e.set(false, "", "fault", function, "hang") }
}

// FailNth makes the nth call from now, counted from 1, return a code, once. Calls that release something do not count.
func (e *Engine) FailNth(n, code int) {
	e.write(wordFailed, 0)
	e.write(wordFailCode, uint64(-code))
	e.write(wordFailAt, uint64(n))
}

// Failed returns the function that failed because of FailNth, or "" before the failure.
func (e *Engine) Failed() string {
	if n := e.word(wordFailed); n > 0 {
		return functions()[n-1].Name
	}
	return ""
}

// Restart drops all connections and everything that the engine keeps for them, like a restarted process. Calls of
// embedded engines fail then, too.
func (e *Engine) Restart() {
	e.write(wordSince, uint64(time.Now().UnixMicro()))
	if err := e.lib.Control.Next(wordEngine); err != nil {
		e.fail(err)
	}
}

// Stop drops all connections and makes new ones return a code, for example -21, until Start.
func (e *Engine) Stop(code int) {
	e.Behave("down", code)
	e.Restart()
}

// Start ends Stop.
func (e *Engine) Start() { e.Behave("down", 0) }

// Behave sets a property of the engine (README.md has the list). "embedding", "profiling" and "unlisted 9" are the result
// codes for starting an embedded engine, for all profiling calls and for listing the entities of kind 9. "order" 1
// reverses replies. "counts" is the number of entries that all lists report. 0 restores a property.
func (e *Engine) Behave(property string, n int) { e.set(true, n, "engine "+property) }

// Freeze freezes the values of an entity, or of several with All or Everything: the engine keeps returning the last
// values. A GPU's instances and links freeze with it.
func (e *Engine) Freeze(of Entity) { e.setFamily(true, time.Now().UnixMicro(), "freeze", of) }

// Thaw ends Freeze.
func (e *Engine) Thaw(of Entity) { e.setFamily(false, "", "freeze", of) }

// Lose gives every value of a GPU, its instances and its links the status "GPU lost". The engine still returns the GPU's
// identity.
func (e *Engine) Lose(gpu int) { e.setFamily(true, "", "lost", GPU(gpu)) }

// Restore brings back a GPU that was lost.
func (e *Engine) Restore(gpu int) { e.setFamily(false, "", "lost", GPU(gpu)) }

// setFamily sets a line for an entity and for each of its parts.
func (e *Engine) setFamily(on bool, rest any, word string, of Entity) {
	e.change(func() {
		for _, x := range e.family(of) {
			e.put(on, rest, word, x)
		}
	})
}

// XID gives a GPU an XID now.
func (e *Engine) XID(gpu, code int) { e.XIDOf(GPU(gpu), code) }

// XIDOf gives a GPU, a GPU instance or a compute instance an XID now.
func (e *Engine) XIDOf(of Entity, code int) {
	e.change(func() {
		e.script = append(e.script, line{"xid", fmt.Sprint(of, " ", time.Now().UnixMicro(), " ", code)})
	})
}

// Incident adds a finding of the engine's health checks. system is a bit of DCGM_HEALTH_WATCH_…, health is 10 (warn) or
// 20 (fail), code is a DCGM_FR_….
func (e *Engine) Incident(of Entity, system uint32, health, code int, message string) {
	e.change(func() {
		e.script = append(e.script, line{"incident", fmt.Sprintf("%s %d %d %d %s", of, system, health, code, message)})
	})
}

// Healthy removes all incidents.
func (e *Engine) Healthy() { e.set(false, "", "incident") }

// Counts holds the resources that the clients of all processes use. The resources of a killed process remain counted.
type Counts struct {
	Inits         int // processes that have initialised the library
	Connections   int
	Embedded      int
	Groups        int
	FieldGroups   int
	Watches       int // pairs of group and field group
	HealthWatches int // groups
}

// Counts returns the resources that clients hold now.
func (e *Engine) Counts() Counts {
	n := func(w int) int { return int(e.word(w)) }
	return Counts{
		Inits: n(wordInits), Connections: n(wordConnections), Embedded: n(wordEmbedded),
		Groups: n(wordGroups), FieldGroups: n(wordFieldGroups), Watches: n(wordWatches), HealthWatches: n(wordHealthWatches),
	}
}

// Calls returns how often all processes have called a function since ResetCalls.
func (e *Engine) Calls(function string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int(e.allCalls()[function] - e.calls[function])
}

func (e *Engine) allCalls() map[string]uint64 {
	out := map[string]uint64{}
	for i, f := range functions() {
		n, err := e.lib.Control.Calls(i)
		if err != nil {
			e.fail(err)
		}
		out[f.Name] = n
	}
	return out
}

// ResetCalls resets the counts of calls and the result of MostValues.
func (e *Engine) ResetCalls() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = e.allCalls()
	e.write(wordMostValues, 0)
}

// MostValues returns the number of values in the largest reply.
func (e *Engine) MostValues() int { return int(e.word(wordMostValues)) }

// Log returns the log file of the embedded engine, or "" without one, and the severity; false if no engine was started.
func (e *Engine) Log() (file string, severity int, ok bool) {
	s := e.word(wordSeverity)
	if s == 0 {
		return "", 0, false
	}
	return e.lib.Control.Text(), int(s - 1), true
}
