package dcgmtest

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

// GPU is a GPU by its number.
func GPU(n int) Entity { return Entity{KindGPU, int64(n)} }

// Switch is an NVSwitch by its number.
func Switch(n int) Entity { return Entity{KindSwitch, int64(n)} }

// Instance is a GPU instance by DCGM's number.
func Instance(n int) Entity { return Entity{KindInstance, int64(n)} }

// Compute is a compute instance by DCGM's number.
func Compute(n int) Entity { return Entity{KindCompute, int64(n)} }

// CPU is a CPU by its number.
func CPU(n int) Entity { return Entity{KindCPU, int64(n)} }

// Core is a core of a CPU by its number on the node.
func Core(n int) Entity { return Entity{KindCore, int64(n)} }

// ConnectX is a network adapter by its number.
func ConnectX(n int) Entity { return Entity{KindConnectX, int64(n)} }

// Link is a link of a GPU or a switch, counted from 0. It is numbered as DCGM does
// since 4.3 (dcgm_link_t of dcgm_structs.h).
func Link(owner Entity, n int) Entity {
	return Entity{KindLink, int64(owner.Kind) | int64(n)<<8 | owner.ID<<24}
}
