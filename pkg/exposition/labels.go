package exposition

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/common/model"

	"warpgauge/pkg/collector"
)

// Labels that depend on a sample's value, only for the field with the last XID. They are rendered with the
// sample; the others are rendered once, around them.
const (
	errCode = "err_code"
	errMsg  = "err_msg"
)

// bucketLabel distinguishes the buckets of a histogram, so no other label may have that name.
const bucketLabel = "le"

// labelSet holds the labels of one or many series, checked and in page order. Series of one device share a
// set, so that a page of thousands of series reads few label texts.
type labelSet struct {
	pairs []collector.Label // printable, without err_code and err_msg
	cut   [2]int            // position of those two in pairs; only if xid
	xid   bool

	// The text before, between and after err_code and err_msg; without them only the first is used. Text is
	// `{a="b",c="d"} `, or a blank without labels. Protobuf is LabelPair fields, encoded when first needed.
	text  [3][]byte
	proto [3][]byte
}

// labelsOf joins the labels of a series. It drops a label whose name repeats an earlier one, is illegal or is
// reserved; dropped counts them. Prometheus treats an empty value as no label: only fixed labels keep it.
type labelsOf struct {
	fixed   []collector.Label // in page order
	facts   []collector.Label
	column  []collector.Label
	pod     []collector.Label // among facts and column; an owner's label of the same name goes first
	owner   []collector.Label
	xid     bool
	dropped int
}

func (l *labelsOf) set() *labelSet {
	s := &labelSet{pairs: make([]collector.Label, 0, len(l.fixed)+len(l.facts)+len(l.column)+len(l.pod)+len(l.owner)), xid: l.xid}
	for _, p := range l.fixed {
		l.add(s, p)
	}
	byName := func(a, b collector.Label) int { return strings.Compare(a.Name, b.Name) }
	from := len(s.pairs)
	l.addSet(s, l.facts)
	l.addSet(s, l.column)
	l.addPod(s)
	slices.SortStableFunc(s.pairs[from:], byName)

	from = len(s.pairs)
	l.addSet(s, l.owner)
	slices.SortStableFunc(s.pairs[from:], byName)
	for i, name := range [...]string{errCode, errMsg} {
		at, _ := slices.BinarySearchFunc(s.pairs[from:], name, func(p collector.Label, name string) int { return strings.Compare(p.Name, name) })
		s.cut[i] = from + at
	}
	s.renderText()
	return s
}

func (l *labelsOf) addSet(s *labelSet, pairs []collector.Label) {
	for _, p := range pairs {
		if p.Value != "" {
			l.add(s, p)
		}
	}
}

// addPod adds the pod's labels that do not clash with the owner's.
func (l *labelsOf) addPod(s *labelSet) {
	for _, p := range l.pod {
		switch {
		case p.Value == "":
		case slices.ContainsFunc(l.owner, func(q collector.Label) bool { return q.Name == p.Name && q.Value != "" }):
			l.dropped++
		default:
			l.add(s, p)
		}
	}
}

func (l *labelsOf) add(s *labelSet, p collector.Label) {
	taken := p.Name == bucketLabel || l.xid && (p.Name == errCode || p.Name == errMsg) ||
		slices.ContainsFunc(s.pairs, func(q collector.Label) bool { return q.Name == p.Name })
	// A label of ours is legal in every format, and Prometheus does not reserve it.
	if taken || !model.LegacyValidation.IsValidLabelName(p.Name) || strings.HasPrefix(p.Name, "__") {
		l.dropped++
		return
	}
	s.pairs = append(s.pairs, collector.Label{Name: p.Name, Value: printable(p.Value)})
}

// parts returns the labels before, between and after err_code and err_msg, or
// all of them as the first part if the series has neither.
func (s *labelSet) parts() [3][]collector.Label {
	if !s.xid {
		return [3][]collector.Label{s.pairs}
	}
	return [3][]collector.Label{s.pairs[:s.cut[0]], s.pairs[s.cut[0]:s.cut[1]], s.pairs[s.cut[1]:]}
}

func (s *labelSet) renderText() {
	if !s.xid {
		s.text[0] = []byte(" ")
		if len(s.pairs) > 0 {
			s.text[0] = closePairs(appendPairs([]byte{'{'}, s.pairs))
		}
		return
	}
	parts := s.parts()
	s.text[0] = appendPairs([]byte{'{'}, parts[0])
	s.text[1] = appendPairs([]byte{','}, parts[1])
	s.text[2] = closePairs(appendPairs([]byte{','}, parts[2]))
}

// key returns a text that differs for different sets.
func (s *labelSet) key() string {
	if !s.xid {
		return string(s.text[0])
	}
	return string(slices.Concat(s.text[0], s.text[1], s.text[2]))
}

// appendPairs appends each label and a comma.
func appendPairs(b []byte, pairs []collector.Label) []byte {
	for _, p := range pairs {
		b = append(b, p.Name...)
		b = append(b, '=')
		b = appendLabelValue(b, p.Value)
		b = append(b, ',')
	}
	return b
}

// closePairs ends labels that end with a comma.
func closePairs(b []byte) []byte { return append(b[:len(b)-1], "} "...) }

// printable replaces what may not be on a page: invalid UTF-8, and characters that control a terminal, with NUL, which
// ends the input of Prometheus' text parser.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

// appendLabelValue appends a label value between quotes. Text and OpenMetrics escape the same three characters.
func appendLabelValue(b []byte, s string) []byte {
	b = append(b, '"')
	b = appendEscaped(b, s, true)
	return append(b, '"')
}

// escapers escape backslash and newline, and the double quote where the format requires it: in label values,
// and in HELP of OpenMetrics but not of text 0.0.4.
var escapers = map[bool]*strings.Replacer{
	false: strings.NewReplacer(`\`, `\\`, "\n", `\n`),
	true:  strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`),
}

func appendEscaped(b []byte, s string, quote bool) []byte {
	return append(b, escapers[quote].Replace(s)...)
}
