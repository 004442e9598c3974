package view

import (
	"fmt"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/ring"
)

func TestAfter(t *testing.T) {
	var b Board
	views := make([]*View, 50)
	for i := range views {
		views[i] = &View{Version: uint64(i)}
		b.Store(views[i])
	}
	f := func(v, last *View, first uint64, n int) {
		t.Helper()
		got := v.After(last)
		if len(got) != n || got[0].Version != first || got[n-1] != v {
			t.Errorf("%d views from %d to %d, want %d from %d to %d", len(got), got[0].Version, got[len(got)-1].Version, n, first, v.Version)
		}
	}
	f(views[49], views[45], 46, 4)
	f(views[49], views[45], 49, 1) // the others are forgotten
	var other Board
	for i := range views {
		views[i] = &View{Version: uint64(i)}
		other.Store(views[i])
	}
	f(views[49], nil, 50-maxFormer, maxFormer)
	f(&View{}, views[3], 0, 1)
}

func TestAfterForSeveralReaders(t *testing.T) {
	var b Board
	b.AddReader()
	b.AddReader()
	views := []*View{{}, {}, {}}
	for _, v := range views {
		b.Store(v)
	}
	for reader := range 2 {
		testkit.Equal(t, fmt.Sprintf("reader %d: views after the first", reader), 2, len(views[2].After(views[0])))
	}
	testkit.ErrorIf(t, views[2].former.Load() != nil, "the former views are kept after all have read them")
}

func TestWellFormed(t *testing.T) {
	for want, columns := range map[bool]int{true: 0, false: 1} { // of a device that the source does not have
		s := &Source{Devices: make([]collector.Device, 1), Columns: []collector.Column{{Device: columns}}, Ring: ring.Make(2, 1, 1)}
		testkit.Equal(t, fmt.Sprintf("a column of device %d", columns), want, s.WellFormed())
		for _, r := range []*ring.Ring{nil, ring.Make(2, 2, 1), ring.Make(2, 1, 2)} {
			if s.Ring = r; s.WellFormed() {
				t.Errorf("%v fits", r)
			}
		}
	}
}
