package dcgmtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"warpgauge/collectors/internal/simulated"
	"warpgauge/pkg/field"
)

// Engine is one simulated DCGM. Its methods may be called by several goroutines,
// while the library is in use; each change is complete when the method returns.
type Engine struct {
	config Config
	fail   func(error)
	lib    *simulated.Copy

	mu     sync.Mutex
	closed bool
	content
	calls map[string]uint64 // at the last ResetCalls
}

// content is the content of the script.
type content struct {
	epoch     time.Time
	settings  []string // engine …
	entities  []Entity
	odd       []Entity // unsupported
	links     []linkRow
	cpus      []string
	peers     []string
	metrics   []string
	instances []mig
	base      []string // values of the preset
	sets      []setting
	refused   []refusal
	unknown   []int
	freezes   []freeze
	lost      []Entity
	xids      []string
	incidents []string
	faults    []fault
}

// Library returns the path of the simulated libdcgm.so.4, for --dcgm-library.
func (e *Engine) Library() string { return e.lib.Path }

// Close ends hanging calls. The error reports a script that could not be read, structs whose version is in none of
// DCGM's headers, and exceeded limits.
func (e *Engine) Close() error {
	e.mu.Lock()
	closed := e.closed
	e.closed, e.faults = true, nil
	e.mu.Unlock()
	if closed {
		return nil
	}
	return errors.Join(e.write(), e.Trouble(), e.lib.Control.Close())
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
	for _, w := range []int{simulated.Errors, wordVersions, wordLimits} {
		errs = append(errs, e.lib.Control.Write(w, 0))
	}
	return errors.Join(errs...)
}

// change applies f and makes the library read it.
func (e *Engine) change(f func() error) {
	e.mu.Lock()
	err := f()
	e.mu.Unlock()
	if err == nil {
		err = e.write()
	}
	if err != nil {
		e.fail(err)
	}
}

func (e *Engine) write() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lib.Write(e.text())
}

func (e *Engine) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, s := range e.settings {
		line("engine %s", s)
	}
	for _, d := range field.All() {
		if t, ok := fieldType(d); ok && !slices.Contains(e.unknown, int(d.ID)) {
			line("field %d %s %g %g", d.ID, t, d.Min, d.Max)
		}
	}
	for _, x := range e.entities {
		odd := ""
		if slices.Contains(e.odd, x) {
			odd = " unsupported"
		}
		line("entity %s%s", x, odd)
	}
	for _, l := range e.links {
		line("%s", l.line())
	}
	for _, m := range e.instances {
		line("%s", m.line())
	}
	for _, group := range [][]string{e.cpus, e.peers, e.metrics, e.base, e.config.Lines} {
		for _, l := range group {
			line("%s", l)
		}
	}
	for _, s := range e.sets {
		line("%s", s.line())
	}
	for _, r := range e.refused {
		line("refuse %s %d %d", r.of, r.field, r.code)
	}
	for _, f := range e.freezes {
		line("freeze %s %d", f.of, f.at.UnixMicro())
	}
	for _, x := range e.lost {
		line("lost %s", x)
	}
	for _, group := range [][]string{e.xids, e.incidents} {
		for _, l := range group {
			line("%s", l)
		}
	}
	for _, f := range e.faults {
		line("fault %s %s", f.function, f.what)
	}
	return b.String()
}

// fieldType returns DCGM's letter for the type of a field; false for fields that DCGM does not have.
func fieldType(d *field.Descriptor) (string, bool) {
	if d.ID <= 0 || d.ID >= field.FirstExporter {
		return "", false
	}
	switch d.Kind {
	case field.Int64:
		return "i", true
	case field.Double:
		return "d", true
	case field.String:
		return "s", true
	default:
		return "b", true
	}
}
