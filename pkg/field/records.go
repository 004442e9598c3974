package field

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// MaxFileBytes is the maximum size of a counters CSV: far above every real list, and below files that are
// mounted by mistake.
const MaxFileBytes = 4 << 20

const (
	maxRecordBytes = 64 << 10
	maxBroken      = 20 // records with broken quotes until the rest is not read: one open quote can make all of it one cell
)

// position is where a record and its cells begin. Columns are in bytes, from 1; 0 for a missing cell.
type position struct {
	line    int // from 1
	columns [4]int
}

// records holds the good records of a file, with four cells each, in the form that gocsv reads.
type records struct {
	rows      [][]string
	positions []position
	seen      int // records, good and bad
}

// ReadAll returns the records.
func (r *records) ReadAll() ([][]string, error) { return r.rows, nil }

// Read is not called: gocsv reads all records.
func (r *records) Read() ([]string, error) { return nil, io.EOF }

var (
	// lineEnd matches the meaningless blanks and carriage returns before a line feed. Without them encoding/csv
	// accepts blanks after a closing quote.
	lineEnd = regexp.MustCompile(`[ \t\r]+(\n|$)`)
	// comment matches the blanks before a comment.
	comment = regexp.MustCompile(`(?m)^[ \t]+#`)
)

// newRecords reads a file with encoding/csv, and reports bad records. A record with a broken quote only costs its first
// line, so that an open quote does not hide the rest.
func newRecords(text []byte, p *problems) *records {
	r := &records{}
	switch {
	case bytes.HasPrefix(text, []byte{0xff, 0xfe}), bytes.HasPrefix(text, []byte{0xfe, 0xff}):
		p.fail(1, 1, "the file is in UTF-16, save it as UTF-8")
		return r
	case bytes.IndexByte(text, 0) >= 0:
		p.fail(0, 0, "this is not a text file: it has bytes that are 0")
		return r
	}
	text = comment.ReplaceAll(lineEnd.ReplaceAll(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("$1")), []byte("#"))
	before := 0 // lines before text
	for range maxBroken {
		c := newReader(text)
		cells, err := c.Read()
		for ; err == nil; cells, err = c.Read() {
			r.add(c, cells, before, p)
		}
		var broken *csv.ParseError
		if !errors.As(err, &broken) {
			return r // the end
		}
		r.seen++
		var line []byte
		for range broken.StartLine {
			line, text, _ = bytes.Cut(text, []byte{'\n'})
		}
		before += broken.StartLine
		if _, alone := newReader(line).Read(); errors.As(alone, &broken) {
			p.fail(before, broken.Column, "%s", explain(alone))
		}
	}
	p.fail(before, 0, "too many broken quotes; the rest of the file is not read")
	return r
}

func newReader(text []byte) *csv.Reader {
	c := csv.NewReader(bytes.NewReader(text))
	c.Comment, c.FieldsPerRecord, c.TrimLeadingSpace = '#', -1, true
	return c
}

// add keeps the record that c has just read, or reports why it cannot be used.
func (r *records) add(c *csv.Reader, cells []string, before int, p *problems) {
	r.seen++
	line, _ := c.FieldPos(0)
	at, length := position{line: before + line}, 0
	for len(cells) > 3 && cells[len(cells)-1] == "" { // spreadsheets append empty cells
		cells = cells[:len(cells)-1]
	}
	for i := range cells {
		if i < len(at.columns) {
			_, at.columns[i] = c.FieldPos(i)
		}
		length += len(cells[i])
		cells[i] = strings.TrimSpace(cells[i])
	}
	switch {
	case length > maxRecordBytes:
		p.fail(at.line, 0, "the line is longer than %d bytes", maxRecordBytes)
		return
	case len(cells) < 3:
		p.fail(at.line, 0, "%s instead of field, type, help%s", cellCount(len(cells)), separatorAdvice(strings.Join(cells, ",")))
		return
	case len(cells) > 4:
		_, fifth := c.FieldPos(4)
		p.fail(at.line, fifth, "%d cells instead of field, type, help and options; a help text with a comma must be in double quotes", len(cells))
		return
	case len(cells) == 3:
		cells = append(cells, "")
	}
	r.rows, r.positions = append(r.rows, cells), append(r.positions, at)
}

func cellCount(n int) string {
	if n == 1 {
		return "1 cell"
	}
	return fmt.Sprintf("%d cells", n)
}

// separatorAdvice returns advice if a line has separators other than commas.
func separatorAdvice(line string) string {
	switch {
	case strings.Count(line, "\t") > 1:
		return ": write commas between them, not tabs"
	case strings.Count(line, ";") > 1:
		return ": write commas between them, not semicolons"
	}
	return ""
}

// explain rewrites an error of encoding/csv in the user's terms.
func explain(err error) string {
	switch {
	case errors.Is(err, csv.ErrBareQuote):
		return `a double quote within a cell; put the whole cell in double quotes and double those within`
	case errors.Is(err, csv.ErrQuote):
		return `a quoted cell that does not end before the next comma; double the double quotes within`
	}
	return fmt.Sprintf("read record: %v", err)
}
