package exposition

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"

	"warpgauge/pkg/view"
)

// WriteArchive writes samples of the past as OpenMetrics with time stamps: families and
// labels are those that the page has for v. samples returns those of a column of a source:
// times, which ascend, in ms since 1970, and readings; blank ones are left out. What is
// accumulated is not in it.
func WriteArchive(to io.Writer, v *view.View, o Options, samples func(source, column int) iter.Seq2[int64, float64]) error {
	r := New(new(view.Board), o)
	r.snap.reset(v, r.o.StaleAfter, r.o.Now())
	l := build(&r.o, v, &r.snap, nil, nil)
	columns := map[*float64][2]int{}
	for i, s := range v.Sources {
		for c := range s.Columns {
			at, _ := r.snap.roster.at(i, c, s.Columns[c].Device)
			columns[&r.snap.cells[at]] = [2]int{i, c}
		}
	}
	w := bufio.NewWriterSize(to, 64<<10)
	a := archiver{w: w}
	for _, f := range l.families {
		a.head = f.head[open]
		for i := range f.samples {
			c := &f.samples[i]
			from := columns[c.value]
			for at, v := range samples(from[0], from[1]) {
				a.write(f, c.labels.text[0], c.scale.Of(v), at)
			}
		}
		for i := range f.xids {
			c := &f.xids[i]
			from := columns[c.value]
			var codes []float64
			for _, v := range samples(from[0], from[1]) {
				if !math.IsNaN(v) && !slices.Contains(codes, v) {
					codes = append(codes, v)
				}
			}
			for _, code := range codes { // each is a series
				labels := c.labels.appendXID(nil, code)
				for at, v := range samples(from[0], from[1]) {
					if v == code {
						a.write(f, labels, c.scale.Of(v), at)
					}
				}
			}
		}
	}
	w.WriteString("# EOF\n") //nolint:errcheck,gosec // Flush returns it
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}

// archiver writes lines. The writer keeps the first error.
type archiver struct {
	w    *bufio.Writer
	head []byte // of the family, until it is written
	line []byte
}

func (a *archiver) write(f *family, labels []byte, v float64, at int64) {
	if math.IsNaN(v) {
		return
	}
	b := append(a.line[:0], a.head...)
	a.head = nil
	b = append(b, f.name...)
	b = append(b, labels...)
	b = appendValue(b, v)
	b = append(b, ' ')
	b = strconv.AppendFloat(b, float64(at)/1000, 'f', 3, 64)
	a.line = append(b, '\n')
	a.w.Write(a.line) //nolint:errcheck,gosec // Flush returns it
}
