// Package dl opens shared libraries at run time, so that no vendor library is needed to build or start the exporter.
// It is the only generic cgo; each vendor's functions are called in that vendor's collector.
//
// A Library and its methods may be used by several goroutines. A pointer from Lookup is valid until Close, and
// calling it after Close crashes the process: the caller must know when its last call has returned.
//
// Without cgo, or on a system other than Linux, everything compiles and Open returns ErrUnavailable.
package dl

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors that callers test for.
var (
	// ErrUnavailable is returned by Open in a binary that cannot load libraries.
	ErrUnavailable = errors.New("loading libraries needs a linux binary built with cgo")
	// ErrNoSymbol wraps the loader's message when Lookup finds no such symbol.
	ErrNoSymbol = errors.New("symbol not found")
	// ErrClosed is returned by Lookup after Close.
	ErrClosed = errors.New("library is closed")
)

// Attempt is one name that Open tried, with the loader's message.
type Attempt struct{ Name, Text string }

// Absent reports whether the loader found no file of that name. Otherwise there is a file that it cannot use: another
// architecture, a missing dependency, no permission.
//
// The dynamic loader returns only text, so Absent compares glibc's message. It begins with the missing file's name,
// which for a missing dependency differs from the requested name.
func (a Attempt) Absent() bool {
	return strings.HasPrefix(a.Text, a.Name+": cannot open shared object file: No such file or directory")
}

// OpenError lists every name that Open tried, in order.
type OpenError struct{ Attempts []Attempt }

func (e *OpenError) Error() string {
	var b strings.Builder
	b.WriteString("load library: ")
	for i, a := range e.Attempts {
		if i > 0 {
			b.WriteString("; ")
		}
		if !strings.HasPrefix(a.Text, a.Name) {
			fmt.Fprintf(&b, "%s: ", a.Name)
		}
		b.WriteString(a.Text)
	}
	return b.String()
}

// Absent reports whether no name had a file.
func (e *OpenError) Absent() bool {
	return !slices.ContainsFunc(e.Attempts, func(a Attempt) bool { return !a.Absent() })
}
