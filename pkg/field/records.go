package field

import (
	"bufio"
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

const maxRecordBytes = 64 << 10

// position is where a record and its cells begin. Columns are in bytes, from 1; 0 for a missing cell.
type position struct {
	line    int // from 1
	columns [4]int
}

// records reads a file record by record with encoding/csv. In addition it continues after a bad record,
// accepts blanks before a comment, and keeps the position of each cell. It implements gocsv.CSVReader.
type records struct {
	text      []byte // unread part of the file
	line      int    // of text's beginning, from 1
	problems  *problems
	positions []position // of the good records
	seen      int        // records, good and bad
	wasted    int        // bytes read for records that turned out bad
	buffer    *bufio.Reader
}

// lineEnd matches the meaningless blanks and carriage returns before a line feed. Without them encoding/csv
// accepts blanks after a closing quote.
var lineEnd = regexp.MustCompile(`[ \t\r]+(\n|$)`)

func newRecords(text []byte, p *problems) *records {
	switch {
	case bytes.HasPrefix(text, []byte{0xff, 0xfe}), bytes.HasPrefix(text, []byte{0xfe, 0xff}):
		p.fail(1, 1, "the file is in UTF-16, save it as UTF-8")
		text = nil
	case bytes.IndexByte(text, 0) >= 0:
		p.fail(0, 0, "this is not a text file: it has bytes that are 0")
		text = nil
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	return &records{text: lineEnd.ReplaceAll(text, []byte("$1")), line: 1, problems: p, buffer: bufio.NewReader(nil)}
}

// ReadAll returns all good records.
func (r *records) ReadAll() ([][]string, error) {
	var out [][]string
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		out = append(out, row)
	}
}

// Read returns the four cells of the next good record. The error is io.EOF.
func (r *records) Read() ([]string, error) {
	for len(r.text) > 0 {
		line := firstLine(r.text)
		if s := bytes.TrimSpace(line); len(s) == 0 || s[0] == '#' {
			r.skip(len(line))
			continue
		}
		r.seen++
		if row := r.next(line); row != nil {
			return row, nil
		}
	}
	return nil, io.EOF
}

// next consumes the record that begins with line, and returns nil after it has reported a bad record. A bad
// record only costs its first line, so that an open quote does not hide the rest.
func (r *records) next(line []byte) []string {
	at := position{line: r.line}
	if len(line) > maxRecordBytes {
		r.skip(len(line))
		r.problems.fail(at.line, 0, "the line is longer than %d bytes", maxRecordBytes)
		return nil
	}
	cells, columns, length, err := r.split(line)
	if err != nil {
		r.skip(len(line))
		r.problems.fail(at.line, errorColumn(err), "%s", explain(err))
		return nil
	}
	r.skip(length)
	for len(cells) > 3 && cells[len(cells)-1] == "" { // spreadsheets append empty cells
		cells = cells[:len(cells)-1]
	}
	switch copy(at.columns[:], columns[:len(cells)]); {
	case len(cells) < 3:
		r.problems.fail(at.line, 0, "%s instead of field, type, help%s", cellCount(len(cells)), separatorAdvice(line))
		return nil
	case len(cells) > 4:
		r.problems.fail(at.line, columns[4], "%d cells instead of field, type, help and options; a help text with a comma must be in double quotes", len(cells))
		return nil
	case len(cells) == 3:
		cells = append(cells, "")
	}
	r.positions = append(r.positions, at)
	return cells
}

func cellCount(n int) string {
	if n == 1 {
		return "1 cell"
	}
	return fmt.Sprintf("%d cells", n)
}

// separatorAdvice returns advice if a line has separators other than commas.
func separatorAdvice(line []byte) string {
	switch {
	case bytes.Count(line, []byte{'\t'}) > 1:
		return ": write commas between them, not tabs"
	case bytes.Count(line, []byte{';'}) > 1:
		return ": write commas between them, not semicolons"
	}
	return ""
}

// split returns the cells of the record that begins with line, their columns, and the record's length in
// bytes: more than one line if a quoted cell has line ends. Its error is about the first line. A file with
// many open quotes would be read again and again, so records of several lines end when that has taken too
// long.
func (r *records) split(line []byte) (cells []string, columns []int, length int, err error) {
	if r.wasted <= MaxFileBytes {
		window := r.text[:min(len(r.text), maxRecordBytes)]
		cells, columns, length, err = r.splitCells(window)
		if err == nil && (length < len(window) || length == len(r.text) || window[length-1] == '\n') {
			return cells, columns, length, nil
		}
		r.wasted += len(window)
	}
	cells, columns, _, err = r.splitCells(bytes.TrimSuffix(line, []byte{'\n'}))
	return cells, columns, len(line), err
}

func (r *records) skip(length int) {
	r.line += bytes.Count(r.text[:length], []byte{'\n'})
	r.text = r.text[length:]
}

func firstLine(text []byte) []byte {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[:i+1]
	}
	return text
}

// splitCells returns the trimmed cells of the record at the start of text, the column where each begins, and
// the record's length.
func (r *records) splitCells(text []byte) (cells []string, columns []int, length int, err error) {
	r.buffer.Reset(bytes.NewReader(text))
	c := csv.NewReader(r.buffer) // so that it needs no buffer of its own
	c.FieldsPerRecord = -1
	c.TrimLeadingSpace = true
	cells, err = c.Read()
	if err != nil {
		return nil, nil, 0, err
	}
	columns = make([]int, len(cells))
	for i := range cells {
		_, columns[i] = c.FieldPos(i)
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells, columns, int(c.InputOffset()), nil
}

func errorColumn(err error) int {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return p.Column
	}
	return 0
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
