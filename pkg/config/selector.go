package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Selector selects devices, in the grammar of dcgm-exporter's -d, -s and -p: f, g, g:LIST, i, i:LIST, or g
// and i combined with +. LIST is a comma list of numbers and ranges such as 0,2-4. A whole is a GPU, a switch
// or a CPU; a part is a MIG instance, a link or a core. The zero Selector matches nothing.
type Selector struct {
	text     string
	flexible bool
	whole    *indices // nil: none
	part     *indices
}

// span is a closed range of indices.
type span struct{ first, last int }

// indices is a set of indices; no spans means all.
type indices struct{ spans []span }

// maxIndex bounds the ranges, so that a typo is an error.
const maxIndex = 65535

func flex() Selector { return Selector{text: "f", flexible: true} }

// ParseSelector reads the grammar above.
func ParseSelector(text string) (Selector, error) {
	if text == "f" {
		return flex(), nil
	}
	s := Selector{text: text}
	for clause := range strings.SplitSeq(text, "+") {
		letter, rest, listed := strings.Cut(clause, ":")
		var at **indices
		switch letter {
		case "g":
			at = &s.whole
		case "i":
			at = &s.part
		case "f":
			return Selector{}, errors.New("f takes no list and cannot be combined with g or i")
		default:
			return Selector{}, fmt.Errorf("%q is none of f, g and i", letter)
		}
		if *at != nil {
			return Selector{}, fmt.Errorf("%s occurs twice: write one list, as in %s:0,2-4", letter, letter)
		}
		set, err := parseIndices(rest, listed)
		if err != nil {
			return Selector{}, err
		}
		*at = set
	}
	return s, nil
}

func parseIndices(text string, listed bool) (*indices, error) {
	set := &indices{}
	if !listed {
		return set, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		s, err := parseSpan(item)
		if err != nil {
			return nil, err
		}
		set.spans = append(set.spans, s)
	}
	return set, nil
}

func parseSpan(text string) (span, error) {
	from, to, ranged := strings.Cut(text, "-")
	if !ranged {
		to = from
	}
	first, err1 := parseIndex(from)
	last, err2 := parseIndex(to)
	if err1 != nil || err2 != nil {
		return span{}, fmt.Errorf("%q is neither a number nor a range such as 2-4", text)
	}
	if first > last {
		return span{}, fmt.Errorf("range %q runs backwards", text)
	}
	return span{first, last}, nil
}

func parseIndex(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > maxIndex {
		return 0, fmt.Errorf("%q is not a number from 0 to %d", text, maxIndex)
	}
	return int(n), nil
}

// Flexible reports the form f: all parts, plus the fields of a whole that its parts lack.
func (s Selector) Flexible() bool { return s.flexible }

// MatchWhole reports whether the GPU, switch or CPU with that index is selected.
func (s Selector) MatchWhole(index int) bool { return s.flexible || s.whole.has(index) }

// MatchPart reports whether the instance, link or core with that index is selected.
func (s Selector) MatchPart(index int) bool { return s.flexible || s.part.has(index) }

// Named returns the single indices and the ends of the ranges, for messages about devices that do not exist.
func (s Selector) Named() (wholes, parts []int) { return s.whole.ends(), s.part.ends() }

// String returns the text that ParseSelector has read.
func (s Selector) String() string { return s.text }

func (x *indices) has(index int) bool {
	if x == nil {
		return false
	}
	return x.spans == nil || slices.ContainsFunc(x.spans, func(s span) bool { return s.first <= index && index <= s.last })
}

func (x *indices) ends() (out []int) {
	if x == nil {
		return nil
	}
	for _, s := range x.spans {
		out = append(out, s.first, s.last)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
