package field

import (
	"errors"
	"fmt"
	"io"

	"github.com/gocarina/gocsv"
)

// ParseOptions says how strict Parse is. The zero value is lenient.
type ParseOptions struct {
	File   string // name of the file, for problems; "" leaves it out
	Strict bool   // a field that the catalogue does not know is an error, not a warning
}

// Parse reads a counters CSV in the format of dcgm-exporter: a field, a type and
// a help text on each line, and optionally a fourth cell of options:
//
//	# comment
//	DCGM_FI_DEV_GPU_TEMP,    gauge,     GPU temperature (in C).
//	DCGM_FI_DEV_POWER_USAGE, histogram, "Power draw, sampled.", interval=100ms
//	DCGM_FI_DRIVER_VERSION,  label,     Driver version
//
// It returns everything that is to be said about the file, in the order of its
// lines, good file or not. The error is not nil if the file can not be used;
// then there is no List. A file without any row is an empty List and a warning;
// a file whose rows are all useless is an error, lest a reload silently empties
// the page.
//
// What is accepted beyond dcgm-exporter: a byte order mark, tabs, any line end,
// blanks before a comment and before a quote, the type untyped, unknown fields
// (unless Strict), options, trailing empty cells. Differences in meaning: type
// histogram gives a histogram; summary is read as gauge; fields that can not be
// shown (texts that are no label, binary values) are left out; the second of
// two lines with one name is left out; the type of a DCGM_EXP_ counter is
// checked like any other and kept as written, though the _COUNT ones go up and
// down.
func Parse(r io.Reader, o ParseOptions) (List, []Problem, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return List{}, nil, fmt.Errorf("read counters %q: %w", o.File, err)
	}
	p := &parser{problems: problems{file: o.File}, strict: o.Strict, byName: map[string]int{}}
	if len(text) > maxFileBytes {
		p.fail(0, 0, "the file is larger than %d bytes", maxFileBytes)
	} else if err := p.parse(text); err != nil {
		return List{}, p.sorted(), fmt.Errorf("read counters %q: %w", o.File, err)
	}
	said := p.sorted()
	if err := p.err(); err != nil {
		return List{}, said, err
	}
	return List{Fields: p.fields}, said, nil
}

// parser turns records into fields.
type parser struct {
	problems
	strict bool
	fields []Field
	byName map[string]int // line of the first row with that name

	suggested int // names looked for
}

func (p *parser) parse(text []byte) error {
	source := newRecords(text, &p.problems)
	var rows []record
	err := gocsv.UnmarshalCSVWithoutHeaders(source, &rows)
	if err != nil && !errors.Is(err, gocsv.ErrEmptyCSVFile) {
		return err
	}
	for i := range rows {
		if f, ok := p.field(&rows[i]); ok {
			p.fields = append(p.fields, f)
		}
	}
	switch {
	case len(p.fields) > 0 || p.errors > 0:
	case source.seen == 0:
		p.warn(0, 0, "the file has no rows, so nothing will be measured")
	default:
		p.fail(0, 0, "none of the file's rows can be used (%d in all)", source.seen)
	}
	return nil
}
