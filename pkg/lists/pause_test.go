package lists

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/field"
)

const temperature, active = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_SM_ACTIVE"

// wantRead checks which fields are read.
func (b *bench) wantRead(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := b.applied[len(b.applied)-1]; !slices.Equal(got, want) {
		t.Errorf("after %v: %q are read, want %q", time.Now().UTC().Format(time.TimeOnly), got, want)
	}
}

func TestAForgottenPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvProf)
		defer b.run(t, Signals{})()
		after := func(wait time.Duration, want ...string) {
			t.Helper()
			time.Sleep(wait)
			b.wantRead(t, want...)
		}
		must(t, b.PauseProfiling(t.Context(), 0, "test"))
		after(9*time.Minute, temperature)
		after(2*time.Minute, temperature, active)
		must(t, b.PauseProfiling(t.Context(), 0, "test"))
		after(9*time.Minute, temperature)
		if !b.Status().Paused {
			t.Error("the status does not show the pause")
		}
		must(t, b.PauseProfiling(t.Context(), time.Hour, "test")) // the duration begins again
		after(59*time.Minute, temperature)
		after(2*time.Minute, temperature, active)
		if b.Status().Paused {
			t.Error("the status still shows the pause")
		}

		must(t, b.PauseProfiling(t.Context(), -1, "test")) // no time limit
		after(100*time.Hour, temperature)
		must(t, b.ResumeProfiling(t.Context(), "test"))
		after(0, temperature, active)

		must(t, b.PauseProfiling(t.Context(), time.Minute, "test"))
		must(t, b.ResumeProfiling(t.Context(), "test"))
		must(t, b.PauseProfiling(t.Context(), -1, "test")) // the limit of one minute is gone
		after(time.Hour, temperature)
		refused := errors.New("no")
		b.reloads(func(context.Context, field.List) error { return refused })
		b.file = csvProf + "# changed\n"
		if err := b.Reload(t.Context(), "test"); !errors.Is(err, refused) {
			t.Errorf("reload: %v", err)
		}
		after(0, temperature)
		b.reloads(accept)
		must(t, b.PauseProfiling(t.Context(), time.Minute, "test"))
		b.reloads(func(ctx context.Context, _ field.List) error { <-ctx.Done(); return ctx.Err() })
		after(time.Minute+changeTimeout+endsEvery, temperature, active)
		if n := b.logs.FilterMessage("cannot resume profiling on all collectors").Len(); n != 1 {
			t.Errorf("a collector that hangs at the end of the pause: %d errors are logged, want 1", n)
		}
	})
}

// TestAPauseIsRenewedWhileItsEndWaits: the end of the first pause waits for the Turn when a second pause replaces it.
func TestAPauseIsRenewedWhileItsEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvProf)
		defer b.run(t, Signals{})()
		must(t, b.PauseProfiling(t.Context(), time.Minute, "test"))
		time.Sleep(50 * time.Second)
		turn, err := b.Begin(t.Context()) // a reload
		must(t, err)
		time.Sleep(15 * time.Second)
		var second sync.WaitGroup
		second.Go(func() { _ = b.PauseProfiling(t.Context(), 10*time.Minute, "test") })
		synctest.Wait()
		turn.End()
		second.Wait()
		b.wantRead(t, temperature)
		if n := b.logs.FilterMessageSnippet("ending a pause").Len(); n != 0 {
			t.Error("the first pause has ended although it was renewed")
		}
		b.wantApplied(t, 1, 1)
		time.Sleep(10 * time.Minute)
		b.wantRead(t, temperature, active)
	})
}
