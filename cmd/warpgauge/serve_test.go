package main

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/exporter"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// TestServeLeavesNothing runs the program in this process until its context ends: it ends well, and no goroutine is left.
// End-to-end tests look at what it serves.
func TestServeLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log programtest.Output
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"warpgauge", "-a", "127.0.0.1:0", "--isolation=none"}, simulated()...), exporter.Streams{Out: &log, Err: &log}, nil)
	}()
	eventually.True(t, "the address in the log", func() bool { return strings.Contains(log.String(), "serving http://127.0.0.1:") || len(code) > 0 })
	stop()
	got := <-code
	testkit.Equal(t, "exit code, with the log\n"+log.String(), 0, got)
	http.DefaultClient.CloseIdleConnections()
	goleak.VerifyNone(t, before)
}
