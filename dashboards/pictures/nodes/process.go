package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"warpgauge/internal/testkit/loopback"
)

// processes holds the running programs. If one ends early, the pictures would be incomplete, so all stop.
type processes struct {
	dir    string
	failed context.CancelCauseFunc
	wg     sync.WaitGroup
}

// start runs a program until ctx is done.
func (p *processes) start(ctx context.Context, name, exe string, environment []string, args ...string) error {
	var log bytes.Buffer
	c := exec.CommandContext(ctx, exe, args...) //nolint:gosec // the user chooses the program
	c.Env = append(os.Environ(), environment...)
	c.Dir, c.Stdout, c.Stderr = p.dir, &log, &log
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	if err := c.Start(); err != nil {
		return err
	}
	p.wg.Go(func() {
		if err := c.Wait(); ctx.Err() == nil {
			p.failed(fmt.Errorf("%s has ended: %w\n%s", name, err, &log))
		}
	})
	return nil
}

// address returns a loopback address that stays reserved until ctx is done.
func address(ctx context.Context) (string, error) {
	port, err := loopback.Reserve()
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { _ = port.Close() })
	return port.Address(), nil
}
