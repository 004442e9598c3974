package lists

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

const temperature, active = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_SM_ACTIVE"

// wantRead checks which fields are read.
func (b *bench) wantRead(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	testkit.Equal(t, "what is read at "+time.Now().UTC().Format(time.TimeOnly), want, b.applied[len(b.applied)-1])
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
		testkit.Equal(t, "the status shows the pause", true, b.Status().Paused)
		must(t, b.PauseProfiling(t.Context(), time.Hour, "test")) // the duration begins again
		after(59*time.Minute, temperature)
		after(2*time.Minute, temperature, active)
		testkit.Equal(t, "the status still shows the pause", false, b.Status().Paused)

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
		testkit.Equal(t, "reload", refused, b.Reload(t.Context(), "test"), cmpopts.EquateErrors())
		after(0, temperature)
		b.reloads(accept)
		must(t, b.PauseProfiling(t.Context(), time.Minute, "test"))
		b.reloads(func(ctx context.Context, _ field.List) error { <-ctx.Done(); return ctx.Err() })
		after(time.Minute+changeTimeout+endsEvery, temperature, active)
		testkit.Equal(t, "errors of a collector that hangs at the end of the pause", 1, b.logs.FilterMessage("cannot resume profiling on all collectors").Len())
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
		testkit.Equal(t, "ends of the first pause although it was renewed", 0, b.logs.FilterMessageSnippet("ending a pause").Len())
		b.wantApplied(t, 1, 1)
		time.Sleep(10 * time.Minute)
		b.wantRead(t, temperature, active)
	})
}
