package ring

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"warpgauge/internal/testkit"
)

// fill makes the row n of a ring recognisable in every word.
func fill(n uint64, stamps []int64, cells []float64) {
	for i := range stamps {
		stamps[i] = int64(n)*1000 + int64(i)
	}
	for i := range cells {
		cells[i] = float64(n) + float64(i)/1024
	}
}

// check reports the first word of row that does not belong to row n.
func check(t *testing.T, row *Row, n uint64) bool {
	t.Helper()
	if row.N != n || row.Time != int64(n) {
		t.Errorf("row %d says it is %d of time %d", n, row.N, row.Time)
		return false
	}
	for i, v := range row.Stamps {
		if v != int64(n)*1000+int64(i) {
			t.Errorf("row %d: stamp %d is %d", n, i, v)
			return false
		}
	}
	for i, v := range row.Cells {
		if v != float64(n)+float64(i)/1024 {
			t.Errorf("row %d: cell %d is %v", n, i, v)
			return false
		}
	}
	return true
}

func appendRow(r *Ring, n uint64) {
	stamps, cells := make([]int64, r.Stamps()), make([]float64, r.Cells())
	fill(n, stamps, cells)
	r.Append(int64(n), stamps, cells)
}

func TestKeepsEveryFloat(t *testing.T) {
	r := Make(2, 0, 6)
	want := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64}
	r.Append(-1, nil, want)
	var row Row
	testkit.FatalIf(t, !r.Latest(&row) || row.Time != -1, "latest: %+v", row)
	for i, v := range want {
		testkit.Equal(t, fmt.Sprintf("bits of cell %d, %v", i, v), math.Float64bits(v), math.Float64bits(row.Cells[i]))
	}
}

func TestFollowerReadsEachRowOnce(t *testing.T) {
	r := Make(8, 1, 3)
	f := r.Follow()
	var row Row
	next := uint64(0)
	drain := func(want int) {
		t.Helper()
		got := 0
		for f.Next(&row) {
			check(t, &row, next)
			next++
			got++
		}
		testkit.Equal(t, "rows that the follower read", want, got)
	}
	drain(0)
	written := uint64(0)
	write := func(k int) {
		for range k {
			appendRow(r, written)
			written++
		}
	}
	write(3)
	drain(3)
	write(8) // exactly full
	drain(8)
	write(11) // three are overwritten
	next += 3
	drain(8)
	testkit.Equal(t, "overruns", uint64(3), f.Overruns())
	write(1)
	drain(1)
}

// TestTornRow plays a writer that stops at each point of Append, as a killed process does.
func TestTornRow(t *testing.T) {
	r := Make(4, 1, 2)
	for n := range uint64(5) {
		appendRow(r, n)
	}
	s := r.slot(5)
	s[slotSeq].Store(2*5 + 1) // begun …
	s[slotFixed].Store(12345) // … and half written
	var row Row
	testkit.FatalIf(t, !r.Latest(&row) || !check(t, &row, 4), "with row 5 torn: got %+v, want row 4", row)
	f := r.Follow() // row 1 shared the slot of row 5
	for want := uint64(2); want < 5; want++ {
		testkit.FatalIf(t, !f.Next(&row), "no row %d", want)
		check(t, &row, want)
	}
	testkit.ErrorIf(t, f.Overruns() != 1 || f.Next(&row), "%d overruns, want the 1 row that the torn one destroyed", f.Overruns())
	s[slotSeq].Store(2*5 + 2) // whole, but the head is not moved yet
	testkit.ErrorIf(t, !r.Latest(&row) || row.N != 4, "before the head moved: row %d, want 4", row.N)
}

func TestAttach(t *testing.T) {
	mem := make([]atomic.Uint64, Words(8, 2, 3))
	f := func(mem []atomic.Uint64, rows, stamps, cells int, want string) {
		t.Helper()
		_, err := Attach(mem, rows, stamps, cells)
		testkit.ErrorIf(t, want == "" && err != nil, "attach: %v", err)
		testkit.ErrorIf(t, want != "" && (err == nil || !strings.Contains(err.Error(), want)), "attach %d×%d×%d: got %v, want an error with %q", rows, stamps, cells, err, want)
	}
	f(mem, 8, 2, 3, "magic")
	w := New(mem, 8, 2, 3)
	f(mem, 8, 2, 3, "")
	f(mem, 4, 2, 3, "header")
	f(mem, 8, 1, 4, "header")
	f(mem[:10], 8, 2, 3, "too short")
	f(mem, 8, -1, 3, "too short")
	r := testkit.Get(Attach(mem, 8, 2, 3))(t)
	appendRow(w, 0)
	var row Row
	testkit.FatalIf(t, !r.Latest(&row), "the attached end sees no row")
	check(t, &row, 0)
}

func TestNoAllocation(t *testing.T) {
	r := Make(16, 8, 100)
	stamps, cells := make([]int64, 8), make([]float64, 100)
	var row Row
	f := r.Follow()
	r.Append(0, stamps, cells)
	r.Latest(&row)
	if got := testing.AllocsPerRun(100, func() {
		r.Append(1, stamps, cells)
		r.Latest(&row)
		f.Next(&row)
	}); got != 0 {
		t.Errorf("append, latest and next allocate %v times, want 0", got)
	}
}
