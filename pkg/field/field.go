// Package field defines the readings of GPUs, and the lists that users select from them.
//
// The catalogue (catalogue.go, dcgm.csv) holds one Descriptor per readable quantity. A counters CSV picks from it and
// becomes a List: one Field per line, in file order. A List is immutable after Parse and may be shared between
// goroutines. The conditions (conditions.go) say which readings a faulty device has. The package imports no other
// package of this repository.
package field

import (
	"cmp"
	"strings"
	"time"
	"unicode"
)

// ID numbers a descriptor. Ids below FirstExporter are DCGM's field ids, the rest are ours. Descriptor.Vendor
// tells which vendor has the reading.
type ID uint16

// FirstExporter is our first id: dcgm-exporter's DCGM_EXP_* counters and their source readings.
const FirstExporter ID = 9000

// Profiling reports whether the reading needs the profiling hardware, which one program at a time can use
// (DCGM_FIELD_ID_IS_PROF_FIELD): from 1001 to the CPU fields, and two link fields, all named DCGM_FI_PROF_….
func (id ID) Profiling() bool { return id >= 1001 && id < 1100 || id == 1532 || id == 1533 }

// Kind is the type of value that the vendor's library returns.
type Kind uint8

// The kinds of value.
const (
	Int64 Kind = iota
	Double
	String // only usable as a label
	Binary // not usable in a page
	None   // a marker in DCGM's numbering, never has a value
)

// Level is the kind of thing that a value belongs to.
type Level uint8

// The levels.
const (
	Global          Level = iota // the node: driver version …
	GPU                          // a board, or what the driver calls a device
	Instance                     // a MIG GPU instance, a partition
	ComputeInstance              // a MIG compute instance
	Link                         // an NVLink or XGMI port, of a GPU or of a switch
	Switch                       // an NVSwitch
	CPU                          // a CPU socket (Grace)
	Core                         // a CPU core
	VGPU
	ConnectX
)

// Cost is the cost class of a reading. It sets the interval unless the CSV does.
type Cost uint8

// The cost classes.
const (
	EachTick Cost = iota // cheap: every tick
	Medium               // DCGM's health checks, some 60 fields of each GPU: every 5 s
	Slow                 // driver round trips, row remapping, ECC: every 30 s
	Static               // does not change while the driver runs: at discovery and every 5 minutes
)

// Interval returns how often readings of the class are due, given the intervals of EachTick and Slow, tick <= slow.
func (c Cost) Interval(tick, slow time.Duration) time.Duration {
	switch c {
	case Medium:
		return min(max(5*time.Second, tick), slow)
	case Slow:
		return slow
	case Static:
		return max(5*time.Minute, slow)
	}
	return tick
}

// Descriptor is one entry of the catalogue: a quantity that a collector can
// read. Descriptors are shared, immutable and compared by pointer or ID.
type Descriptor struct {
	ID      ID
	Name    string   // the name in dcgm-exporter's CSV files
	Aliases []string // other names for the same reading in the same unit
	Renamed string   // DCGM 4.7's name among Aliases; empty: it kept Name, or see Scaled
	Kind    Kind
	Level   Level  // finest level it is defined for; a GPU has it too, if that makes sense
	Unit    string // of the reading: "MHz", "MiB", "%", "ratio", "W", "mJ", "celsius", "bytes", "bytes/s", "ns", "" …
	Min     float64
	Max     float64 // plausible range of the reading, inclusive; a value outside is dropped and counted
	Cost    Cost
	Help    string
	// Vendor is the only vendor whose devices have the reading; nil: any vendor.
	Vendor *Vendor
	// Meanings are the roles of the reading's series.
	Meanings []Meaning
	// Total marks a number that only goes up while the driver runs.
	Total bool
	// Event marks a reading whose cell is NaN unless an event happened in this tick (an XID, say). Other
	// cells keep their last value.
	Event bool
	// Of and Factor mark an entry for another reading in a base unit, as newer DCGM versions number them: value = reading of Of
	// × Factor. A Field never holds such an entry: ByName returns the descriptor of Of, so that collectors read one quantity.
	Of     ID
	Factor float64
	// Scaled holds the ids of the entries whose Of is this one. The first has DCGM 4.7's name.
	Scaled []ID
}

// AskedOf reports whether devices of a level are asked for a reading: a GPU can have its instances' readings,
// and the first GPU of a guest has a vGPU's licence.
func (d *Descriptor) AskedOf(l Level) bool {
	switch l {
	case GPU:
		return d.Level <= ComputeInstance || d.ID == VGPULicence
	case Instance, ComputeInstance:
		return d.Level >= l && d.Level <= ComputeInstance
	}
	return d.Level == l
}

// Use returns the type for a field's row in a counters CSV: label for a text, counter for a number that only
// goes up, gauge for any other number. It returns false for readings that a row cannot show. A number as a
// label makes a new series with each value, and a histogram is the user's choice.
func (d *Descriptor) Use() (Type, bool) {
	switch d.Kind {
	case String:
		return Label, true
	case Int64, Double:
	default:
		return 0, false
	}
	if d.Total || d.ID >= FirstExporter && strings.HasSuffix(strings.ToLower(d.Name), "_total") {
		return Counter, true
	}
	return Gauge, true
}

// VGPULicence is a reading of virtual GPUs that a guest's GPU also has.
const VGPULicence ID = 526

// Type is the second cell of a CSV line.
type Type uint8

// The types of a CSV.
const (
	Gauge Type = iota
	Counter
	Histogram // samples of the field accumulated at the sampling rate
	Untyped
	Label // the value becomes a label on the other series of the same device
)

// Field is one usable line of a counters CSV.
type Field struct {
	Desc     *Descriptor   // the reading; several fields may share one
	Name     string        // metric or label name, as written in the file
	Type     Type          //
	Help     string        // as written, unescaped
	Scale    float64       // value of the series = reading × Scale; 1 for DCGM's own units
	Interval time.Duration // wanted sampling interval; 0 means the default of Desc.Cost
	Buckets  []float64     // Histogram only: ascending upper bounds in the series' unit, without +Inf
	Names    Names         // option names of the line; empty: as in the rest of the list
	Line     int           // line in the CSV file, from 1
}

// Reading is one quantity that collectors must supply for a List.
type Reading struct {
	Desc     *Descriptor
	Interval time.Duration // shortest interval of the fields; 0: the default of Desc.Cost
	// Default is true if some field has no interval. Then the default applies too, and the shorter interval satisfies all.
	Default bool
	// Histogram is true if some field is a histogram, which can use the driver's buffered samples.
	Histogram bool
}

// allTypes holds the names of the types, indexed by Type.
var allTypes = []string{Gauge: "gauge", Counter: "counter", Histogram: "histogram", Untyped: "untyped", Label: "label"}

const typeNames = "gauge, counter, histogram, untyped and label"

// String returns the type in its CSV form.
func (t Type) String() string { return nameOf(allTypes, int(t)) }

// The names of kinds, levels and cost classes in dcgm.csv and in the documentation.
var (
	kindNames  = []string{Int64: "int", Double: "double", String: "string", Binary: "binary", None: "none"}
	levelNames = []string{
		Global: "node", GPU: "gpu", Instance: "instance", ComputeInstance: "compute instance", Link: "link",
		Switch: "switch", CPU: "cpu", Core: "core", VGPU: "vgpu", ConnectX: "connectx",
	}
	costNames = []string{EachTick: "each tick", Medium: "medium", Slow: "slow", Static: "static"}
)

// String returns the kind in lower case.
func (k Kind) String() string { return nameOf(kindNames, int(k)) }

// String returns the level as the documentation names it.
func (l Level) String() string { return nameOf(levelNames, int(l)) }

// String returns the cost class as the documentation names it.
func (c Cost) String() string { return nameOf(costNames, int(c)) }

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown"
}

// NewName returns DCGM 4.7's name of the reading d, and the factor that converts the reading to that name's
// unit. Without another name it returns d's own, and 1.
func (d *Descriptor) NewName() (name string, scale float64) {
	if len(d.Scaled) > 0 {
		s, _ := ByID(d.Scaled[0])
		return s.Name, s.Factor
	}
	return cmp.Or(d.Renamed, d.Name), 1
}

// Printable replaces runes that would control a terminal. Names come from libraries and from exporters on other machines.
func Printable(r rune) rune {
	if unicode.In(r, unicode.Cc, unicode.Bidi_Control) && r != '\n' && r != '\t' {
		return '?'
	}
	return r
}
