package sampler

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

func TestTickDropsImplausibleValuesAndCountsThem(t *testing.T) {
	util, _, ok := field.ByName("DCGM_FI_DEV_GPU_UTIL")
	if !ok {
		t.Fatal("DCGM_FI_DEV_GPU_UTIL is not in the catalogue")
	}
	src := &stub{devices: devices(1), columns: []collector.Column{{Field: util.ID}}}
	value, n := 0.0, uint64(0)
	src.sample = func(row []float64, due []bool) error { row[0] = value; return nil }
	w, m := testWorker(src, list(util))
	f := func(v float64, dropped bool, count float64) {
		t.Helper()
		value = v
		w.tick(n, time.Now())
		n++
		if math.IsNaN(w.row[0]) != dropped {
			t.Errorf("value %v: cell is %v, want dropped %v", v, w.row[0], dropped)
		}
		if got := testutil.ToFloat64(m.implausible.WithLabelValues("stub", util.Name)); got != count {
			t.Errorf("after %v: %v dropped, want %v", v, got, count)
		}
	}
	f(0, false, 0)
	f(100, false, 0)
	f(808_000_000, true, 1)
	f(-1, true, 2)
	f(math.Inf(1), true, 3)
	f(math.NaN(), true, 3) // a blank is no implausible value
}
