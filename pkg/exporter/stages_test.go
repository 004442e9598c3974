package exporter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
)

// journal records events in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// Stage ends slow after it is stopped.
func (j *journal) stage(name string, slow time.Duration) Stage {
	return Stage{Name: name, Grace: time.Second, Run: func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(slow)
		j.add("end " + name)
		return nil
	}}
}

func TestStagesStopInReverseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		start := time.Now()
		// The first one to stop is the slowest: the others must wait for it.
		err := RunStages(ctx, zap.NewNop(), j.stage("sampler", 0), j.stage("renderer", 100*time.Millisecond), j.stage("server", 500*time.Millisecond))
		testkit.ErrorIf(t, err != nil, "runStages = %v, want nil after the end of its context", err)
		testkit.Equal(t, "stages ended as", []string{"end server", "end renderer", "end sampler"}, j.lines)
		testkit.Equal(t, "runStages took", time.Minute+600*time.Millisecond, time.Since(start))
	})
}

func TestStagesAbandonWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		release := make(chan struct{})
		hung := Stage{Name: "watch", Grace: ShortGrace, Run: func(context.Context) error { <-release; return nil }}
		core, logs := observer.New(zap.InfoLevel)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		// The server uses half of its second; the stage that hangs must not get the sampler's time.
		err := RunStages(ctx, zap.New(core), j.stage("sampler", 900*time.Millisecond), hung, j.stage("server", 500*time.Millisecond))
		testkit.ErrorIf(t, err != nil, "runStages = %v, want nil: a hung library call is no failure", err)
		testkit.Equal(t, "the end took", stopWithin-100*time.Millisecond, time.Since(start))
		if logs.Len() != 1 || logs.All()[0].Message != "abandoning watch, which does not end" || logs.All()[0].ContextMap()["waited"] != 3500*time.Millisecond {
			t.Errorf("log = %v, want one line that names the hung stage and how long it was waited for", logs.All())
		}
		close(release)
	})
}

// A stage that ends by itself stops the others, and its error is returned; errors at the stop are logged.
func TestStagesThatEnd(t *testing.T) {
	broken := errors.New("port taken")
	for _, c := range []struct {
		name string
		run  func(context.Context) error
		stop bool
		want string // the error
		log  int    // lines
	}{
		{"fails", func(context.Context) error { return broken }, false, "port taken", 0},
		{"ends early", func(context.Context) error { return nil }, false, "server ended without being asked to", 0},
		{"fails at the stop", func(ctx context.Context) error { <-ctx.Done(); return broken }, true, "<nil>", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			core, logs := observer.New(zap.InfoLevel)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.stop {
				cancel()
			}
			err := RunStages(ctx, zap.New(core), j.stage("sampler", 0), Stage{Name: "server", Grace: time.Second, Run: c.run})
			if fmt.Sprint(err) != c.want || !slices.Equal(j.lines, []string{"end sampler"}) {
				t.Errorf("%s: %v, want %s; stages ended as %q, want the sampler to be stopped", c.name, err, c.want, j.lines)
			}
			if logs.Len() != c.log || c.log > 0 && logs.All()[0].ContextMap()["error"] != "port taken" {
				t.Errorf("%s: log = %v, want %d lines with the error", c.name, logs.All(), c.log)
			}
		})
	}
}
