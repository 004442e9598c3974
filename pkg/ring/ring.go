// Package ring is a single-writer, many-reader, overwriting ring of rows on one flat block of 64-bit words that the caller
// supplies, so that the block can be memory shared with another process. It holds no pointers into the block's owner and
// takes no locks. Region is such memory.
//
// One goroutine (or one process) calls Append. Any number may read at the same time; a reader never delays the writer and
// never sees a torn row: it gets a whole row or learns that there is none.
package ring

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync/atomic"
)

// Layout of the block, in 64-bit words. Numbers are in the machine's byte order.
//
//	0  magic and layout version
//	1  rows, a power of two
//	2  stamps per row
//	3  cells per row
//	4  head: rows appended since the ring was made
//	5… padding: the head is the only header word that changes, and the slots
//	   start on a cache line of their own
//	8  slot 0, slot 1, … of stride words each:
//	   +0 sequence, +1 time (Unix ns), then the stamps (Unix ns), then the cells
//	   (float64 bits)
const (
	magic       = 0x7761_7267_0000_0001 // "warg", layout 1
	headerWords = 8
	wordMagic   = 0
	wordRows    = 1
	wordStamps  = 2
	wordCells   = 3
	wordHead    = 4

	slotSeq   = 0
	slotTime  = 1
	slotFixed = 2

	lineWords = 8 // 64-byte cache line
)

// Ring is one end of a block. Readers and the writer may share a Ring or attach one each. The dimensions are kept
// outside the block, so that nothing the other process writes there can cause an access out of bounds.
type Ring struct {
	mem    []atomic.Uint64
	mask   uint64
	stamps int
	cells  int
	stride int
	owner  any // of mem; see Keep
}

// Words returns the size of the block that a ring needs, in 64-bit words. rows is rounded up to a power of two, at least 2.
func Words(rows, stamps, cells int) int {
	return headerWords + int(pow2(rows))*stride(stamps, cells)
}

// New makes an empty ring on mem, which must have at least Words words and must
// not be in use yet. It panics on negative dimensions or a short block.
func New(mem []atomic.Uint64, rows, stamps, cells int) *Ring {
	if stamps < 0 || cells < 0 || len(mem) < Words(rows, stamps, cells) {
		panic(fmt.Sprintf("ring: block of %d words for %d rows of %d stamps and %d cells", len(mem), rows, stamps, cells))
	}
	r := &Ring{mem: mem, mask: pow2(rows) - 1, stamps: stamps, cells: cells, stride: stride(stamps, cells)}
	mem[wordRows].Store(r.mask + 1)
	mem[wordStamps].Store(uint64(stamps))
	mem[wordCells].Store(uint64(cells))
	mem[wordHead].Store(0)
	for i := range r.mask + 1 {
		r.slot(i)[slotSeq].Store(0)
	}
	mem[wordMagic].Store(magic)
	return r
}

// Make is New on Go's heap.
func Make(rows, stamps, cells int) *Ring {
	return New(make([]atomic.Uint64, Words(rows, stamps, cells)), rows, stamps, cells)
}

// Attach opens a block that New has prepared, in this process or another. The block's header and size must
// match the expected dimensions.
func Attach(mem []atomic.Uint64, rows, stamps, cells int) (*Ring, error) {
	if stamps < 0 || cells < 0 || len(mem) < Words(rows, stamps, cells) {
		return nil, fmt.Errorf("attach ring: block of %d words is too short for %d rows of %d stamps and %d cells", len(mem), rows, stamps, cells)
	}
	if got := mem[wordMagic].Load(); got != magic {
		return nil, fmt.Errorf("attach ring: magic is %#x, want %#x", got, uint64(magic))
	}
	r := &Ring{mem: mem, mask: pow2(rows) - 1, stamps: stamps, cells: cells, stride: stride(stamps, cells)}
	if mem[wordRows].Load() != r.mask+1 || mem[wordStamps].Load() != uint64(stamps) || mem[wordCells].Load() != uint64(cells) {
		return nil, fmt.Errorf("attach ring: header says %d rows of %d stamps and %d cells, want %d, %d, %d",
			mem[wordRows].Load(), mem[wordStamps].Load(), mem[wordCells].Load(), r.mask+1, stamps, cells)
	}
	return r, nil
}

// Keep makes r hold owner for as long as r is reachable. It is for blocks outside Go's heap, which mem does not keep
// alive: owner frees the block when it is collected (runtime.AddCleanup). Followers hold their ring. Keep must be
// called before r is shared.
//
// Each method that touches mem ends with a runtime.KeepAlive of the ring, because a ring is otherwise dead as soon as
// its last field has been read.
func (r *Ring) Keep(owner any) { r.owner = owner }

// Rows returns how many rows the ring holds.
func (r *Ring) Rows() int { return int(r.mask + 1) }

// Stamps returns how many stamps a row has.
func (r *Ring) Stamps() int { return r.stamps }

// Cells returns how many cells a row has.
func (r *Ring) Cells() int { return r.cells }

// Head returns how many rows have been appended. Comparing it is the cheapest way to find out about new rows.
func (r *Ring) Head() uint64 {
	head := r.mem[wordHead].Load()
	runtime.KeepAlive(r)
	return head
}

// Append writes a row. t and stamps are Unix nanoseconds. Shape: len(stamps) = Stamps(), len(cells) =
// Cells(). Only one goroutine may call it. It never blocks and never allocates.
//
// Writer and reader of row n, in program order; all are atomic, so sequentially consistent (Go memory model):
//
//	writer: seq = 2n+1 | payload…      | seq = 2n+2 | head = n+1
//	reader: seq == 2n+2 ? | payload… | seq == 2n+2 ?
//
// A reader that finds another sequence before or after has met the writer one lap later and discards the row. A writer that
// dies between the two stores leaves an odd sequence and the old head: the row before stays the latest.
func (r *Ring) Append(t int64, stamps []int64, cells []float64) {
	if len(stamps) != r.stamps || len(cells) != r.cells {
		panic(fmt.Sprintf("ring: append %d stamps and %d cells to a ring of %d and %d", len(stamps), len(cells), r.stamps, r.cells))
	}
	n := r.mem[wordHead].Load()
	s := r.slot(n)
	s[slotSeq].Store(2*n + 1)
	s[slotTime].Store(uint64(t))
	for i, v := range stamps {
		s[slotFixed+i].Store(uint64(v))
	}
	payload := s[slotFixed+len(stamps):][:len(cells)]
	for i, v := range cells {
		payload[i].Store(math.Float64bits(v))
	}
	s[slotSeq].Store(2*n + 2)
	r.mem[wordHead].Store(n + 1)
	runtime.KeepAlive(r)
}

func (r *Ring) slot(n uint64) []atomic.Uint64 {
	return r.mem[headerWords+int(n&r.mask)*r.stride:][:r.stride]
}

func stride(stamps, cells int) int {
	words := slotFixed + stamps + cells
	return (words + lineWords - 1) / lineWords * lineWords
}

func pow2(rows int) uint64 { return 1 << bits.Len(uint(max(rows, 2)-1)) }
