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

	head [dialects][]byte // HELP and TYPE lines
	// created is the name of the lines that say in OpenMetrics when a count began; nil: there are none.
	created []byte
	proto   []byte // name, help and type; made when first wanted
}

// sampleSeries shows one number.
type sampleSeries struct {
	labels *labelSet
	scale  field.Scale
	value  *float64 // in the snapshot, or of an accumulated series; NaN is left out
	device int32    // in snapshot.live
	// created is when the count began, Unix ns; 0: it has not. nil: it is not known, or not a count.
	created *int64
}

type histogramSeries struct {
	labels *labelSet
	state  *accumulate.Histogram
	bounds *boundTexts
	device int32
}

// boundTexts is the end of each bucket's labels, `le="1"} `, the last for +Inf.
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

// finish renders the head lines. taken reports whether another family has a name; created
// asks for lines that say when counts began.
func (f *family) finish(created bool, taken func(name string) bool) {
	f.head[classic] = appendHead(nil, f.name, f.help, f.kind.text(), false)

	// A counter's sample in OpenMetrics must be called as its family plus _total.
	// DCGM's counters have no such ending, and a series must not have another
	// name in another format, so there they are of unknown type.
	// Prometheus keeps types for people to read only.
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
	if created && (word == counter.openMetrics() || word == histogram.openMetrics()) && !taken(name+"_created") {
		f.created = []byte(name + "_created")
	}
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
