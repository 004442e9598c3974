package field

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gocarina/gocsv"
)

// ParseOptions sets how strict Parse is. The zero value is lenient.
type ParseOptions struct {
	File   string // name of the file, for problems; "" leaves it out
	Strict bool   // an unknown field is an error, not a warning
}

// Parse reads a counters CSV in the format of dcgm-exporter: a field, a type and a help text on each line,
// and optionally a fourth cell of options:
//
//	# comment
//	DCGM_FI_DEV_GPU_TEMP,    gauge,     GPU temperature (in C).
//	DCGM_FI_DEV_POWER_USAGE, histogram, "Power draw, sampled.", interval=100ms
//	DCGM_FI_DRIVER_VERSION,  label,     Driver version
//
// It returns all problems of the file in the order of its lines, even if the file is usable. The error is not
// nil if it is not; then there is no List. A file without any row is an empty List and a warning; a file
// whose rows are all useless is an error, so that a reload does not silently empty the page.
//
// Parse accepts more than dcgm-exporter: a byte order mark, tabs, any line end, blanks before a comment and
// before a quote, the type untyped, unknown fields (unless Strict), options, trailing empty cells.
// Differences in meaning: type histogram gives a histogram; summary is read as gauge; fields that cannot be
// shown (texts that are not labels, binary values) and the second of two lines with one name are skipped; the type
// of a DCGM_EXP_ counter is checked like any other and kept as written, though the _COUNT ones go up and down.
func Parse(r io.Reader, o ParseOptions) (List, []Problem, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	if err != nil {
		return List{}, nil, fmt.Errorf("read counters %q: %w", o.File, err)
	}
	p := &parser{problems: problems{file: o.File}, strict: o.Strict, byName: map[string]int{}}
	if len(text) > MaxFileBytes {
		p.fail(0, 0, "the file is larger than %d bytes", MaxFileBytes)
	} else if err := p.parse(text); err != nil {
		return List{}, p.sorted(), fmt.Errorf("read counters %q: %w", o.File, err)
	}
	all := p.sorted()
	if err := p.err(); err != nil {
		return List{}, all, err
	}
	return List{Fields: p.fields}, all, nil
}

// parser turns records into fields.
type parser struct {
	problems
	strict bool
	fields []Field
	byName map[string]int // line of the first row with that name

	suggested int // how many names were searched for a suggestion
}

// record is one row of the CSV as gocsv decodes it, with the positions of its cells.
type record struct {
	Name    string `csv:"field"`
	Type    string `csv:"type"`
	Help    string `csv:"help"`
	Options string `csv:"options"`

	position `csv:"-"`
}

func (p *parser) parse(text []byte) error {
	source := newRecords(text, &p.problems)
	var rows []record
	err := gocsv.UnmarshalCSVWithoutHeaders(source, &rows)
	if err != nil && !errors.Is(err, gocsv.ErrEmptyCSVFile) {
		return err
	}
	for i := range rows {
		rows[i].position = source.positions[i]
		if f, ok := p.field(&rows[i]); ok {
			p.fields = append(p.fields, f)
		}
	}
	switch {
	case len(p.fields) > 0 || p.count[Error] > 0:
	case source.seen == 0:
		p.warn(0, 0, "the file has no rows, so nothing will be measured")
	default:
		p.fail(0, 0, "none of the file's rows can be used (%d in all)", source.seen)
	}
	return nil
}

// field makes a Field of a row, or reports why it cannot.
func (p *parser) field(r *record) (Field, bool) {
	if r.Name == "" {
		p.unknown(r, "the row names no field")
		return Field{}, false
	}
	d, scale, ok := ByName(r.Name)
	if !ok {
		p.unknownName(r)
	}
	typ, typeOK := p.readType(r)
	f := Field{Desc: d, Name: r.Name, Type: typ, Help: p.cleanHelp(r), Scale: scale, Line: r.line}
	optionsOK := p.readOptions(&f, r)
	if !ok || !typeOK || !optionsOK || !p.usable(&f, r) {
		return Field{}, false
	}
	p.byName[r.Name] = r.line
	if f.Type == Histogram && f.Buckets == nil {
		f.Buckets = bucketsFor(d, scale)
	}
	return f, true
}

// unknownName reports a name that the catalogue lacks. It suggests another name for the first few only,
// because the search is slow and a file with more is not a field list.
func (p *parser) unknownName(r *record) {
	const most = 100
	if p.suggested++; p.suggested <= most {
		if better, ok := Suggest(r.Name); ok {
			p.unknown(r, "unknown field %v, did you mean %v?", quoted(r.Name), quoted(better))
			return
		}
	}
	p.unknown(r, "unknown field %v", quoted(r.Name))
}

// unknown reports a row with an unknown name.
func (p *parser) unknown(r *record, format string, args ...any) {
	severity := Warning
	if p.strict {
		severity = Error
	}
	p.add(severity, r.line, r.columns[0], format, args...)
}

func (p *parser) readType(r *record) (Type, bool) {
	if r.Type == "summary" {
		p.warn(r.line, r.columns[1], "type summary is read as gauge; type histogram keeps what happens between scrapes")
		return Gauge, true
	}
	if t := slices.Index(allTypes, r.Type); t >= 0 {
		return Type(t), true
	}
	if r.Type == "" {
		p.fail(r.line, r.columns[1], "the row has no type; types are %s", typeNames)
	} else if better, ok := Nearest(r.Type, allTypes); ok {
		p.fail(r.line, r.columns[1], "unknown type %v, did you mean %v?", quoted(r.Type), quoted(better))
	} else {
		p.fail(r.line, r.columns[1], "unknown type %v; types are %s", quoted(r.Type), typeNames)
	}
	return 0, false
}

// cleanHelp replaces invalid UTF-8 in a help text, and replaces characters with blanks that end a line for
// some readers or move a terminal's cursor. A line feed stays: the renderer escapes it.
func (p *parser) cleanHelp(r *record) string {
	help := r.Help
	if !utf8.ValidString(help) {
		p.warn(r.line, r.columns[2], "the help text is not UTF-8; the bad bytes are replaced")
		help = strings.ToValidUTF8(help, "\uFFFD")
	}
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if c != '\n' && (unicode.IsControl(c) || c == '\u2028' || c == '\u2029') {
			return ' '
		}
		return c
	}, help))
}

// usable reports whether the field can have that type, and whether its name is new. Two names of one field are not
// duplicates: they become two families.
func (p *parser) usable(f *Field, r *record) bool {
	if f.Desc == nil {
		return false
	}
	switch kind := f.Desc.Kind; {
	case kind == None:
		p.warn(r.line, r.columns[0], "skipping the row: field %v never has a value", quoted(r.Name))
	case kind == Binary:
		p.warn(r.line, r.columns[0], "skipping the row: field %v is a %v value, which no page can show", quoted(r.Name), kind)
	case kind == String && f.Type != Label:
		p.warn(r.line, r.columns[1], "skipping the row: field %v is a text; use type label", quoted(r.Name))
	case f.Type == Label && computed(f.Desc):
		p.warn(r.line, r.columns[1], "skipping the row: field %v is counted by the exporter and cannot be a label", quoted(r.Name))
	case p.byName[r.Name] > 0:
		p.warn(r.line, r.columns[0], "skipping the row: field %v is in line %d already", quoted(r.Name), p.byName[r.Name])
	case f.Type == Histogram && computed(f.Desc):
		p.warn(r.line, r.columns[1], "field %v can not be a histogram, it is read as gauge", quoted(r.Name))
		f.Type, f.Buckets = Gauge, nil
		return true
	case f.Changes() && f.Desc.Cost == EachTick:
		p.warn(r.line, r.columns[1], "field %v changes all the time; as a label it makes new series, up to once a minute", quoted(r.Name))
		return true
	default:
		return true
	}
	return false
}

// computed reports whether d has no single value for a device: the exporter counts it, or it has further labels.
func computed(d *Descriptor) bool {
	return slices.ContainsFunc(exporterFields[:], func(e Descriptor) bool { return e.ID == d.ID })
}

// Limits of options.
const (
	minInterval = 10 * time.Millisecond
	maxInterval = time.Hour
	maxBuckets  = 100
)

func (p *parser) readOptions(f *Field, r *record) bool {
	good := true
	seen := map[string]bool{}
	for option := range strings.FieldsFuncSeq(r.Options, func(c rune) bool { return c == ' ' || c == '\t' || c == ';' }) {
		name, value, found := strings.Cut(option, "=")
		var err error
		switch {
		case !found:
			err = fmt.Errorf("unknown option %v; quote the help text if it contains a comma", quoted(option))
		case seen[name]:
			err = fmt.Errorf("option %v is there twice", quoted(name))
		default:
			err = f.set(name, value)
		}
		if err != nil {
			p.fail(r.line, r.columns[3], "%s", err)
			good = false
		}
		seen[name] = true
	}
	return good
}

func (f *Field) set(name, value string) (err error) {
	switch name {
	case "interval":
		f.Interval, err = readInterval(value)
		if err == nil && f.Type == Label {
			err = fmt.Errorf("option interval has no meaning for type label")
		}
	case "buckets":
		f.Buckets, err = readBuckets(value)
		if err == nil && f.Type != Histogram {
			err = fmt.Errorf("option buckets is only for type histogram")
		}
	case "names":
		f.Names, err = ParseNames(value)
	default:
		if better, ok := Nearest(name, []string{"interval", "buckets", "names"}); ok {
			return fmt.Errorf("unknown option %v, did you mean %v?", quoted(name), quoted(better))
		}
		return fmt.Errorf("unknown option %v; options are interval=DURATION, buckets=A|B|C and names=MODE", quoted(name))
	}
	return err
}

func readInterval(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("bad interval %v; write it as 100ms, 5s or 1m", quoted(s))
	case d < minInterval || d > maxInterval:
		return 0, fmt.Errorf("interval %v is not between %v and %v", quoted(s), minInterval, maxInterval)
	}
	return d, nil
}

func readBuckets(s string) ([]float64, error) {
	parts := strings.Split(s, "|")
	if len(parts) > maxBuckets {
		return nil, fmt.Errorf("%d buckets are more than %d", len(parts), maxBuckets)
	}
	out := make([]float64, len(parts))
	for i, part := range parts {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("bad bucket %v in %v; write buckets=1|5|10, without +Inf", quoted(part), quoted(s))
		}
		if i > 0 && v <= out[i-1] {
			return nil, fmt.Errorf("buckets %v do not ascend", quoted(s))
		}
		out[i] = v + 0 // -0 becomes 0
	}
	return out, nil
}
