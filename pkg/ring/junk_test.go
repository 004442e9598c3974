package ring

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// TestJunk lets a writer gone mad overwrite the block while it is read: every
// call must return, within bounds, and the overruns that are counted must not
// be those of a head that was never written.
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
	const farthest = 32 + rows // that the small heads are apart
	if f.Overruns() > 100_000*farthest {
		t.Errorf("%d overruns", f.Overruns())
	}
}

// TestHeadThatRuns moves the head faster than a reader can follow.
func TestHeadThatRuns(t *testing.T) {
	r := Make(4, 1, 1)
	f := r.Follow()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
				r.mem[wordHead].Add(1)
			}
		}
	}()
	var row Row
	for range 10_000 {
		f.Next(&row) // must return
		r.Latest(&row)
	}
	close(done)
	<-ended
}
