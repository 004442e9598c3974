package lists

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit"
)

func TestAForgottenReleaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvA)
		defer b.run(t, Signals{})()
		after := func(wait time.Duration, want ...string) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			var got []string
			for _, name := range slices.Sorted(maps.Keys(b.released)) {
				if b.released[name] {
					got = append(got, name)
				}
			}
			testkit.Equal(t, "released after "+wait.String(), want, got)
		}
		must(t, b.Release(t.Context(), "", 0, "test"))
		after(0, "dcgm", "nvml")
		after(9*time.Minute, "dcgm", "nvml")
		must(t, b.Release(t.Context(), "nvml", time.Hour, "test")) // the duration begins again
		after(50*time.Minute, "nvml")
		after(11 * time.Minute)

		must(t, b.Release(t.Context(), "", -1, "test")) // no time limit
		after(24*time.Hour, "dcgm", "nvml")
		must(t, b.Resume("dcgm", "test"))
		after(0, "nvml")

		must(t, b.Release(t.Context(), "", time.Minute, "test"))
		must(t, b.Resume("", "test"))
		must(t, b.Release(t.Context(), "", -1, "test")) // the limit of one minute is gone
		after(time.Hour, "dcgm", "nvml")
		testkit.Equal(t, "resume of a collector that is not enabled", fs.ErrNotExist, b.Resume("rocm", "test"), cmpopts.EquateErrors())
		testkit.Equal(t, "release of a collector that is not enabled", fs.ErrNotExist, b.Release(t.Context(), "rocm", 0, "test"), cmpopts.EquateErrors())
		for _, want := range []Proposal{{Answer: Failed, Text: "a call hangs"}, {Answer: Waiting, Text: "the release continues: context deadline exceeded"}} {
			if b.refuse = context.DeadlineExceeded; want.Answer == Failed {
				b.refuse = errors.New(want.Text)
			}
			testkit.Equal(t, "release", b.refuse, b.Release(t.Context(), "dcgm", -1, "test"), cmpopts.EquateErrors())
			p := b.Status().Proposals[0]
			testkit.ErrorIf(t, p.What != kindRelease || p.Answer != want.Answer || p.Text != want.Text, "proposal = %+v, want %+v", p, want)
		}
		must(t, b.Resume("dcgm", "test"))
		p := b.Status().Proposals[0]
		testkit.ErrorIf(t, p.What != kindResume || p.Answer != Applied, "proposal = %+v", p)
	})
}

// A release does not wait for a reload, and the signal that ends a release does not wait for that release.
func TestReleaseBySignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(csvA)
		letGo, resume := make(chan os.Signal, 1), make(chan os.Signal, 1)
		b.run(t, Signals{Release: letGo, Resume: resume})
		turn, err := b.Begin(t.Context()) // a hanging reload
		must(t, err)
		letGo <- os.Interrupt
		synctest.Wait()
		testkit.ErrorIf(t, !b.released["dcgm"] || !b.released["nvml"], "released are %v", b.released)
		resume <- os.Interrupt
		synctest.Wait()
		testkit.ErrorIf(t, b.released["dcgm"] || b.released["nvml"], "released are %v", b.released)
		turn.End()
	})
}
