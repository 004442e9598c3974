package collector

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

func TestBlanks(t *testing.T) {
	var a Absences
	first, second := a.Blank(ReasonPermission, "root"), a.Blank(ReasonBlank, "none")
	f := func(what string, v float64, want Blank) {
		t.Helper()
		testkit.ErrorIf(t, !math.IsNaN(v), "%s is %v, want NaN", what, v)
		// Readers also get it copied through a ring.
		for _, v := range []float64{v, math.Float64frombits(math.Float64bits(v))} {
			testkit.Equal(t, what, want, BlankOf(v))
		}
	}
	f("the first", first, Blank{Explanation: 0})
	f("the second", second, Blank{Explanation: 1})
	f("the first again", a.Blank(ReasonPermission, "root"), Blank{Explanation: 0})
	f("not sampled", NotSampled(), Blank{NotSampled: true, Explanation: -1})
	f("dropped", Dropped(808e6), Blank{Implausible: true, Value: 808e6, Explanation: -1})
	f("dropped below 0", Dropped(-0.5), Blank{Implausible: true, Value: -0.5, Explanation: -1})
	f("dropped infinite", Dropped(math.Inf(-1)), Blank{Implausible: true, Value: math.Inf(-1), Explanation: -1})
	f("dropped huge", Dropped(1e300), Blank{Implausible: true, Value: math.Inf(1), Explanation: -1})
	f("NaN", math.NaN(), Blank{Explanation: -1})
	zero := 0.0
	f("0/0", zero/zero, Blank{Explanation: -1})
	f("∞−∞", math.Inf(1)+math.Inf(-1), Blank{Explanation: -1})
}

func TestAbsences(t *testing.T) {
	gpu, link := Device{ID: "a", Level: field.GPU}, Device{ID: "a/link0", Level: field.Link}
	reading := func(id field.ID) field.Reading {
		d, ok := field.ByID(id)
		testkit.FatalIf(t, !ok, "%v", id)
		return field.Reading{Desc: d}
	}
	var a Absences
	a.Note(0, 191, Explanation{ReasonNoSymbol, "lacks a"})
	a.Note(0, 191, Explanation{ReasonUnsupported, "b: not supported"})
	a.Note(0, 191, Explanation{ReasonUnsupported, "lacks a"})
	a.Note(0, 150, Explanation{ReasonUnsupported, "the first way"}) // another way works
	readings := []field.Reading{reading(150), reading(191), reading(155), reading(1508)}
	a.Complete([]Device{gpu, link}, []Column{{Device: 0, Field: 150}}, readings, func(device int, d *field.Descriptor) Explanation {
		return Explanation{ReasonUnknown, fmt.Sprint(device, " ", d.ID)}
	})
	var got []string
	for _, x := range a.Absent() {
		e := a.Explanations()[x.Explanation]
		got = append(got, fmt.Sprintf("%d %d %s: %s", x.Device, x.Field, e.Reason, e.Detail))
	}
	want := []string{"0 191 no_symbol: lacks a; b: not supported", "0 155 unknown: 0 155", "1 1508 unknown: 1 1508"}
	testkit.Equal(t, "absences", want, got)
}

// TestAbsencesAreBounded checks the limits on the number and the length of explanations.
func TestAbsencesAreBounded(t *testing.T) {
	var a Absences
	long := a.Blank(ReasonBlank, strings.Repeat("ü", MaxDetail))
	for i := range 3 * MaxExplanations {
		a.Blank(ReasonBlank, fmt.Sprint(i))
	}
	last := a.Blank(ReasonBlank, "one more")
	testkit.Equal(t, "explanations", MaxExplanations, len(a.Explanations()))
	testkit.Equal(t, "explanation beyond the limit", ReasonUnknown, a.Explanations()[BlankOf(last).Explanation].Reason)
	testkit.Equal(t, "a long detail", strings.Repeat("ü", MaxDetail/2), a.Explanations()[BlankOf(long).Explanation].Detail)
}
