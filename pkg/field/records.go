package field

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits of a file. What people write stays far below; what they mount by
// mistake does not.
const (
	maxFileBytes   = 4 << 20
	maxRecordBytes = 64 << 10
)

// record is one line of the CSV as gocsv decodes it from what records returns.
type record struct {
	Line      int    `csv:"line"`
	NameCol   int    `csv:"name_column"`
	Name      string `csv:"name"`
	TypeCol   int    `csv:"type_column"`
	Type      string `csv:"type"`
	HelpCol   int    `csv:"help_column"`
	Help      string `csv:"help"`
	OptionCol int    `csv:"options_column"`
	Options   string `csv:"options"`
}

// records splits a file into records for gocsv. It stands between the file and
// encoding/csv for what that package can not do: go on after a bad record,
// accept blanks before a comment, and say where each cell was. It implements
// gocsv.CSVReader.
type records struct {
	text     []byte // what is left
	line     int    // of text's begin, from 1
	problems *problems
	seen     int // records, good and bad
	scanned  int // bytes that were searched for quotes
}

// newRecords takes the text of a file, whose byte order mark is cut off.
func newRecords(text []byte, p *problems) *records {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		p.fail(1, 1, "the file is in UTF-16, save it as UTF-8")
		text = nil
	}
	return &records{text: bytes.TrimPrefix(text, []byte("\ufeff")), line: 1, problems: p}
}

// ReadAll returns all good records.
func (r *records) ReadAll() ([][]string, error) {
	var out [][]string
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
}

// Read returns the next good record in the layout of the type record.
func (r *records) Read() ([]string, error) {
	for len(r.text) > 0 {
		line := firstLine(r.text)
		if s := bytes.TrimSpace(line); len(s) == 0 || s[0] == '#' {
			r.skip(len(line), 1)
			continue
		}
		r.seen++
		if row := r.next(line); row != nil {
			return row, nil
		}
	}
	return nil, io.EOF
}

// next consumes the record that begins with line, and returns nil after having
// said what is wrong with it. A bad record costs its first line only, so that an
// open quote does not hide what follows.
func (r *records) next(line []byte) []string {
	at := r.line
	text, lines, length := r.gather(line)
	if len(text) > maxRecordBytes {
		r.skip(len(line), 1)
		r.problems.fail(at, 0, "the line is longer than %d bytes", maxRecordBytes)
		return nil
	}
	cells, columns, err := splitCells(text)
	if err != nil {
		if lines > 1 {
			_, _, err = splitCells(trimEnd(line)) // where the first line goes wrong
		}
		r.skip(len(line), 1)
		r.problems.fail(at, errorColumn(err), "%s", explain(err))
		return nil
	}
	r.skip(length, lines)
	if columns == nil {
		return nil
	}
	cells, columns = dropEmptyEnd(cells, columns)
	switch {
	case len(cells) < 3:
		r.problems.fail(at, 0, "%d cells instead of field, type, help", len(cells))
		return nil
	case len(cells) > 4:
		r.problems.fail(at, columns[4], "%d cells instead of field, type, help and options; a help text with a comma must be in double quotes", len(cells))
		return nil
	case len(cells) == 3:
		cells, columns = append(cells, ""), append(columns, 0)
	}
	row := make([]string, 0, 9)
	row = append(row, strconv.Itoa(at))
	for i, c := range cells {
		row = append(row, strconv.Itoa(columns[i]), c)
	}
	return row
}

// gather returns the text of the record that begins with line, without line
// ends other than those in quotes, and how many lines and bytes it takes. Text
// that no record can continue is not gathered, so a file takes linear time.
func (r *records) gather(line []byte) (text []byte, lines, length int) {
	text = trimEnd(line)
	q := unquoted.scan(text)
	r.scanned += len(text)
	if q != inQuotes {
		return bytes.TrimRight(text, " \t\r"), 1, len(line)
	}
	joined := bytes.Clone(text)
	lines, length = 1, len(line)
	for q == inQuotes && length < len(r.text) && len(joined) <= maxRecordBytes {
		line = firstLine(r.text[length:])
		lines++
		length += len(line)
		more := trimEnd(line)
		q = q.scan(more)
		r.scanned += len(more)
		joined = append(append(joined, '\n'), more...)
	}
	if q != unquoted || len(joined) > maxRecordBytes {
		return text, 1, len(text) // what is wrong is in the first line
	}
	return bytes.TrimRight(joined, " \t\r"), lines, length
}

func (r *records) skip(length, lines int) {
	r.text = r.text[length:]
	r.line += lines
}

// firstLine returns text up to and with its first line end.
func firstLine(text []byte) []byte {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[:i+1]
	}
	return text
}

// trimEnd cuts the line end. All carriage returns go, so that no value holds
// one before a line feed: encoding/csv would drop it.
func trimEnd(line []byte) []byte { return bytes.TrimRight(line, "\r\n") }

// quoting is a state of reading a record.
type quoting uint8

const (
	unquoted quoting = iota
	inQuotes         // within a quoted cell
	broken           // a quote is where encoding/csv takes none
)

// scan returns the state after line.
func (q quoting) scan(line []byte) quoting {
	begin := q == unquoted // of a cell
	for i := 0; i < len(line); i++ {
		c := line[i]
		next := byte(',')
		if i+1 < len(line) {
			next = line[i+1]
		}
		switch {
		case q == inQuotes && c == '"' && next == '"':
			i++
		case q == inQuotes && c == '"':
			if q = unquoted; next != ',' && len(bytes.TrimRight(line[i+1:], " \t\r")) > 0 {
				return broken
			}
		case q == inQuotes:
		case c == ',':
			begin = true
		case c == '"' && !begin:
			return broken
		case c == '"':
			q, begin = inQuotes, false
		case c != ' ' && c != '\t':
			begin = false
		}
	}
	return q
}

// splitCells returns the trimmed cells of one record and the column where each
// begins. Both are nil for a record of blanks.
func splitCells(text []byte) (cells []string, columns []int, err error) {
	c := csv.NewReader(bytes.NewReader(text))
	c.FieldsPerRecord = -1
	c.TrimLeadingSpace = true
	cells, err = c.Read()
	if errors.Is(err, io.EOF) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	columns = make([]int, len(cells))
	for i := range cells {
		_, columns[i] = c.FieldPos(i)
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells, columns, nil
}

// dropEmptyEnd cuts the empty cells after the third that spreadsheets append.
func dropEmptyEnd(cells []string, columns []int) ([]string, []int) {
	n := len(cells)
	for n > 3 && cells[n-1] == "" {
		n--
	}
	return cells[:n], columns[:n]
}

// errorColumn is for errors of one line.
func errorColumn(err error) int {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return p.Column
	}
	return 0
}

// explain says in the user's terms what encoding/csv found.
func explain(err error) string {
	switch {
	case errors.Is(err, csv.ErrBareQuote):
		return `a double quote within a cell; put the whole cell in double quotes and double those within`
	case errors.Is(err, csv.ErrQuote):
		return `a quoted cell that does not end before the next comma; double the double quotes within`
	}
	return fmt.Sprintf("read record: %v", err)
}
