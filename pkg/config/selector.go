package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Selector selects devices, in the grammar of dcgm-exporter's -d, -s and -p: f, g, g:LIST, i, i:LIST, or g
// and i combined with +. LIST is a comma list of numbers and ranges such as 0,2-4. A whole is a GPU, a switch
// or a CPU; a part is a MIG instance, a link or a core. The zero Selector matches nothing.
type Selector struct {
	text        string
	whole, part indices
}

// indices is a set of indices.
type indices []span

// span is a closed range of indices.
type span struct{ first, last int }

// everyIndex is the range of a letter without a list.
var everyIndex = span{math.MinInt, math.MaxInt}

func flex() Selector {
	return Selector{text: "f", whole: indices{everyIndex}, part: indices{everyIndex}}
}

// ParseSelector reads the grammar above.
func ParseSelector(text string) (Selector, error) {
	if text == "f" {
		return flex(), nil
	}
	s := Selector{text: text}
	for clause := range strings.SplitSeq(text, "+") {
		letter, list, listed := strings.Cut(clause, ":")
		var at *indices
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
		if !listed {
			*at = indices{everyIndex}
			continue
		}
		for item := range strings.SplitSeq(list, ",") {
			span, err := parseSpan(item)
			if err != nil {
				return Selector{}, err
			}
			*at = append(*at, span)
		}
	}
	return s, nil
}

// parseSpan reads indices of at most 16 bits, so that a typo is an error.
func parseSpan(text string) (span, error) {
	from, to, ranged := strings.Cut(text, "-")
	if !ranged {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil {
		return span{}, fmt.Errorf("%q is neither a number nor a range such as 2-4", text)
	}
	if first > last {
		return span{}, fmt.Errorf("range %q runs backwards", text)
	}
	return span{int(first), int(last)}, nil
}

// Flexible reports the form f: all parts, plus the fields of a whole that its parts lack.
func (s Selector) Flexible() bool { return s.text == "f" }

// MatchWhole reports whether the GPU, switch or CPU with that index is selected.
func (s Selector) MatchWhole(index int) bool { return s.whole.has(index) }

// MatchPart reports whether the instance, link or core with that index is selected.
func (s Selector) MatchPart(index int) bool { return s.part.has(index) }

// Named returns the single indices and the ends of the ranges, for messages about devices that do not exist.
func (s Selector) Named() (wholes, parts []int) { return s.whole.ends(), s.part.ends() }

// String returns the text that ParseSelector has read.
func (s Selector) String() string { return s.text }

func (x indices) has(index int) bool {
	return slices.ContainsFunc(x, func(s span) bool { return s.first <= index && index <= s.last })
}

func (x indices) ends() (out []int) {
	for _, s := range x {
		if s != everyIndex {
			out = append(out, s.first, s.last)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
