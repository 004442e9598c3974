package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestEchoNeverWaits writes far more than fits, to a reader that reads nothing, and
// then wants the lines that were kept and the number of those that were not.
func TestEchoNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		e := newEcho(w)
		ctx, cancel := context.WithCancel(t.Context())
		go e.run(ctx)
		e.line("first")
		synctest.Wait() // it is being written, and nothing reads
		for i := range echoLines + 7 {
			e.line(fmt.Sprint(i))
		}
		buffer := make([]byte, 6)
		if _, err := io.ReadFull(r, buffer); err != nil || string(buffer) != "first\n" {
			t.Fatalf("read %q: %v", buffer, err)
		}
		buffer = make([]byte, 200)
		n, _ := r.Read(buffer)
		if got := string(buffer[:n]); !strings.HasPrefix(got, "7 lines") {
			t.Errorf("read %q, want how many lines are left out", got)
		}
		n, _ = r.Read(buffer)
		if got := string(buffer[:n]); got != "0\n" {
			t.Errorf("read %q, want the oldest line that was kept", got)
		}
		cancel()
		_ = r.Close()
	})
}

// TestEchoLeavesRoom fills a pipe of the system that nothing reads: our own log must
// still get through.
func TestEchoLeavesRoom(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	e := newEcho(w)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); e.run(ctx) }()
	for e.dropped.Load() == 0 {
		e.line(strings.Repeat("x", 1000))
	}
	if err := w.SetWriteDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("our own log\n"); err != nil {
		t.Errorf("write next to the library's log: %v", err)
	}
	cancel()
	<-done
}
