package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// report prints a line for each check as soon as its result is known.
type report struct {
	start                   time.Time
	passed, failed, skipped int
	mu                      sync.Mutex
}

// skip is an error that says why a check cannot be made here.
type skip string

func (s skip) Error() string { return string(s) }

// check makes a check, prints how it went and returns whether the next one can run.
func (r *report) check(name string, f func() (string, error)) bool {
	begin := time.Now()
	text, err := f()
	var s skip
	verdict := "ok  "
	switch {
	case errors.As(err, &s):
		r.skipped++
		verdict, text = "skip", string(s)
	case err != nil:
		r.failed++
		verdict, text = "FAIL", err.Error()
	default:
		r.passed++
	}
	r.note("%s %s (%s)", verdict, name, since(begin))
	for line := range strings.Lines(text) {
		r.note("       %s", strings.TrimRight(line, "\n"))
	}
	return err == nil
}

func (r *report) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Printf("%6.1f s  %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

func (r *report) print() error {
	r.note("%d passed, %d failed, %d skipped", r.passed, r.failed, r.skipped)
	if r.failed > 0 {
		return fmt.Errorf("%d checks failed", r.failed)
	}
	return nil
}

func since(t time.Time) string { return fmt.Sprintf("%.1f s", time.Since(t).Seconds()) }
