//go:build !linux || !cgo

package dl

import (
	"errors"
	"testing"
)

func TestUnavailable(t *testing.T) {
	l, err := Open([]string{"libc.so.6"})
	if l != nil || !errors.Is(err, ErrUnavailable) {
		t.Errorf("Open = %v, %v, want ErrUnavailable", l, err)
	}
	var none Library
	if p, err := none.Lookup("cos"); p != nil || !errors.Is(err, ErrUnavailable) {
		t.Errorf("Lookup = %v, %v, want ErrUnavailable", p, err)
	}
	if none.Has("cos") || none.Path() != "" || none.Close() != nil {
		t.Error("an absent library has a symbol, a path or an error from Close")
	}
}
