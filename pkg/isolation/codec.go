package isolation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Messages are sequences of unsigned varints, 8-byte floats and strings with
// their length before them. Lists begin with their length. A reader checks each
// length against a bound, and against the bytes that are left, before it takes
// memory for it.

// errMessage is what a peer gone mad causes.
var errMessage = errors.New("bad message")

// encoder appends to a payload.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64)   { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)     { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) float(v float64) { e.b = binary.LittleEndian.AppendUint64(e.b, math.Float64bits(v)) }

func (e *encoder) bool(v bool) {
	if v {
		e.uint(1)
	} else {
		e.uint(0)
	}
}

func (e *encoder) bytes(v []byte) {
	e.uint(uint64(len(v)))
	e.b = append(e.b, v...)
}

// text cuts what is longer than the reader takes and mends what is no UTF-8, so
// that a strange name costs its end, not the child.
func (e *encoder) text(s string, most int) {
	if len(s) > most {
		s = s[:most]
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "?")
	}
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

// decoder reads a payload. After the first error it reads zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errMessage, fmt.Sprintf(format, args...))
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("a number is cut off")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("a number is cut off")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) float() float64 {
	if len(d.b) < 8 {
		d.fail("a number is cut off")
		return 0
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(d.b))
	d.b = d.b[8:]
	return v
}

func (d *decoder) bool() bool { return d.below(2) == 1 }

// below reads a number that must be less than limit.
func (d *decoder) below(limit uint64) uint64 {
	v := d.uint()
	if d.err == nil && v >= limit {
		d.fail("%d is not below %d", v, limit)
	}
	if d.err != nil {
		return 0
	}
	return v
}

// count reads the length of a list whose items take at least size bytes each.
func (d *decoder) count(most, size int) int {
	n := d.uint()
	if d.err == nil && (n > uint64(most) || n > uint64(len(d.b)/size)) {
		d.fail("a list of %d items, most are %d, in %d bytes", n, most, len(d.b))
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

// bytes returns a part of the payload.
func (d *decoder) bytes(most int) []byte {
	n := d.count(most, 1)
	if d.err != nil {
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) text(most int) string {
	b := d.bytes(most)
	if !utf8.Valid(b) {
		d.fail("a text is no UTF-8")
		return ""
	}
	return string(b)
}

// end returns the first error. Bytes that are left over are one.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) != 0 {
		d.fail("%d bytes too many", len(d.b))
	}
	return d.err
}
