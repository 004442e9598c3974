package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// entry is one descriptor to write.
type entry struct {
	id      int
	name    string
	renamed string // name of DCGM 4.7, in the same unit
	aliases []string
	fact
	of     int // with factor: the entry is a multiple of that field's reading
	factor float64
	scaled []baseUnit // multiples of this entry
}

// combine joins names, facts and base units; each must be complete.
func combine(byID map[int]*names, facts map[int]fact, units []baseUnit) ([]entry, error) {
	taken := map[string]bool{} // names that mean a multiple, not the reading itself
	of := map[int][]baseUnit{}
	unitIDs := map[int]bool{}
	for _, u := range units {
		if _, ok := facts[u.of]; !ok {
			return nil, fmt.Errorf("base unit %q is of field %d, which has no facts", u.name, u.of)
		}
		taken[u.name] = true
		unitIDs[u.id] = true
		of[u.of] = append(of[u.of], u)
	}
	var out []entry
	for id, n := range byID {
		f, ok := facts[id]
		switch {
		case !ok && unitIDs[id]:
			continue
		case !ok:
			return nil, fmt.Errorf("field %d (%v) has no facts", id, n.current)
		case len(n.current) == 0:
			return nil, fmt.Errorf("field %d has no current name", id)
		}
		e := entry{id: id, fact: f, scaled: of[id]}
		e.name, e.renamed, e.aliases = n.classic(id)
		if len(e.scaled) > 0 {
			e.renamed = "" // 4.7 has the name in another unit
		}
		e.aliases = slices.DeleteFunc(e.aliases, func(s string) bool { return taken[s] })
		e.help = fill(e.help, e.name, n.current)
		out = append(out, e)
	}
	for id := range facts {
		if byID[id] == nil {
			return nil, fmt.Errorf("facts for field %d, which go-dcgm does not know", id)
		}
	}
	for _, u := range units {
		e, err := scaledEntry(u, facts[u.of])
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b entry) int { return a.id - b.id })
	return out, unique(out)
}

func scaledEntry(u baseUnit, f fact) (entry, error) {
	if f.kind != "Int64" && f.kind != "Double" {
		return entry{}, fmt.Errorf("base unit %q is of field %d, which is not a number", u.name, u.of)
	}
	f.unit = u.unit
	f.min *= u.factor
	f.max *= u.factor
	f.help = fill(f.help, u.name, nil)
	return entry{id: u.id, name: u.name, fact: f, of: u.of, factor: u.factor}, nil
}

func unique(entries []entry) error {
	seen := map[string]int{}
	ids := map[int]string{}
	for _, e := range entries {
		if other, ok := ids[e.id]; ok {
			return fmt.Errorf("id %d is both %q and %q", e.id, other, e.name)
		}
		ids[e.id] = e.name
		for _, name := range append([]string{e.name}, e.aliases...) {
			if id, ok := seen[name]; ok {
				return fmt.Errorf("name %q is both %d and %d", name, id, e.id)
			}
			seen[name] = e.id
		}
	}
	return nil
}

var (
	lane   = regexp.MustCompile(`_(?:L|LANE)(\d+)(?:_|$)`)
	number = regexp.MustCompile(`(\d+)\D*$`)
	part   = regexp.MustCompile(`_([A-Z0-9]+)$`)
	test   = regexp.MustCompile(`_DIAG_([A-Z_]+)_RESULT$`)
)

var parts = map[string]string{
	"L1": "the L1 cache", "L2": "the L2 cache", "DEV": "device memory", "REG": "the register file",
	"TEX": "texture memory", "SHM": "shared memory", "CBU": "the convergence barrier unit", "SRM": "SRAM",
}

// fill replaces the placeholders of a help text by parts of the name.
func fill(help, name string, current []string) string {
	first := func(re *regexp.Regexp) string {
		for _, s := range append([]string{name}, current...) {
			if m := re.FindStringSubmatch(s); m != nil {
				return m[1]
			}
		}
		return "?"
	}
	dir := "sent"
	if strings.Contains(name, "_RX_") {
		dir = "received"
	}
	return strings.NewReplacer(
		"{lane}", first(lane),
		"{n}", first(number),
		"{dir}", dir,
		"{part}", parts[first(part)],
		"{test}", strings.ToLower(strings.ReplaceAll(first(test), "_", " ")),
	).Replace(help)
}
