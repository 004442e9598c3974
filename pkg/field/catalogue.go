package field

import (
	"slices"
	"strings"
	"sync"
)

// ByID returns the descriptor with that id: a reading, or an entry that is a multiple of one (Descriptor.Of).
func ByID(id ID) (*Descriptor, bool) {
	d, ok := index().byID[id]
	return d, ok
}

// ByName returns the reading with that name, and the factor that converts it to the unit of the name: 1 for names
// and aliases of the reading itself, a factor for names of base units, such as 1e6 for
// DCGM_FI_DEV_SM_CLOCK_HERTZ, whose reading is in MHz. Names are case-sensitive.
func ByName(name string) (d *Descriptor, scale float64, ok bool) {
	t, ok := index().byName[name]
	return t.reading, t.scale, ok
}

// All returns every descriptor that a CSV can name, by ascending id. The slice is the caller's.
func All() []*Descriptor { return slices.Clone(index().all) }

// target is the reading of a name, in the name's unit.
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
	add := func(part []Descriptor) {
		for i := range part {
			t.all = append(t.all, &part[i])
			t.byID[part[i].ID] = &part[i]
		}
	}
	dcgm, err := readDCGM(dcgmCSV)
	if err != nil {
		panic("dcgm.csv: " + err.Error()) // the file is part of the program
	}
	add(dcgm)
	add(exporterFields[:])
	for _, v := range vendors {
		for _, part := range v.Fields {
			add(part)
			for i := range part {
				part[i].Vendor = v
				for n := range part[i].Meanings {
					part[i].Meanings[n].Rank += ownRank + n
				}
			}
		}
	}
	slices.SortFunc(t.all, func(a, b *Descriptor) int { return int(a.ID) - int(b.ID) })
	for _, d := range []*Descriptor{&xidEvent, &xidsSince, &xidsUntil} {
		t.byID[d.ID] = d
	}
	for _, d := range t.all {
		to := target{reading: d, scale: 1}
		if d.Factor != 0 {
			to = target{reading: t.byID[d.Of], scale: d.Factor}
		}
		for _, name := range append([]string{d.Name}, d.Aliases...) {
			t.byName[name] = to
		}
		t.names = append(t.names, d.Name)
	}
	for _, d := range t.all {
		t.names = append(t.names, d.Aliases...)
	}
	return t
})

// Suggest returns the known name that is nearest to name, or false if none is near. The catalogue's own names
// win over equally near aliases.
func Suggest(name string) (string, bool) {
	if name == "" || len(name) > 200 {
		return "", false
	}
	for _, prefix := range []string{"", "DCGM_", "DCGM_FI_", "DCGM_FI_DEV_", "DCGM_FI_PROF_"} {
		if full := prefix + strings.ToUpper(name); full != name && known(full) {
			return full, true
		}
	}
	if small := strings.ToLower(name); small != name && known(small) {
		return small, true
	}
	return Nearest(name, index().names)
}

func known(name string) bool { return index().byName[name].reading != nil }

// Nearest returns the candidate with the smallest edit distance to word, ignoring case; of several, the
// first. It returns "" if more than a fifth of the letters (at least two, but at most half) would have to change.
func Nearest(word string, candidates []string) (string, bool) {
	word = strings.ToUpper(word)
	best, limit := "", min(max(2, len(word)/5), len(word)/2)
	for _, c := range candidates {
		if longer := len(c) - len(word); max(longer, -longer) > limit {
			continue
		}
		if d := distance(word, strings.ToUpper(c)); d <= limit {
			if d == 0 {
				return c, true
			}
			best, limit = c, d-1
		}
	}
	return best, best != ""
}

// distance returns how many bytes must be inserted, deleted, replaced or swapped with their neighbour to turn a into b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			row[j+1] = last[j]
			if a[i] != b[j] {
				row[j+1] = 1 + min(last[j], last[j+1], row[j])
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
