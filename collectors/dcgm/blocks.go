//go:build linux && cgo

package dcgm

import (
	"cmp"
	"slices"
	"time"

	"warpgauge/pkg/field"
)

// Limits of the host engine (dcgm_structs.h, DcgmFieldGroup.cpp).
const (
	maxFieldsPerGroup = 127 // one less than DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP is what is taken
	maxMembers        = 1024
)

// How many values one call may ask for. Each costs 4 KiB of scratch. Over TCP a
// reply of more than some 64 KiB waits for the other side's delayed
// acknowledgement (the library does not set TCP_NODELAY): 848 values took 44 ms
// where four calls of 212 take 3 ms.
const (
	valuesPerCall    = 1024
	valuesPerFarCall = 200
)

// block is what is read together: fields of one interval of entities of one
// kind.
type block struct {
	kind     entityKind
	every    time.Duration
	keep     time.Duration // how long the engine keeps values; 0: only the newest is read
	places   []int         // of the devices, in the node
	entities []entity      // of places
	fields   []uint16

	group handleID
	on    *watch // nil while it is not watched

	cells   []cell  // entity by entity
	columns []int32 // by cell: the column of the part, -1 none
	newest  []int64 // by entity: the newest time stamp of the last read, Unix µs
	spoke   []int   // by entity: how many fields have had a value in one read, at most
	ofNode  []bool  // by field: it is the node's, and says nothing of an entity
	chunks  []chunk
}

// chunk is one call: some entities, some fields of a block. Chunks that do not
// span all fields have one entity, so that their cells lie together.
type chunk struct{ e0, e1, f0, f1 int }

// blocksOf sorts what a list asks of a node into blocks.
func blocksOf(n *node, readings []field.Reading, o Options) []*block {
	type key struct {
		kind  entityKind
		every time.Duration
	}
	byKey := map[key][]uint16{}
	for _, r := range readings {
		if !askable(r.Desc) {
			continue
		}
		for k := kindGPU; k <= kindConnectX; k++ {
			if askedOf(r.Desc, k) {
				at := key{k, o.every(r)}
				byKey[at] = append(byKey[at], uint16(r.Desc.ID))
			}
		}
	}
	var out []*block
	for k, fields := range byKey {
		places := n.byKind(k.kind)
		for _, some := range slicesOf(places, maxMembers) {
			for _, f := range fieldGroups(fields) {
				b := &block{kind: k.kind, every: k.every, places: some, fields: f}
				for _, p := range some {
					b.entities = append(b.entities, n.entities[p])
				}
				out = append(out, b)
			}
		}
	}
	slices.SortFunc(out, func(a, b *block) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.every, b.every), cmp.Compare(a.fields[0], b.fields[0]), cmp.Compare(a.places[0], b.places[0]))
	})
	return out
}

func slicesOf[T any](s []T, n int) [][]T {
	return slices.Collect(slices.Chunk(s, n))
}

// watch makes the engine read the block in the background. Fields that it
// refuses are dropped and returned with the reason; the others are watched all
// the same. A refusal of all is no error: the block is then empty.
func (b *block) watch(e *engine, name string) (refused map[uint16]error, err error) {
	b.group, err = e.createGroup(name, b.entities)
	if err != nil {
		return nil, err
	}
	refused = map[uint16]error{}
	if err = b.accept(e, name, b.fields); err == nil {
		return refused, nil
	}
	if severed(err) {
		b.unwatch(e)
		return nil, err
	}
	// Something in it is refused. Find out what, and watch the rest in one group.
	kept := b.sift(e, name, b.fields, refused)
	b.fields = kept
	if len(kept) == 0 {
		b.unwatch(e)
		return refused, nil
	}
	if err = b.accept(e, name, kept); err != nil {
		b.unwatch(e)
		return refused, err
	}
	return refused, nil
}

// accept watches fields in one group, or leaves nothing behind.
func (b *block) accept(e *engine, name string, fields []uint16) error {
	id, err := e.createFields(name, fields)
	if err != nil {
		return err
	}
	w := &watch{
		kind: b.kind, entities: b.entities, fields: fields,
		group: b.group, fieldGroup: id, every: b.every, keep: max(b.keep, 2*b.every, time.Second),
	}
	if err := e.watches.add(e, w); err != nil {
		_ = e.destroyFields(id)
		return err
	}
	b.on = w
	return nil
}

// sift returns the fields that the engine takes, halving until it knows.
func (b *block) sift(e *engine, name string, fields []uint16, refused map[uint16]error) []uint16 {
	err := b.accept(e, name, fields)
	if err == nil {
		b.release(e)
		return fields
	}
	if len(fields) == 1 {
		refused[fields[0]] = err
		return nil
	}
	half := len(fields) / 2
	return append(slices.Clone(b.sift(e, name, fields[:half], refused)), b.sift(e, name, fields[half:], refused)...)
}

// release takes the watch back and keeps the group.
func (b *block) release(e *engine) {
	if b.on == nil {
		return
	}
	e.watches.remove(e, b.on)
	_ = e.destroyFields(b.on.fieldGroup)
	b.on = nil
}

// unwatch takes back everything that watch made. Errors mean that the engine has
// forgotten it already.
func (b *block) unwatch(e *engine) {
	b.release(e)
	if b.group != 0 {
		_ = e.destroyGroup(b.group)
		b.group = 0
	}
}

// cut divides the block into calls of at most room values.
func (b *block) cut(room int) {
	b.cells = make([]cell, len(b.entities)*len(b.fields))
	b.newest = make([]int64, len(b.entities))
	b.spoke = make([]int, len(b.entities))
	b.ofNode = make([]bool, len(b.fields))
	for i, id := range b.fields {
		if d, ok := field.ByID(field.ID(id)); ok {
			b.ofNode[i] = d.Level == field.Global
		}
	}
	b.chunks = nil
	nf := len(b.fields)
	if nf <= room {
		step := max(1, room/max(nf, 1))
		for e := 0; e < len(b.entities); e += step {
			b.chunks = append(b.chunks, chunk{e, min(e+step, len(b.entities)), 0, nf})
		}
		return
	}
	for e := range b.entities {
		for f := 0; f < nf; f += room {
			b.chunks = append(b.chunks, chunk{e, e + 1, f, min(f+room, nf)})
		}
	}
}

// read fills the cells. It allocates nothing unless it fails.
func (b *block) read(e *engine, s *scratch) error {
	nf := len(b.fields)
	for _, c := range b.chunks {
		from, to := c.e0*nf+c.f0, (c.e1-1)*nf+c.f1
		if err := e.latest(b.entities[c.e0:c.e1], b.fields[c.f0:c.f1], s, b.cells[from:to]); err != nil {
			return err
		}
	}
	return nil
}
