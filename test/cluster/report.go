package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// failure ends a check, as FailNow ends a test: must, get and fail panic with one, and try returns its error.
type failure struct{ error }

// skip is an error that says why a check cannot be made here.
type skip string

func (s skip) Error() string { return string(s) }

func must(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(failure{err})
	}
}

func get[T any](v T, err error) T {
	must(err)
	return v
}

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// try runs f and returns the error that ended it early.
func try(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// wait repeats a check until it succeeds or the time is over, and then fails with the
// check's last error.
func (n *node) wait(limit time.Duration, check func()) {
	ctx, cancel := context.WithTimeout(n.ctx, limit)
	defer cancel()
	for {
		err := try(check)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			must(context.Cause(n.ctx))
			fail("after %v: %w", limit, err)
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// report prints a line for each check as soon as its result is known.
type report struct {
	start                   time.Time
	passed, failed, skipped int
}

// check makes a check, prints its verdict with the text that it returns, and reports whether the next one can run.
func (r *report) check(name string, f func() string) bool {
	begin, text, verdict := time.Now(), "", "ok  "
	err := try(func() { text = f() })
	var s skip
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
	fmt.Printf("%6.1f s  %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

func (r *report) print() {
	r.note("%d passed, %d failed, %d skipped", r.passed, r.failed, r.skipped)
	if r.failed > 0 {
		fail("%d checks failed", r.failed)
	}
}

func since(t time.Time) string { return fmt.Sprintf("%.1f s", time.Since(t).Seconds()) }
