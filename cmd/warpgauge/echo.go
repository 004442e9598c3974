package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
)

// echo passes on what a library logs, without ever letting it wait: a slow reader of
// our standard error loses lines, and is sent their number.
type echo struct {
	to      io.Writer
	lines   chan string
	dropped atomic.Uint64
}

// echoLines is how many lines may wait; DCGM writes thousands a second at DEBUG.
const echoLines = 4096

func newEcho(to io.Writer) *echo { return &echo{to: to, lines: make(chan string, echoLines)} }

// line takes a line or drops it.
func (e *echo) line(s string) {
	select {
	case e.lines <- s:
	default:
		e.dropped.Add(1)
	}
}

// run writes until ctx ends. A write that never returns is the caller's to abandon.
func (e *echo) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-e.lines:
			if crowded(e.to) {
				e.dropped.Add(1)
				continue
			}
			if n := e.dropped.Swap(0); n > 0 {
				fmt.Fprintf(e.to, "%d lines of DCGM's log are left out: standard error is read too slowly\n", n) //nolint:errcheck // there is nowhere to tell
			}
			fmt.Fprintln(e.to, s) //nolint:errcheck // as above
		}
	}
}
