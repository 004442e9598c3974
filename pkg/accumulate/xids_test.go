package accumulate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
)

const (
	xidCount = "DCGM_EXP_XID_ERRORS_COUNT"
	xidTotal = "DCGM_EXP_XID_ERRORS_TOTAL"
	fiveMin  = "300000"
)

func TestXIDs(t *testing.T) {
	b := newBoard(64, "GPU-a", "GPU-b")
	v := viewOf(b)
	s, sync := newStore()
	check := func(seconds float64, device string, none float64, codes map[string][2]float64) {
		t.Helper()
		sync(v, at(seconds))
		what := fmt.Sprintf("%s at %vs: ", device, seconds)
		testkit.Equal(t, what+"count without xid", none, value(s, device, xidCount, "window_size_in_ms", fiveMin), cmpopts.EquateNaNs())
		for code, want := range codes {
			testkit.Equal(t, what+"count of xid "+code, want[0], value(s, device, xidCount, "window_size_in_ms", fiveMin, "xid", code), cmpopts.EquateNaNs())
			testkit.Equal(t, what+"total of xid "+code, want[1], value(s, device, xidTotal, "xid", code), cmpopts.EquateNaNs())
		}
	}
	nothing := map[string][2]float64{"79": {nan, 0}, "48": {nan, 0}, "999": {nan, nan}}

	b.row(at(0))
	check(0, "GPU-a", 0, nothing)
	before := s.Version()
	*b.cell(0, cellXID) = 48
	*b.cell(0, cellXID2) = 48
	b.row(at(1))
	*b.cell(0, cellXID) = 999
	b.row(at(2))
	check(2, "GPU-a", nan, map[string][2]float64{"48": {2, 2}, "999": {1, 1}, "79": {nan, 0}})
	check(2, "GPU-b", 0, nothing)
	testkit.Equal(t, "new codes changed the version of the set of series", true, s.Version() != before)
	before = s.Version()
	*b.cell(0, cellXID) = 48
	b.row(at(200))
	check(200, "GPU-a", nan, map[string][2]float64{"48": {3, 3}, "999": {1, 1}})
	check(310, "GPU-a", nan, map[string][2]float64{"48": {1, 3}, "999": {nan, 1}})
	check(510, "GPU-a", 0, map[string][2]float64{"48": {nan, 3}, "999": {nan, 1}})
	testkit.Equal(t, "version although no code was new", before, s.Version())
}

func TestXIDCodesAreBounded(t *testing.T) {
	x := newXIDs(time.Minute)
	for code := 1.0; code <= 500; code++ {
		x.count(code, 0, 0)
	}
	for _, odd := range []float64{-3, 1.5, inf, -inf, 1e300} {
		x.count(odd, 0, 0)
	}
	x.count(0, 0, 0)
	x.count(nan, 0, 0)
	testkit.Equal(t, "codes", maxXIDs, len(x.codes))
	var sum float64
	for _, c := range x.codes {
		sum += c.total
	}
	testkit.Equal(t, "sum of the totals, all 505 events", 505.0, sum)
	testkit.Equal(t, "first code", "other", x.codes[0].label())
	testkit.Equal(t, "the known XIDs leave room for others", true, len(knownXIDs) < maxXIDs/2)
	testkit.Equal(t, "the codes are in order", true, slices.IsSortedFunc(x.codes, func(a, b *xidCode) int { return int(a.code - b.code) }))
}

// TestGaps: a gap that rows reports counts for the collector of the source with the gap.
func TestGaps(t *testing.T) {
	s, sync := newStore()
	micros := func(seconds float64) float64 { return float64(at(seconds).UnixMicro()) }
	for i, name := range []string{"first", "first", "second"} { // one after the other, 10 s apart, the second one without a gap
		b := newBoard(64, "GPU-a")
		b.Collector = name
		b.Columns = append(b.Columns, collector.Column{Field: field.XIDsSince}, collector.Column{Field: field.XIDsUntil})
		b.Ring = ring.Make(64, 1, len(b.Columns))
		b.Row = append(b.Row, micros(float64(10*i-5)), micros(float64(10*i-5)))
		if i == 1 {
			b.Row[cellsPerDevice] = 0
		}
		*b.cell(0, cellXID) = 48
		b.row(at(float64(10 * i)))
		sync(viewOf(b), at(float64(10*i)))
	}
	for name, want := range map[string]float64{"first": 0, "second": 1} {
		testkit.Equal(t, "gaps of "+name, want, testutil.ToFloat64(s.gaps.WithLabelValues(name, "GPU-a", "")))
	}
	testkit.Equal(t, "XID 48", 3.0, value(s, "GPU-a", xidTotal, "xid", "48"))
}
