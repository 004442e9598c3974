package field

import (
	"slices"
	"sync"
)

// ByID returns the descriptor with that id: a reading, or an entry that is a
// multiple of one (Descriptor.Of).
func ByID(id ID) (*Descriptor, bool) {
	d, ok := index().byID[id]
	return d, ok
}

// ByName returns the reading with that name and what it has to be multiplied
// with to be in the unit that the name stands for: 1 for names and aliases of
// the reading itself, a factor for names of base units, such as 1e6 for
// DCGM_FI_DEV_SM_CLOCK_HERTZ, whose reading is in MHz. Names are case-sensitive.
func ByName(name string) (d *Descriptor, scale float64, ok bool) {
	t, ok := index().byName[name]
	return t.reading, t.scale, ok
}

// All returns every descriptor that a CSV can name, by ascending id. The slice
// is the caller's.
func All() []*Descriptor { return slices.Clone(index().all) }

// target is what a name stands for.
type target struct {
	reading *Descriptor
	scale   float64
}

type tables struct {
	all    []*Descriptor
	byID   map[ID]*Descriptor
	byName map[string]target
	names  []string // for suggestions: the entries' own, then aliases
}

// index is built once, at first use, and read-only from then on.
var index = sync.OnceValue(func() *tables {
	t := &tables{byID: make(map[ID]*Descriptor), byName: make(map[string]target)}
	for i := range dcgmFields {
		t.add(&dcgmFields[i])
	}
	for i := range exporterFields {
		t.add(&exporterFields[i])
	}
	for i := range nvidiaFields {
		t.add(&nvidiaFields[i])
	}
	for i := range amdFields {
		t.add(&amdFields[i])
	}
	t.byID[xidEvent.ID] = &xidEvent
	for _, d := range t.all {
		t.name(d)
		t.names = append(t.names, d.Name)
	}
	for _, d := range t.all {
		t.names = append(t.names, d.Aliases...)
	}
	return t
})

func (t *tables) add(d *Descriptor) {
	t.all = append(t.all, d)
	t.byID[d.ID] = d
}

func (t *tables) name(d *Descriptor) {
	to := target{reading: d, scale: 1}
	if d.Factor != 0 {
		to = target{reading: t.byID[d.Of], scale: d.Factor}
	}
	t.byName[d.Name] = to
	for _, alias := range d.Aliases {
		t.byName[alias] = to
	}
}
