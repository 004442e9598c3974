package lists

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/field"
)

const temperature, active = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_SM_ACTIVE"

func TestAForgottenPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvProf)
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
		if !b.Status().Paused || b.metric(t, "warpgauge_profiling_paused", "") != 1 {
			t.Error("the status does not show the pause")
		}
		must(t, b.PauseProfiling(t.Context(), time.Hour, "test")) // begins again
		after(59*time.Minute, temperature)
		after(2*time.Minute, temperature, active)
		if b.Status().Paused || b.metric(t, "warpgauge_profiling_paused", "") != 0 {
			t.Error("the status still shows the pause")
		}

		must(t, b.PauseProfiling(t.Context(), -1, "test")) // for ever
		after(100*time.Hour, temperature)
		must(t, b.ResumeProfiling(t.Context(), "test"))
		after(0, temperature, active)

		must(t, b.PauseProfiling(t.Context(), time.Minute, "test"))
		must(t, b.ResumeProfiling(t.Context(), "test"))
		must(t, b.PauseProfiling(t.Context(), -1, "test")) // the minute is no more
		after(time.Hour, temperature)
		refused := errors.New("no")
		b.reloads(func(context.Context, field.List) error { return refused })
		b.file = csvProf + "# changed\n"
		if err := b.Reload(t.Context(), "test"); !errors.Is(err, refused) {
			t.Errorf("reload: %v", err)
		}
		after(0, temperature)
		b.reloads(func(context.Context, field.List) error { return nil })
		must(t, b.ResumeProfiling(t.Context(), "test"))

		must(t, b.PauseProfiling(t.Context(), time.Minute, "test"))
		ctx, stop := context.WithCancel(t.Context())
		stop()
		must(t, b.Run(ctx, Signals{})) // the end of the exporter ends timers
		after(time.Hour, temperature)
	})
}

// TestARenewedPauseIsNotEndedByTheFormer: the timer of the first pause fires while a reload holds the Turn and a second
// pause waits for it.
func TestARenewedPauseIsNotEndedByTheFormer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvProf)
		must(t, b.PauseProfiling(t.Context(), time.Minute, "test"))
		time.Sleep(50 * time.Second)
		b.reloads(func(context.Context, field.List) error { time.Sleep(20 * time.Second); return nil })
		b.file = csvProf + "# changed\n"
		var others sync.WaitGroup
		others.Go(func() { _ = b.Reload(t.Context(), "test") })
		time.Sleep(5 * time.Second)
		others.Go(func() { _ = b.PauseProfiling(t.Context(), 10*time.Minute, "test") })
		time.Sleep(6 * time.Second)
		b.reloads(func(context.Context, field.List) error { return nil })
		others.Wait()
		time.Sleep(time.Second)
		if b.wantRead(t, temperature); !b.Status().Paused {
			t.Error("the first pause has ended the second")
		}
		time.Sleep(10 * time.Minute)
		if b.wantRead(t, temperature, active); b.Status().Paused {
			t.Error("the second pause has not ended")
		}
	})
}

// TestAPauseIsRenewedWhileItsEndWaits: the end of the first pause waits for the Turn when a second pause replaces it.
func TestAPauseIsRenewedWhileItsEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvProf)
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
		if n := b.logs.FilterMessageSnippet("ends by itself").Len(); n != 0 {
			t.Error("the first pause has ended although it was renewed")
		}
		b.wantApplied(t, 1, 1)
		time.Sleep(10 * time.Minute)
		b.wantRead(t, temperature, active)
	})
}
