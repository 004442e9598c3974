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

	// Any means all kinds or all numbers in an Entity.
	Any = -1
)

// Entity is an object with values in the engine.
type Entity struct {
	Kind Kind
	ID   int64
}

// Everything returns all entities of all kinds, for values, refusals and freezes.
func Everything() Entity { return Entity{Any, Any} }

// All returns all entities of a kind.
func All(k Kind) Entity { return Entity{k, Any} }

// GPU returns the GPU with DCGM's number n.
func GPU(n int) Entity { return Entity{KindGPU, int64(n)} }

// Switch returns the NVSwitch with DCGM's number n.
func Switch(n int) Entity { return Entity{KindSwitch, int64(n)} }

// Instance returns the GPU instance with DCGM's number n.
func Instance(n int) Entity { return Entity{KindInstance, int64(n)} }

// Compute returns the compute instance with DCGM's number n.
func Compute(n int) Entity { return Entity{KindCompute, int64(n)} }

// CPU returns the CPU with DCGM's number n.
func CPU(n int) Entity { return Entity{KindCPU, int64(n)} }

// ConnectX returns the network adapter with DCGM's number n.
func ConnectX(n int) Entity { return Entity{KindConnectX, int64(n)} }

// Link returns link n of a GPU or a switch, counted from 0, with its ID of DCGM 4.3
// and newer (dcgm_link_t in dcgm_structs.h).
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

// Number returns a constant value.
func Number(n float64) Value { return Value{"num " + strconv.FormatFloat(n, 'f', -1, 64)} }

// Ramp returns a value that is base when the engine is created and grows by slope per second.
func Ramp(base, slope float64) Value {
	return Value{Number(base).text + " " + strconv.FormatFloat(slope, 'f', -1, 64)}
}

// Text returns the value of a text field.
func Text(s string) Value { return Value{"text " + s} }

// Status returns a value without data whose status is a code of DCGM.
func Status(code int) Value { return Value{"status " + strconv.Itoa(code)} }

// Omitted returns a value that is missing from replies.
func Omitted() Value { return Value{"omitted"} }

// Kinds of blanks.
const (
	Null = iota
	NotFound
	NotSupported
	NotPermitted
)

// Blank returns one of DCGM's blanks, encoded for the field's type.
func Blank(which int) Value { return Value{"blank " + strconv.Itoa(which)} }
