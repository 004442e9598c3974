//go:build linux && cgo

package dcgm

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Limits of the host engine (dcgm_structs.h, DcgmFieldGroup.cpp).
const (
	maxFieldsPerGroup  = 127 // also of a call; the engine accepts one less than DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP
	maxProfilingFields = 64  // per field group; more give a general error (dcgmProfWatchFields_t)
	maxMembers         = 1024
)

// Maximum number of values per call. Each value needs 4 KiB of scratch. A reply of more than 64 KiB over TCP waits for the
// other side's delayed acknowledgement (no TCP_NODELAY): 848 values took 44 ms in one call, and 3 ms in four.
const (
	valuesPerCall       = 1024
	valuesPerRemoteCall = 400
)

// slowest lists the engine's minimum polling intervals of fields. They override shorter intervals of a watch
// (AddEntityFieldWatch in DcgmCacheManager.cpp, DCGM 4.6).
var slowest = map[field.ID]time.Duration{
	83: 30 * time.Second, // DCGM_FI_DEV_INFOROM_CONFIG_CHECK
	84: 30 * time.Second, // DCGM_FI_DEV_INFOROM_CONFIG_VALID
}

// block is a unit of polling: fields with the same interval, for entities of one kind.
type block struct {
	kind     entityKind
	every    time.Duration
	keep     time.Duration // how long the engine keeps values; 0 if only the newest is read
	group    handleID      // the engine's group of the entities
	watched  handleID      // the engine's group of the fields
	devices  []int         // by entity: device index in the node
	entities []entity
	fields   []uint16

	cells     []cell   // entity by entity
	column    int      // of the first cell; the others follow. -1: no columns, read on each tick
	seen      []seen   // history of the cells
	own       [][]bool // by entity and field: whether the value shows that the engine polls the entity
	looked    int64    // time of the last read, Unix µs; 0 before the first
	states    []state  // by entity, as of the last read
	maxValues []int    // by entity: maximum number of fields that had a value in one read
	ready     bool     // the engine has polled it
	count     int32    // number of values in the last history; a struct field, so that the call does not allocate
}

// batch is the blocks of the same entities with the same interval, at most maxFieldsPerGroup fields. Their newest values
// are read together, because each call costs the library as much as some thousand values (it clears a message of 4 MiB).
type batch struct {
	blocks []*block
	fields []uint16 // of all blocks
	cells  []cell   // entity by entity
	step   int      // entities per call
}

func newBlock(n *node, kind entityKind, every time.Duration, devices []int, fields []uint16) *block {
	b := &block{kind: kind, every: every, devices: devices, fields: fields}
	for _, d := range devices {
		b.entities = append(b.entities, n.entities[d])
	}
	return b
}

// blocksOf groups the readings of a list for a node into blocks.
func blocksOf(n *node, readings []field.Reading, o Options) []*block {
	type key struct {
		kind  entityKind
		every time.Duration
	}
	byKey := map[key][]uint16{}
	for _, r := range readings {
		if !askable(r.Desc) || r.Desc.ID == field.XIDErrors { // XIDs are events
			continue
		}
		for k := kindGPU; k <= kindConnectX; k++ {
			if askedOf(r.Desc, k) {
				at := key{k, max(o.every(r), slowest[r.Desc.ID])}
				byKey[at] = append(byKey[at], uint16(r.Desc.ID))
			}
		}
	}
	var out []*block
	for k, fields := range byKey {
		for devices := range slices.Chunk(n.byKind(k.kind), maxMembers) {
			for _, f := range fieldGroups(fields) {
				out = append(out, newBlock(n, k.kind, k.every, devices, f))
			}
		}
	}
	slices.SortFunc(out, func(a, b *block) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.every, b.every), cmp.Compare(a.fields[0], b.fields[0]), cmp.Compare(a.devices[0], b.devices[0]))
	})
	return out
}

// fieldGroups splits fields into field groups.
func fieldGroups(fields []uint16) [][]uint16 {
	var plain, profiling []uint16
	for _, f := range fields {
		if field.ID(f).Profiling() {
			profiling = append(profiling, f)
		} else {
			plain = append(plain, f)
		}
	}
	return slices.AppendSeq(slices.Collect(slices.Chunk(plain, maxFieldsPerGroup)), slices.Chunk(profiling, maxProfilingFields))
}

// refusals maps skipped fields to the engine's reasons.
type refusals map[uint16]status

// offered removes the profiling fields that no GPU of a node offers. If it cannot read a GPU's list of profiling fields,
// although the GPU may have profiling, it keeps all, and the engine decides field by field.
func offered(e *engine, n *node, list []field.Reading, refused refusals) []field.Reading {
	gpus := n.byKind(kindGPU)
	if len(gpus) == 0 || !slices.ContainsFunc(list, func(r field.Reading) bool { return r.Desc.ID.Profiling() }) {
		return list
	}
	has := map[field.ID]bool{}
	for _, g := range gpus {
		ids, err := e.profilingFields(n.entities[g].id)
		if err != nil && (!unsupported(err) || !e.has("dcgmProfGetSupportedMetricGroups")) {
			return list
		}
		for _, id := range ids {
			has[id] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(r field.Reading) bool {
		if !r.Desc.ID.Profiling() || has[r.Desc.ID] {
			return false
		}
		refused[uint16(r.Desc.ID)] = statusNoProfiling
		return true
	})
}

// watch makes the engine poll the block in the background. It moves fields that the engine does not know or support to
// refused. If no field remains, the block is empty, which is not an error. Any other refusal is an error, for example a
// duplicate name or no room for another group.
func (b *block) watch(e *engine, refused refusals) (err error) {
	if b.group, err = e.createGroup(b.entities); err != nil {
		return err
	}
	if err = b.accept(e, b.fields); !unsupported(err) {
		return err
	}
	if b.fields, err = b.sift(e, b.fields, refused); err != nil {
		return err
	}
	if len(b.fields) == 0 {
		e.destroyGroup(b.group)
		return nil
	}
	return b.accept(e, b.fields)
}

// accept watches fields. After an error it leaves nothing behind.
func (b *block) accept(e *engine, fields []uint16) (err error) {
	if b.watched, err = e.createFields(fields); err != nil {
		return err
	}
	if err = e.watch(b.group, b.watched, b.every, max(b.keep, 2*b.every, time.Second)); err != nil {
		e.destroyFields(b.watched)
	}
	return err
}

// sift returns the fields that the engine accepts, by bisection.
func (b *block) sift(e *engine, fields []uint16, refused refusals) (out []uint16, err error) {
	err = b.accept(e, fields)
	switch {
	case err == nil:
		e.unwatch(b.group, b.watched)
		e.destroyFields(b.watched)
		return fields, nil
	case !unsupported(err):
		return nil, err
	case len(fields) == 1:
		refused[fields[0]], _ = errors.AsType[status](err)
		return nil, nil
	}
	for half := range slices.Chunk(fields, (len(fields)+1)/2) {
		part, err := b.sift(e, half, refused)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}

// newBatch divides the reading of blocks into calls of at most room values, and allocates their cells.
func newBatch(room int, blocks ...*block) *batch {
	x := &batch{blocks: blocks}
	ne := len(blocks[0].entities)
	for _, b := range blocks {
		n := ne * len(b.fields)
		b.cells, b.seen, b.states, b.maxValues = make([]cell, n), make([]seen, n), make([]state, ne), make([]int, ne)
		x.fields = append(x.fields, b.fields...)
	}
	x.cells, x.step = make([]cell, ne*len(x.fields)), min(room/len(x.fields), ne)
	return x
}

// read reads the newest values into the blocks' cells, and records its calls in cost. It allocates nothing unless it fails.
func (x *batch) read(e *engine, s scratch, cost *collector.Meter) error {
	all, nf := x.blocks[0].entities, len(x.fields)
	defer cost.Record((len(all)+x.step-1)/x.step, cost.Begin())
	for i := 0; i < len(all); i += x.step {
		end := min(i+x.step, len(all))
		if err := e.latest(all[i:end], x.fields, false, s, x.cells[i*nf:end*nf]); err != nil {
			return err
		}
	}
	from := 0
	for _, b := range x.blocks {
		n := len(b.fields)
		for i := range all {
			for j, next := range x.cells[i*nf+from:][:n] {
				if at := i*n + j; !b.keeps(at, &next) {
					b.cells[at] = next
				}
			}
		}
		from += n
	}
	return nil
}

// keeps reports whether a cell's value stays although the engine has read a blank: the first one, or further ones for a while.
// Where it reads slowly, for example because a GPU's calls hang, a profiling field of another GPU may lack the two samples
// that its value needs.
func (b *block) keeps(at int, next *cell) bool {
	last, blank := &b.cells[at], &b.seen[at].blank
	if next.sentinel != sentinelBlank || last.micros == 0 || last.sentinel != noSentinel || !field.ID(b.fields[0]).Profiling() {
		*blank = 0
		return false
	}
	*blank = cmp.Or(*blank, next.micros)
	return next.micros == *blank || next.micros-last.micros <= patience(b.every).Microseconds()
}

// due reports whether the block has due cells.
func (b *block) due(due []bool) bool {
	return b.column < 0 || slices.Contains(due[b.column:b.column+len(b.cells)], true)
}
