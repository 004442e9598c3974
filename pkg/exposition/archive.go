package exposition

import (
	"bufio"
	"iter"
	"math"
	"slices"
	"strconv"

	"warpgauge/pkg/view"
)

// Archived is a series written by WriteArchive.
type Archived struct {
	Family         string
	Source, Column int  // of the reading
	Repeated       bool // another field or owner of the page shows the same reading
}

// WriteArchive writes past samples as OpenMetrics with time stamps, without the end marker, and returns the series in
// text order. Families and labels are the page's for v. samples returns the readings of a source's column: ascending
// times, in ms since 1970, and values; it skips blank ones. Accumulated series are not written. The caller flushes w,
// which keeps the first error.
func WriteArchive(w *bufio.Writer, v *view.View, o Options, samples func(source, column int) iter.Seq2[int64, float64]) []Archived {
	o.Registerer = nil
	r := New(new(view.Board), o)
	r.snap.reset(v, r.o.StaleAfter, r.o.Now())
	columns := map[*float64][2]int{}
	for i, s := range v.Sources {
		for c := range s.Columns {
			at, _ := r.snap.roster.at(i, c, s.Columns[c].Device)
			columns[&r.snap.cells[at]] = [2]int{i, c}
		}
	}
	a := archiver{w: w, samples: samples, shown: map[[2]int]bool{}}
	for _, f := range build(&r.o, v, &r.snap, nil, noShares).families {
		a.head = f.head[open]
		for i := range f.samples {
			if at, ok := columns[f.samples[i].value]; ok {
				a.write(f, &f.samples[i], at, a.shown[at], false, 0)
			}
		}
		for i := range f.xids {
			at, ok := columns[f.xids[i].value]
			if !ok {
				continue
			}
			repeated := a.shown[at]
			for _, code := range a.codes(at) { // each is a series
				a.write(f, &f.xids[i], at, repeated, true, code)
			}
		}
	}
	return a.out
}

type archiver struct {
	w       *bufio.Writer
	samples func(source, column int) iter.Seq2[int64, float64]
	shown   map[[2]int]bool
	out     []Archived
	head    []byte // of the family, until it is written
	line    []byte
}

func (a *archiver) codes(at [2]int) (codes []float64) {
	for _, v := range a.samples(at[0], at[1]) {
		if !math.IsNaN(v) && !slices.Contains(codes, v) {
			codes = append(codes, v)
		}
	}
	return codes
}

// write writes a series. A series per XID gets only the samples with its code.
func (a *archiver) write(f *family, s *sampleSeries, at [2]int, repeated, xid bool, code float64) {
	labels, begun := s.labels.text[0], false
	if xid {
		labels = s.labels.appendXID(nil, code)
	}
	for ms, v := range a.samples(at[0], at[1]) {
		if math.IsNaN(v) || xid && v != code {
			continue
		}
		if !begun {
			begun, a.shown[at] = true, true
			a.out = append(a.out, Archived{f.name, at[0], at[1], repeated})
		}
		a.line = append(append(append(a.line[:0], a.head...), f.name...), labels...)
		a.head = nil
		a.line = AppendSample(a.line, s.scale.Of(v), ms)
		a.w.Write(a.line) //nolint:errcheck,gosec // the caller's Flush returns it
	}
}

// AppendSample appends the rest of an OpenMetrics line after the labels: value, time stamp and line end.
func AppendSample(line []byte, v float64, ms int64) []byte {
	line = append(appendValue(line, v), ' ')
	return append(strconv.AppendFloat(line, float64(ms)/1000, 'f', 3, 64), '\n')
}
