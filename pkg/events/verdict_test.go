package events

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"warpgauge/internal/testkit"
)

// TestBoard: a reader waits for a Snapshot that is newer than its own, and no longer than its context.
func TestBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Board
		got := b.Load()
		testkit.ErrorIf(t, got.Version != 0 || len(got.Verdicts) != 0, "an empty board has %+v", got)
		newer := make(chan *Snapshot)
		go func() {
			s, err := b.After(t.Context(), 1)
			testkit.ErrorIf(t, err != nil, "%v", err)
			newer <- s
		}()
		for version := uint64(1); version <= 2; version++ {
			synctest.Wait()
			b.Store(&Snapshot{Version: version, Verdicts: []Verdict{{State: Failed}}})
		}
		got = <-newer
		testkit.ErrorIf(t, got.Version != 2 || got.Verdicts[0].State.String() != "failed", "after version 1 comes %+v", got)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.After(ctx, 2)
		testkit.ErrorIf(t, !errors.Is(err, context.Canceled), "without a newer one: %v", err)
	})
}
