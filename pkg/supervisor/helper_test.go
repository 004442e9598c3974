package supervisor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/session/sessiontest"
	"warpgauge/pkg/view"
)

var must = testkit.Must

func TestMain(m *testing.M) {
	beChild()
	goleak.VerifyTestMain(m)
}

// list returns a list with the given number of fields that the catalogue does not have.
func list(n int) (l field.List) {
	for i := range n {
		d := &field.Descriptor{ID: field.ID(60000 + i), Name: fmt.Sprintf("F%d", i), Min: math.Inf(-1), Max: math.Inf(1)}
		l.Fields = append(l.Fields, field.Field{Desc: d, Name: d.Name, Scale: 1})
	}
	return l
}

// bubble is a Supervisor with sessions in this process, under the clock of a bubble.
type bubble struct {
	*Supervisor
	view.Merger
	t      *testing.T
	logs   *observer.ObservedLogs
	cancel context.CancelFunc
	ended  chan error // of Run, once
}

func start(t *testing.T, l *sessiontest.Library, o Options) *bubble {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	o.Name, o.Logger = "scripted", zap.New(core)
	if l != nil {
		o.Open = l.Open
	}
	ctx, cancel := context.WithCancel(t.Context())
	b := &bubble{t: t, logs: logs, cancel: cancel, ended: make(chan error, 1)}
	o.Page = b.Part()
	b.Supervisor = New(Wanted{List: list(1)}, o)
	go func() { b.ended <- b.Run(ctx) }()
	t.Cleanup(cancel)
	synctest.Wait()
	return b
}

// pass waits for d of the bubble's time.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want changes the wanted state and returns the time that took and the error.
func (b *bubble) want(change func(*Wanted)) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	err := b.Want(ctx, change)
	return time.Since(begin), err
}

// change is want of a change that succeeds.
func (b *bubble) change(change func(*Wanted)) {
	b.t.Helper()
	_, err := b.want(change)
	testkit.ErrorIf(b.t, err != nil, "%v", err)
}

// stop ends Run and returns how long that took and its error.
func (b *bubble) stop() (time.Duration, error) {
	begin := time.Now()
	b.cancel()
	err := <-b.ended
	synctest.Wait()
	return time.Since(begin), err
}

// watch checks every millisecond that each of the devices has a row on the board,
// younger than the limit, until the function it returns is called.
func (b *bubble) watch(limit time.Duration, ids ...string) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		var row ring.Row
		for ctx.Err() == nil {
			found := map[string]bool{}
			for _, s := range b.Board().Load().Sources {
				if !s.Latest(&row) {
					continue
				}
				for i, d := range s.Devices {
					age := time.Duration(time.Now().UnixNano() - row.Stamps[i])
					found[d.ID] = row.Stamps[i] != 0 && age <= limit && !slices.ContainsFunc(row.Cells, math.IsNaN)
				}
			}
			for _, id := range ids {
				if !found[id] {
					b.t.Errorf("after %v %s has no row with values younger than %v", time.Since(bubbleStart), id, limit)
					return
				}
			}
			time.Sleep(time.Millisecond)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// bubbleStart is when the clock of a bubble starts.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (b *bubble) state(id string) session.DeviceStatus {
	b.t.Helper()
	for _, d := range b.Status().Devices {
		if d.Device.ID == id {
			return d
		}
	}
	b.t.Errorf("no status of %q", id)
	return session.DeviceStatus{}
}

// count returns how many log lines have this text.
func (b *bubble) count(text string) int { return b.logs.FilterMessageSnippet(text).Len() }

// shownColumns returns the number of columns of each source on the board.
func shownColumns(b *view.Board) (out []int) {
	for _, s := range b.Load().Sources {
		out = append(out, len(s.Columns))
	}
	return out
}

func setList(l field.List) func(*Wanted) { return func(w *Wanted) { w.List = l } }
func release(w *Wanted)                  { w.Released = true }
func resume(w *Wanted)                   { w.Released = false }
func standby(w *Wanted)                  { w.Standby = true }
func wakeUp(w *Wanted)                   { w.Standby = false }

var errRefused = errors.New("engine refused")
