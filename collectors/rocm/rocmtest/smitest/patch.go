package smitest

import (
	"bytes"
	"fmt"
	"strings"
)

// hide renames a symbol in the text of a library, so that the loader no longer finds it.
func hide(text []byte, symbol string) ([]byte, error) {
	hidden := []byte(strings.ToUpper(symbol[:4]) + symbol[4:])
	return replace(text, []byte("\x00"+symbol+"\x00"), append(append([]byte{0}, hidden...), 0))
}

// replace replaces each old by next, which must have the same length.
func replace(text, old, next []byte) ([]byte, error) {
	if len(old) != len(next) {
		return nil, fmt.Errorf("replace %q by %q: lengths differ", old, next)
	}
	if !bytes.Contains(text, old) {
		return nil, fmt.Errorf("replace %q: the library does not contain it", old)
	}
	return bytes.ReplaceAll(text, old, next), nil
}
