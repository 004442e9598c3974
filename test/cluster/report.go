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

// wait repeats a check until it succeeds or the time is over, and then fails with the check's last error.
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

// check makes a check and prints the text that it returns. The first check that fails ends the run.
func check(name string, f func() string) {
	begin, text := time.Now(), ""
	if err := try(func() { text = f() }); err != nil {
		fail("%s: %w", name, err)
	}
	fmt.Printf("ok   %s (%s)\n", name, since(begin))
	for line := range strings.Lines(text) {
		fmt.Printf("       %s\n", strings.TrimRight(line, "\n"))
	}
}

func since(t time.Time) string { return fmt.Sprintf("%.1f s", time.Since(t).Seconds()) }
