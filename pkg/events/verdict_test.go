package events

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestBoard: a reader waits for a Snapshot that is newer than its own, and no longer than its context.
func TestBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Board
		if got := b.Load(); got.Version != 0 || len(got.Verdicts) != 0 {
			t.Errorf("an empty board has %+v", got)
		}
		newer := make(chan *Snapshot)
		go func() {
			s, err := b.After(t.Context(), 1)
			if err != nil {
				t.Error(err)
			}
			newer <- s
		}()
		for version := uint64(1); version <= 2; version++ {
			synctest.Wait()
			b.Store(&Snapshot{Version: version, Verdicts: []Verdict{{State: Failed}}})
		}
		if got := <-newer; got.Version != 2 || got.Verdicts[0].State.String() != "failed" {
			t.Errorf("after version 1 comes %+v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.After(ctx, 2); !errors.Is(err, context.Canceled) {
			t.Errorf("without a newer one: %v", err)
		}
	})
}
