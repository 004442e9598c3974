package dcgmtest

import (
	"fmt"
	"slices"
	"strconv"
)

// Value is the engine's value of a field of an entity.
type Value struct{ text string }

// Number is a constant value.
func Number(n float64) Value { return Value{"num " + strconv.FormatFloat(n, 'f', -1, 64)} }

// Ramp grows by slope per second, starting with base when the engine is created.
func Ramp(base, slope float64) Value {
	return Value{"num " + strconv.FormatFloat(base, 'f', -1, 64) + " " + strconv.FormatFloat(slope, 'f', -1, 64)}
}

// Text is the value of a text field.
func Text(s string) Value { return Value{"text " + s} }

// Status makes the value answer a code of DCGM.
func Status(code int) Value { return Value{"status " + strconv.Itoa(code)} }

// Omitted leaves the value out of replies.
func Omitted() Value { return Value{"omitted"} }

// Kinds of blanks.
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

// Set sets a field of an entity. A setting for one entity overrides settings for All and Everything.
func (e *Engine) Set(of Entity, field int, v Value) {
	e.change(func() error {
		e.sets = slices.DeleteFunc(e.sets, func(o setting) bool { return o.of == of && o.field == field })
		e.sets = append(e.sets, setting{of, field, v})
		return nil
	})
}

// Unset undoes Set.
func (e *Engine) Unset(of Entity, field int) {
	e.change(func() error {
		e.sets = slices.DeleteFunc(e.sets, func(o setting) bool { return o.of == of && o.field == field })
		return nil
	})
}

// Refuse makes watching a field answer a code, for the whole watch, and reading it from the driver, for the whole call;
// 0 removes the fault.
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

// Forget makes a field unknown to the engine: it refuses field groups with it.
func (e *Engine) Forget(field int) {
	e.change(func() error { e.unknown = append(e.unknown, field); return nil })
}
