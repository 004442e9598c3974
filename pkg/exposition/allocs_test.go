package exposition

import (
	"testing"
	"time"

	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view/viewtest"
)

func wantAllocs(t *testing.T, what string, most float64, f func()) {
	t.Helper()
	if testkit.Race {
		t.Skip("the race detector allocates")
	}
	testkit.AtMost(t, what+": allocations", most, testing.AllocsPerRun(100, f))
}

// TestRenderAllocatesOnlyThePage renders after each tick in the steady state: with every kind of series,
// owners, values per user, a Store and metrics.
func TestRenderAllocatesOnlyThePage(t *testing.T) {
	f := gpus(4, 20)
	f.Fields.Fields = append(f.Fields.Fields,
		metric(descXID, "DCGM_FI_DEV_XID_ERRORS", field.Gauge, ""),
		field.Field{Desc: descPower, Name: "H", Type: field.Histogram, Scale: 1, Buckets: []float64{100, 200}})
	f.Columns[0].Field, f.Columns[1].Field = descXID.ID, descPower.ID
	owners := &testOwners{
		by:     map[string][]view.Owner{f.Devices[0].ID: {ownerOf("pod", "a"), ownerOf("pod", "b")}},
		split:  []field.ID{f.Columns[2].Field},
		shares: &view.Shares{Set: 1, Series: []view.Share{share(f.Devices[0].ID, f.Columns[2].Field, "a"), share(f.Devices[0].ID, f.Columns[2].Field, "b")}},
	}
	next := [2]*view.Shares{}
	for i := range next {
		next[i] = &view.Shares{Set: 1, Series: owners.shares.Series, Values: []float64{float64(i), 99.5}}
	}
	owners.shares = next[0]
	board := viewtest.Board(1, f)
	r := New(board, Options{
		Hostname:   "node",
		Owners:     owners,
		Self:       &testSelf{text: []byte("self 1\n")},
		Store:      accumulate.New(accumulate.Options{Rows: rows.New(board, nil)}),
		Registerer: prometheus.NewRegistry(),
	})
	n := 0
	for _, format := range []Format{Text, OpenMetrics, Protobuf} {
		fresh := func() {
			n++
			vary(f, n)
			f.Tick(time.Now())
			owners.shares = next[n%2]
			r.Page(format, false)
		}
		for range 200 { // let the size grow to the longest values
			fresh()
		}
		most := 2.0
		if format == Protobuf { // histograms are built as messages: 4 here, with a dozen objects or more each
			most = 100
		}
		wantAllocs(t, "render "+format.String(), most, fresh)
		wantAllocs(t, "cached "+format.String(), 0, func() { r.Page(format, false) })
	}
	wantAllocs(t, "sync", 0, func() {
		f.Tick(time.Now())
		r.Sync(time.Now())
	})
}
