package collectortest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

func toyHarness(flaw string) Harness {
	return Harness{
		Name:     "toy",
		Fields:   toyFields(),
		Patience: 100 * time.Millisecond,
		New:      func(tb testing.TB) Rig { tb.Helper(); return (&toyWorld{flaw: flaw}).rig(tb) },
	}
}

// TestSound runs the suite on a collector that keeps the contract.
func TestSound(t *testing.T) {
	h := toyHarness("")
	h.Patience = 0
	Run(t, h)
}

// TestFlaws runs each check on collectors that violate it. The check must fail because of the flaw.
func TestFlaws(t *testing.T) {
	flaws := map[string][]string{
		"name":                         {"name"},
		"device identity":              {"empty id", "id twice", "orphan", "no uuid", "not utf8", "no source"},
		"identity is stable":           {"new ids"},
		"facts":                        {"foreign fact", "empty fact", "fact twice"},
		"columns":                      {"column out of range", "column not asked", "column twice", "labels unsorted", "label twice", "label missing", "no columns"},
		"unknown field":                {"unknown column", "unknown drops rest"},
		"reasons":                      {"no reason", "reason of a column", "reason twice", "reason of no device", "reason without words", "explanation missing", "reasons change"},
		"reasons of blanks":            {"blank of another source", "blank of the session"},
		"fixed and shared":             {"columns change", "devices change"},
		"due cells are filled":         {"cell skipped", "due changed", "sample fails"},
		"other cells keep their value": {"writes all"},
		"values":                       {"sentinel", "implausible", "fraction", "all blank"},
		"events":                       {"event always"},
		"event raised":                 {"event ignored", "event repeats"},
		"ownership":                    {"keeps row", "reads old row"},
		"allocations":                  {"allocates"},
		"open is cancelled":            {"ignores ctx"},
		"open is cancelled midway":     {"cancelled halfway"},
		"open fails":                   {"fails quietly", "fails for ever"},
		"close twice":                  {"close once"},
		"open again":                   {"blank after close", "fails after close", "opens once"},
		"rescan":                       {"rescan cries wolf", "rescan fails"},
		"leaks":                        {"leaks goroutine", "leaks descriptor"},
		"device lost":                  {"lost unnoticed", "lost takes others", "lost for ever", "lost stops open"},
		"device hangs":                 {"hang unnoticed", "hang holds others", "hang holds open", "hang breaks others"},
		"columns changed":              {"change unnoticed", "change is stale", "change is an error"},
	}
	for _, c := range checks() {
		testkit.ErrorIf(t, len(flaws[c.name]) == 0, "no flaw shows that the check %q can fail", c.name)
		r := record(t, c, toyHarness(""))
		testkit.ErrorIf(t, r.failed, "check %q fails on a sound collector: %q", c.name, r.messages)
		for _, flaw := range flaws[c.name] {
			t.Run(c.name+"/"+flaw, func(t *testing.T) {
				if c.name == "allocations" && testkit.Race {
					t.Skip("the race runtime allocates")
				}
				r := record(t, c, toyHarness(flaw))
				testkit.ErrorIf(t, !r.failed, "check %q passed a collector with the flaw %q", c.name, flaw)
			})
		}
	}
}

// recorder is a testing.TB that keeps what a check reports.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	skipped  bool
	messages []string
	cleanups []func()
}

// record runs a check to its end, including its clean-up.
func record(t *testing.T, c check, h Harness) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	inGoroutine(func() { c.run(newSubtest(r, h)) })
	for len(r.cleanups) > 0 {
		f := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		inGoroutine(f)
	}
	return r
}

// inGoroutine runs f so that it may end its goroutine, as FailNow does.
func inGoroutine(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (r *recorder) note(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.messages = append(r.messages, text)
}

func (r *recorder) Helper()                           {}
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Log(args ...any)                   { r.note(false, fmt.Sprint(args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.note(false, fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.note(true, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(true, fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.note(true, "") }
func (r *recorder) FailNow()                          { r.note(true, ""); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) Skip(args ...any)                  { r.Skipf("%s", fmt.Sprint(args...)) }
func (r *recorder) SkipNow()                          { r.skipped = true; runtime.Goexit() }
func (r *recorder) Failed() bool                      { return r.failed }
func (r *recorder) Skipped() bool                     { return r.skipped }

func (r *recorder) Skipf(format string, args ...any) {
	r.Logf(format, args...)
	r.SkipNow()
}
