package exposition

import (
	"strings"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/field"
)

// kind is the type of a family.
type kind uint8

const (
	gauge kind = iota
	counter
	untyped
	histogram
)

func kindOf(t field.Type) kind {
	switch t {
	case field.Gauge:
		return gauge
	case field.Counter:
		return counter
	}
	return untyped // also a histogram that has only one value
}

// dialect is one of the two line-based formats.
type dialect int

const (
	classic dialect = iota
	open
	dialects
)

// family is the series under one HELP and TYPE.
type family struct {
	name string
	help string // printable
	kind kind

	samples    []sampleSeries
	xids       []sampleSeries // with err_code and err_msg
	histograms []histogramSeries

	head  [dialects][]byte // HELP and TYPE lines
	proto []byte           // name, help and type; made when first needed
}

// sampleSeries shows one number.
type sampleSeries struct {
	labels *labelSet
	scale  field.Scale
	value  *float64 // in the snapshot, or of an accumulated series; NaN is left out
	device int32    // in snapshot.live
	// created is the start of the count, Unix ns; 0: not started. nil: unknown, or not a count.
	created *int64
}

type histogramSeries struct {
	labels *labelSet
	state  *accumulate.Histogram
	bounds *boundTexts
	device int32
}

// boundTexts holds the end of each bucket's labels, `le="1"} `; the last is for +Inf.
type boundTexts [dialects][]string

func newBoundTexts(bounds []float64) *boundTexts {
	var t boundTexts
	for d, write := range [dialects]func([]byte, float64) []byte{classic: appendBound, open: appendCanonicalBound} {
		for _, bound := range bounds {
			t[d] = append(t[d], bucketLabel+`="`+string(write(nil, bound))+`"} `)
		}
		t[d] = append(t[d], bucketLabel+`="+Inf"} `)
	}
	return &t
}

func (f *family) size() int {
	return len(f.samples) + len(f.xids) + len(f.histograms)
}

// finish renders the head lines. taken reports whether another family has a name.
func (f *family) finish(taken func(name string) bool) {
	f.head[classic] = appendHead(nil, f.name, f.help, f.kind.text(), false)

	// OpenMetrics requires a counter's samples to have the family's name plus _total. DCGM's counters lack
	// that ending, and a series must not change its name with the format, so they have an unknown type there.
	// Prometheus only shows types to people.
	name, word := f.name, f.kind.openMetrics()
	if f.kind == counter {
		base, is := strings.CutSuffix(f.name, "_total")
		if is && base != "" && !taken(base) {
			name = base
		} else {
			word = untyped.openMetrics()
		}
	}
	f.head[open] = appendHead(nil, name, f.help, word, true)
}

func appendHead(b []byte, name, help, word string, quote bool) []byte {
	if help != "" {
		b = append(b, "# HELP "+name+" "...)
		b = appendEscaped(b, help, quote)
		b = append(b, '\n')
	}
	return append(b, "# TYPE "+name+" "+word+"\n"...)
}

func (k kind) text() string {
	return [...]string{gauge: "gauge", counter: "counter", untyped: "untyped", histogram: "histogram"}[k]
}

func (k kind) openMetrics() string {
	if k == untyped {
		return "unknown"
	}
	return k.text()
}
