package dcgmtest

import "strconv"

// Kind is DCGM's dcgm_field_entity_group_t.
type Kind int

// Kinds of entities.
const (
	KindNone Kind = iota // the node
	KindGPU
	KindVGPU
	KindSwitch
	KindInstance
	KindCompute
	KindLink
	KindCPU
	KindCore
	KindConnectX

	// Any stands for all kinds in an Entity, and for all numbers.
	Any = -1
)

// Entity is an object with values in the engine.
type Entity struct {
	Kind Kind
	ID   int64
}

// Everything is all entities of all kinds, for values, refusals and freezes.
func Everything() Entity { return Entity{Any, Any} }

// All is all entities of a kind.
func All(k Kind) Entity { return Entity{k, Any} }

// GPU is a GPU by DCGM's number.
func GPU(n int) Entity { return Entity{KindGPU, int64(n)} }

// Switch is an NVSwitch by DCGM's number.
func Switch(n int) Entity { return Entity{KindSwitch, int64(n)} }

// Instance is a GPU instance by DCGM's number.
func Instance(n int) Entity { return Entity{KindInstance, int64(n)} }

// Compute is a compute instance by DCGM's number.
func Compute(n int) Entity { return Entity{KindCompute, int64(n)} }

// CPU is a CPU by DCGM's number.
func CPU(n int) Entity { return Entity{KindCPU, int64(n)} }

// ConnectX is a network adapter by DCGM's number.
func ConnectX(n int) Entity { return Entity{KindConnectX, int64(n)} }

// Link is a link of a GPU or a switch, counted from 0. It is numbered as DCGM does
// since 4.3 (dcgm_link_t of dcgm_structs.h).
func Link(owner Entity, n int) Entity {
	return Entity{KindLink, int64(owner.Kind) | int64(n)<<8 | owner.ID<<24}
}

// String returns the entity's words in the script.
func (e Entity) String() string {
	word := func(n int64) string {
		if n == Any {
			return "*"
		}
		return strconv.FormatInt(n, 10)
	}
	return word(int64(e.Kind)) + " " + word(e.ID)
}

// Value is the engine's value of a field of an entity.
type Value struct{ text string }

// Number is a constant value.
func Number(n float64) Value { return Value{"num " + strconv.FormatFloat(n, 'f', -1, 64)} }

// Ramp grows by slope per second, starting with base when the engine is created.
func Ramp(base, slope float64) Value {
	return Value{Number(base).text + " " + strconv.FormatFloat(slope, 'f', -1, 64)}
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
