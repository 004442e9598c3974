package exposition

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRunLosesNothing: without scrapes, every row of the fastest tick is
// read, and a new View is laid out.
func TestRunLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		power := &field.Descriptor{ID: 155, Name: "POWER", Level: field.GPU, Unit: "W", Max: 1000}
		fields := []field.Field{{Desc: power, Name: "H", Type: field.Histogram, Scale: 1, Buckets: []float64{100}}}
		f := one("0", fields, power)
		f.Ring, f.Interval = ring.Make(1024, 1, 1), 10*time.Millisecond // as a session makes it for that tick
		store := accumulate.New(accumulate.Options{})
		r := New(boardOf(f), Options{Store: store})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		const rows = 5000
		for range rows {
			time.Sleep(10 * time.Millisecond)
			f.tick(time.Now())
		}
		time.Sleep(syncEvery)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		if n := store.Overruns(); n != 0 {
			t.Errorf("%d rows were overwritten before they were read", n)
		}
		if got := store.Series()[0].Histogram.Count; got != 10*rows {
			t.Errorf("%d ms were counted, want %d", got, 10*rows)
		}
		if r.layout == nil || r.layout.stats.series != 1 {
			t.Error("nothing was laid out")
		}
	})
}

// TestRowsBeforeCounts: what is accumulated has seen the rows of the page.
func TestRowsBeforeCounts(t *testing.T) {
	f := gpus(1, 1)
	f.tick(time.Now())
	s := &racingStore{feed: f}
	r := New(boardOf(f), Options{})
	r.store = s
	pageOf(t, r, Text)
	if !s.synced.Load() || r.snap.cells[0] == 77 {
		t.Error("rows were taken after the counts")
	}
	if got := parse(t, pageOf(t, r, Text), Text).Values; got[wantLabels(f.Fields.Fields[0].Name, "gpu", "0", "UUID", f.Devices[0].UUID,
		"pci_bus_id", f.Devices[0].PCIBusID, "device", "nvidia0", "modelName", f.Devices[0].Model, "DCGM_FI_DRIVER_VERSION", "570.1")] != 77 {
		t.Errorf("the row that came meanwhile is not on the next page: %v", got)
	}
}

// racingStore appends a row in the middle of a render.
type racingStore struct {
	testStore
	feed   *feed
	synced atomic.Bool
}

func (s *racingStore) Sync(v *view.View, _ time.Time) *view.View {
	if !s.synced.Swap(true) {
		s.feed.row[0] = 77
		s.feed.tick(time.Now())
	}
	return v
}
