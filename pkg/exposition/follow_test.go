package exposition

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view/viewtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRunLosesNothing: without scrapes, Run reads every row of the fastest tick and lays out a new View.
func TestRunLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		power := &field.Descriptor{ID: 155, Name: "POWER", Level: field.GPU, Unit: "W", Max: 1000}
		fields := []field.Field{{Desc: power, Name: "H", Type: field.Histogram, Scale: 1, Buckets: []float64{100}}}
		f := one("0", fields, power)
		f.Ring, f.Interval = ring.Make(1024, 1, 1), 10*time.Millisecond // a session's ring size for that tick
		board := viewtest.Board(1, f)
		reader := rows.New(board, nil)
		store := accumulate.New(accumulate.Options{Rows: reader})
		self := &testSelf{}
		r := New(board, Options{Store: store, Self: self})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		const rows = 5000
		for range rows {
			time.Sleep(10 * time.Millisecond)
			f.Tick(time.Now())
		}
		time.Sleep(syncEvery)
		cancel()
		must(t, <-done)
		testkit.Equal(t, "rows that were overwritten before they were read", uint64(0), reader.Overruns())
		testkit.Equal(t, "ms that were counted", uint64(10*rows), store.Series()[0].Histogram.Count)
		testkit.Equal(t, "questions for own metrics without a scrape", uint64(0), self.asked)
		testkit.ErrorIf(t, r.layout == nil || r.layout.stats.series != 1, "nothing was laid out")
	})
}
