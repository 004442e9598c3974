package ring

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

// scribble stores the bytes over the whole block, again and again.
func scribble(mem []atomic.Uint64, data []byte) {
	for i := range mem {
		if len(data) < 8 {
			return
		}
		mem[i].Store(binary.LittleEndian.Uint64(data))
		data = data[8:]
	}
}

// FuzzHostileBlock reads blocks that another process has filled with anything. Readers must return, not
// panic, allocate by their given dimensions and not by the block's, and count forwards.
func FuzzHostileBlock(f *testing.F) {
	r := Make(4, 2, 3)
	for n := range uint64(9) {
		appendRow(r, n)
	}
	var good []byte
	for i := range r.mem {
		good = binary.LittleEndian.AppendUint64(good, r.mem[i].Load())
	}
	f.Add(good, good)
	for _, head := range []uint64{0, 1, 3, math.MaxUint64, math.MaxUint64 / 2, 1 << 63} {
		bad := append([]byte(nil), good...)
		binary.LittleEndian.PutUint64(bad[8*wordHead:], head)
		f.Add(good, bad)
		f.Add(bad, good)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		mem := make([]atomic.Uint64, Words(4, 2, 3))
		r := New(mem, 4, 2, 3)
		follower := r.Follow()
		var row Row
		for _, data := range [][]byte{first, second, first, second} {
			scribble(mem, data)
			before := follower.Overruns()
			for range 20 {
				r.Latest(&row)
				follower.Next(&row)
			}
			testkit.ErrorIf(t, follower.Overruns() < before, "overruns went from %d to %d", before, follower.Overruns())
			testkit.ErrorIf(t, r.Rows() != 4 || len(row.Stamps) > 2 || len(row.Cells) > 3, "a row of %d stamps and %d cells", len(row.Stamps), len(row.Cells))
			if a, err := Attach(mem, 4, 2, 3); err == nil && (a.Rows() != 4 || a.Stamps() != 2 || a.Cells() != 3) {
				t.Errorf("attached to %d rows of %d and %d", a.Rows(), a.Stamps(), a.Cells())
			}
		}
	})
}

// TestReadersReturnWhileTheHeadRuns: a faulty writer moves the head on without writing a row. Each call of a
// reader must still return.
func TestReadersReturnWhileTheHeadRuns(t *testing.T) {
	mem := make([]atomic.Uint64, Words(8, 1, 1))
	r := New(mem, 8, 1, 1)
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for random := rand.New(rand.NewPCG(1, 2)); ; {
			select {
			case <-done:
				return
			default:
				mem[wordHead].Add(random.Uint64N(1000))
			}
		}
	})
	follower := r.Follow()
	var row Row
	calls := 0
	// At least that long, and until the writer has run.
	for begin := time.Now(); time.Since(begin) < 50*time.Millisecond || follower.Overruns() == 0 && time.Since(begin) < time.Minute; calls++ {
		testkit.FatalIf(t, follower.Next(&row) || r.Latest(&row), "a row that was never written")
	}
	close(done)
	writer.Wait()
	testkit.ErrorIf(t, calls == 0 || follower.Overruns() == 0, "%d calls counted %d overruns", calls, follower.Overruns())
}

// TestNextTriesAsOftenAsThereAreRows: Next is bounded even if the head moves during every try.
func TestNextTriesAsOftenAsThereAreRows(t *testing.T) {
	r := Make(8, 1, 1)
	for n := range uint64(8) {
		appendRow(r, n)
	}
	for i := range r.mask + 1 {
		r.slot(i)[slotSeq].Store(1) // no slot holds a requested row
	}
	follower := r.Follow()
	var row Row
	testkit.ErrorIf(t, follower.Next(&row) || follower.Overruns() != 8, "counted %d overruns in one call, want 8", follower.Overruns())
	appendRow(r, 8)
	testkit.ErrorIf(t, !follower.Next(&row) || row.N != 8, "read row %d after that, want 8", row.N)
}

// TestJunk lets a faulty writer overwrite the block while it is read. Every call must return within bounds,
// and the overruns must not come from a head that was never written.
func TestJunk(t *testing.T) {
	const rows, stamps, cells = 8, 2, 5
	mem := make([]atomic.Uint64, Words(rows, stamps, cells))
	r := New(mem, rows, stamps, cells)
	f := r.Follow()
	random := rand.New(rand.NewPCG(1, 2))
	var row Row
	for range 100_000 {
		word := random.IntN(len(mem))
		if random.IntN(3) == 0 {
			word = wordHead
		}
		switch v := random.Uint64(); random.IntN(3) {
		case 0:
			mem[word].Store(v)
		case 1:
			mem[word].Store(v % 32)
		case 2:
			mem[word].Add(v % 3)
		}
		r.Latest(&row)
		f.Next(&row)
		r.Follow().Next(&row)
	}
	const farthest = 32 + rows // keep the small heads apart
	testkit.ErrorIf(t, f.Overruns() > 100_000*farthest, "%d overruns", f.Overruns())
}
