package dcgmtest

import (
	"fmt"
	"slices"
	"strconv"
)

// Value is what the engine has of a field of an entity.
type Value struct{ text string }

// Number is a value that stands.
func Number(n float64) Value { return Value{"num " + strconv.FormatFloat(n, 'f', -1, 64)} }

// Ramp grows by slope a second, from base at the engine's making.
func Ramp(base, slope float64) Value {
	return Value{"num " + strconv.FormatFloat(base, 'f', -1, 64) + " " + strconv.FormatFloat(slope, 'f', -1, 64)}
}

// Text is a value of a field of text.
func Text(s string) Value { return Value{"text " + s} }

// Status makes the value answer a code of DCGM.
func Status(code int) Value { return Value{"status " + strconv.Itoa(code)} }

// Omitted leaves the value out of replies.
func Omitted() Value { return Value{"omitted"} }

// Which blank a value is.
const (
	Null = iota
	NotFound
	NotSupported
	NotPermitted
)

// Blank is one of DCGM's blanks, in the spelling of the field's type.
func Blank(which int) Value { return Value{"blank " + strconv.Itoa(which)} }

func (e Entity) String() string {
	word := func(n int64) string {
		if n == Any {
			return "*"
		}
		return strconv.FormatInt(n, 10)
	}
	return word(int64(e.Kind)) + " " + word(e.ID)
}

type setting struct {
	of    Entity
	field int
	value Value
}

func (s setting) line() string { return fmt.Sprintf("value %s %d %s", s.of, s.field, s.value.text) }

// Set changes what a field of an entity is. What is said of one entity goes before
// what is said of All and of Everything.
func (e *Engine) Set(of Entity, field int, v Value) {
	e.change(func() error {
		e.sets = slices.DeleteFunc(e.sets, func(o setting) bool { return o.of == of && o.field == field })
		e.sets = append(e.sets, setting{of, field, v})
		return nil
	})
}

// Unset takes back what Set has changed.
func (e *Engine) Unset(of Entity, field int) {
	e.change(func() error {
		e.sets = slices.DeleteFunc(e.sets, func(o setting) bool { return o.of == of && o.field == field })
		return nil
	})
}

// Refuse makes watching a field answer a code, for the whole of the watch, and reading
// it from the driver, for the whole of the call; 0 takes it back.
func (e *Engine) Refuse(of Entity, field, code int) {
	e.change(func() error {
		e.refused = slices.DeleteFunc(e.refused, func(o refusal) bool { return o.of == of && o.field == field })
		if code != 0 {
			e.refused = append(e.refused, refusal{of, field, code})
		}
		return nil
	})
}

type refusal struct {
	of          Entity
	field, code int
}

// Forget makes a field unknown to the engine: group of fields with it are refused.
func (e *Engine) Forget(field int) {
	e.change(func() error { e.unknown = append(e.unknown, field); return nil })
}
