package field

import "slices"

// allTypes are the names of the types, indexed by Type.
var allTypes = []string{Gauge: "gauge", Counter: "counter", Histogram: "histogram", Untyped: "untyped", Label: "label"}

const typeNames = "gauge, counter, histogram, untyped and label"

// String returns the type as it is written in the CSV.
func (t Type) String() string { return nameOf(allTypes, int(t)) }

func typeByName(name string) (Type, bool) {
	i := slices.Index(allTypes, name)
	return Type(max(i, 0)), i >= 0
}

// String returns the kind in small letters.
func (k Kind) String() string {
	return nameOf([]string{Int64: "int", Double: "double", String: "string", Binary: "binary", Timestamp: "timestamp", None: "none"}, int(k))
}

// String returns the level as the documentation names it.
func (l Level) String() string {
	return nameOf([]string{
		Global: "node", GPU: "gpu", Instance: "instance", ComputeInstance: "compute instance", Link: "link",
		Switch: "switch", CPU: "cpu", Core: "core", VGPU: "vgpu", ConnectX: "connectx",
	}, int(l))
}

// String returns the cost class as the documentation names it.
func (c Cost) String() string {
	return nameOf([]string{EachTick: "each tick", Slow: "slow", Static: "static"}, int(c))
}

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown"
}
