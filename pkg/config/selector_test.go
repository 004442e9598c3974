package config

import (
	"math"
	"slices"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

func TestParseSelector(t *testing.T) {
	whole, part := []int{0, 1, 2, 3, 4, 5, 31, 40}, []int{0, 1, 2, 3, 4, 5, 31, 40}
	for _, c := range []struct {
		in          string
		whole, part []int // the wanted ones
		out         string
	}{
		{in: "f", whole: whole, part: part},
		{in: "g", whole: whole},
		{in: "i", part: part},
		{in: "g:0", whole: []int{0}},
		{in: "g:0,2-4", whole: []int{0, 2, 3, 4}},
		{in: "i:31", part: []int{31}},
		{in: "g+i", whole: whole, part: part},
		{in: "g:0,1+i:2", whole: []int{0, 1}, part: []int{2}},
		{in: "i:2+g", whole: whole, part: []int{2}},
		{in: "g:3-3", whole: []int{3}},
	} {
		s, err := ParseSelector(c.in)
		if err != nil {
			t.Errorf("ParseSelector(%q) = %v", c.in, err)
			continue
		}
		var gotWhole, gotPart []int
		for _, i := range whole {
			if s.MatchWhole(i) {
				gotWhole = append(gotWhole, i)
			}
			if s.MatchPart(i) {
				gotPart = append(gotPart, i)
			}
		}
		if !slices.Equal(gotWhole, c.whole) || !slices.Equal(gotPart, c.part) {
			t.Errorf("ParseSelector(%q) matches wholes %v and parts %v, want %v and %v", c.in, gotWhole, gotPart, c.whole, c.part)
		}
		testkit.Equal(t, c.in, c.in, s.String()) // children parse it again
	}
}

func TestParseSelectorErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":            "none of f, g and i",
		"x":           `"x" is none of f, g and i`,
		"G":           "none of f, g and i",
		"f:0":         "f takes no list",
		"f+g":         "cannot be combined",
		"g+f":         "cannot be combined",
		"g:":          "neither a number nor a range",
		"g:1:2":       "neither a number nor a range",
		"g:a":         `"a" is neither`,
		"g:1,":        "neither",
		"g:-1":        "neither",
		"g:1-2-3":     "neither",
		"g: 1":        "neither",
		"g:4-2":       "runs backwards",
		"g:0+g:1":     "g occurs twice",
		"g:65536":     "neither",
		"g:0-9999999": "neither",
		"g++i":        "none of",
	} {
		s, err := ParseSelector(in)
		testkit.ErrorIf(t, err == nil || !strings.Contains(err.Error(), want), "ParseSelector(%q) = %v, %v, want an error with %q", in, s, err, want)
	}
}

func FuzzParseSelector(f *testing.F) {
	for _, s := range []string{"f", "g", "g:0,2-4+i:1", "g:4-2", "i:", "g+g"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseSelector(in)
		if err != nil {
			testkit.ErrorIf(t, s.Flexible() || s.MatchWhole(0) || s.MatchPart(0), "ParseSelector(%q) gives an error and a selector that matches", in)
			return
		}
		again, err := ParseSelector(s.String())
		testkit.ErrorIf(t, err != nil || again.String() != s.String(), "ParseSelector(%q) prints as %q, which parses as %q, %v", in, s, again, err)
		for _, i := range []int{0, 1, 2, 100, math.MaxUint16} {
			testkit.ErrorIf(t, s.MatchWhole(i) != again.MatchWhole(i) || s.MatchPart(i) != again.MatchPart(i), "ParseSelector(%q) and its text %q differ at %d", in, s, i)
		}
	})
}
