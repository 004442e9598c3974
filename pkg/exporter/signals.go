package exporter

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// errForced reports a second signal while the process was ending.
var errForced = errors.New("ended at once by a second signal")

// signals receives the signals of the process, from subscribe to release.
type signals struct {
	hangup chan os.Signal // SIGHUP
	letGo  chan os.Signal // SIGUSR1
	resume chan os.Signal // SIGUSR2
	end    chan os.Signal // SIGINT, SIGTERM, SIGQUIT
	closed chan os.Signal // SIGPIPE, ignored: lines for a closed standard error are counted
}

// subscribe starts to receive the signals of the process.
func subscribe() *signals {
	s := &signals{
		hangup: make(chan os.Signal, 1), letGo: make(chan os.Signal, 1), resume: make(chan os.Signal, 1),
		end: make(chan os.Signal, 2), closed: make(chan os.Signal, 1),
	}
	signal.Notify(s.hangup, syscall.SIGHUP)
	signal.Notify(s.letGo, syscall.SIGUSR1)
	signal.Notify(s.resume, syscall.SIGUSR2)
	signal.Notify(s.end, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	signal.Notify(s.closed, syscall.SIGPIPE)
	return s
}

// release restores the default effect of the signals, except SIGPIPE.
func (s *signals) release() {
	signal.Stop(s.hangup)
	signal.Stop(s.letGo)
	signal.Stop(s.resume)
	signal.Stop(s.end)
	// Not closed, because the last lines of the log are still to be written.
}

// sameSignal is the time in which a second signal counts as a repeat: stopping a process and its group at once sends two.
const sameSignal = 500 * time.Millisecond

// guard runs f and cancels its context at the first signal. At the second it stops waiting for f.
func (s *signals) guard(ctx context.Context, log *zap.Logger, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	var ending time.Time // since when; zero: not
	for {
		select {
		case err := <-done:
			return err
		case got := <-s.end:
			switch {
			case ending.IsZero():
				ending = time.Now()
			case time.Since(ending) < sameSignal:
				continue
			default:
				return errForced
			}
			log.Info("stopping; a second signal ends at once", zap.Stringer("signal", got))
			cancel()
		}
	}
}
