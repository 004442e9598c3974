//go:build !linux || !cgo

package dl

import (
	"fmt"
	"unsafe"
)

// Library is one loaded shared library. This binary cannot load any.
type Library struct{}

// Open returns ErrUnavailable, wrapped.
func Open(names []string) (*Library, error) {
	return nil, fmt.Errorf("load library %q: %w", names[0], ErrUnavailable)
}

// Path returns "".
func (*Library) Path() string { return "" }

// Lookup returns ErrUnavailable, wrapped.
func (*Library) Lookup(symbol string) (unsafe.Pointer, error) {
	return nil, fmt.Errorf("look up %q: %w", symbol, ErrUnavailable)
}

// Has returns false.
func (*Library) Has(string) bool { return false }

// Close does nothing.
func (*Library) Close() error { return nil }
