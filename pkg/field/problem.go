package field

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Severity tells whether a Problem makes the file unusable.
type Severity uint8

// The severities.
const (
	Warning Severity = iota // the line is left out or read with a guess; the rest is good
	Error                   // the file gives no List
)

// String returns "warning" or "error".
func (s Severity) String() string { return [...]string{Warning: "warning", Error: "error"}[s] }

// Problem is one remark about a counters CSV.
type Problem struct { //nolint:errname // a warning is not an error
	File     string // as in ParseOptions
	Line     int    // from 1; 0 if the remark is about the whole file
	Column   int    // in bytes, from 1; 0 if the remark is about the whole file or line
	Severity Severity
	Message  string
}

// Error returns the problem in a compiler's form: file:line:column: severity: message, without unknown parts.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:", p.Line)
		if p.Column > 0 {
			fmt.Fprintf(&b, "%d:", p.Column)
		}
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	fmt.Fprintf(&b, "%s: %s", p.Severity, p.Message)
	return b.String()
}

// maxProblems bounds the warnings of one file, and its errors: a file that is not a CSV is wrong in every line.
const maxProblems = 1000

// problems collects the remarks about one file.
type problems struct {
	file  string
	list  []Problem
	count [Error + 1]int // by severity
}

func (p *problems) add(s Severity, line, column int, format string, args ...any) {
	if p.count[s]++; p.count[s] <= maxProblems {
		p.list = append(p.list, Problem{File: p.file, Line: line, Column: column, Severity: s, Message: fmt.Sprintf(format, args...)})
	}
}

func (p *problems) warn(line, column int, format string, args ...any) {
	p.add(Warning, line, column, format, args...)
}

func (p *problems) fail(line, column int, format string, args ...any) {
	p.add(Error, line, column, format, args...)
}

// sorted returns the remarks in file order; remarks about the whole file come last.
func (p *problems) sorted() []Problem {
	slices.SortStableFunc(p.list, func(a, b Problem) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if n := p.count[Warning] + p.count[Error] - len(p.list); n > 0 {
		return append(p.list, Problem{File: p.file, Severity: Warning, Message: fmt.Sprintf("%d more problems are not listed", n)})
	}
	return p.list
}

// err returns nil if no remark is an error, else an error with their number that wraps the first.
func (p *problems) err() error {
	if p.count[Error] == 0 {
		return nil
	}
	i := slices.IndexFunc(p.list, func(q Problem) bool { return q.Severity == Error })
	if p.count[Error] == 1 {
		return fmt.Errorf("parse counters: %w", p.list[i])
	}
	return fmt.Errorf("parse counters: %d errors, the first: %w", p.count[Error], p.list[i])
}

// quoted is a quoted text of the file for a message, cut if it is long.
type quoted string

// String returns the text in double quotes. It escapes everything that is not printable.
func (q quoted) String() string {
	const most = 100
	if len(q) <= most {
		return strconv.Quote(string(q))
	}
	s := strconv.Quote(strings.ToValidUTF8(string(q[:most]), ""))
	return s[:len(s)-1] + `…"`
}
