//go:build linux && cgo

package nvml

import (
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Supplied says how the collector supplies a field, for the documentation. A field can
// be supplied in several ways, and by several readings: a device uses the first that it
// has.
type Supplied struct {
	Field   field.ID
	Kind    SuppliedKind
	Level   field.Level // of readings; what an instance has, its GPU has, too
	Terms   []SuppliedTerm
	Convert string  // what becomes of the terms; "" their sum
	Mul     float64 // and then × Mul ÷ Div; 0: neither
	Div     float64
	Metric  uint32 // of GPM
	PerLink bool   // Metric is that of link 0
	Label   collector.Label
	Driver  int    // branch of the first driver; 0 if all supported ones have it
	GPUs    string // which have it, as far as it is documented; "" all
	Note    string // what differs from DCGM, and why
}

// SuppliedTerm is one result of a call.
type SuppliedTerm struct {
	Symbols []string // names of the function, newest first
	Field   bool     // it is nvmlDeviceGetFieldValues; arguments are the field and its scope
	Args    []uint32
}

// SuppliedKind is what supplies a field.
type SuppliedKind int

// Kinds. XIDs, health and peers, which have a part each, are not among what Supplies lists.
const (
	SuppliedReading   SuppliedKind = iota // a call on each tick that is due
	SuppliedProfiling                     // GPM
	SuppliedLabel                         // a text, which only rows of type label can show
)

// Supplies lists what the collector supplies, by kind: readings by ascending field, in
// order of preference.
func Supplies() []Supplied {
	var out []Supplied
	for _, r := range allReadings() {
		s := Supplied{
			Field: r.id, Kind: SuppliedReading, Level: r.levelOf(), Convert: string(r.how), Mul: r.mul, Div: r.div,
			Label: r.label, Driver: sinceSupported(r.since), GPUs: r.boards, Note: r.note,
		}
		for _, t := range r.terms {
			s.Terms = append(s.Terms, t.supplied())
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b Supplied) int { return int(a.Field) - int(b.Field) })
	for _, p := range profilings() {
		out = append(out, Supplied{
			Field: p.id, Kind: SuppliedProfiling, Metric: p.metric, PerLink: p.perLink, Mul: p.scale, Driver: sinceSupported(p.since),
		})
	}
	for _, id := range textFacts() {
		out = append(out, Supplied{Field: id, Kind: SuppliedLabel})
	}
	return out
}

func (t term) supplied() SuppliedTerm {
	out := SuppliedTerm{Field: t.call == getFieldValues, Args: t.arg[:(*t.call)[0].args]}
	if out.Field {
		out.Args = t.arg[:2]
	}
	for _, g := range *t.call {
		out.Symbols = append(out.Symbols, g.symbol)
	}
	return out
}

// sinceSupported is the branch of a driver, 0 if it is not newer than the oldest.
func sinceSupported(branch int) int {
	if branch <= oldestDriver {
		return 0
	}
	return branch
}

// ProcessCall is a function that the collector nvml-processes calls.
type ProcessCall struct {
	What, Symbol string
	Driver       int // branch of the first driver; 0 if all supported ones have it
}

// ProcessCalls lists them. It is for the documentation.
func ProcessCalls() (out []ProcessCall) {
	for call, what := range [numAsks]string{
		listCompute: "processes with a compute context", listGraphics: "with a graphics context", listMPS: "clients of MPS", askBusy: "how busy each is",
	} {
		for _, g := range processCalls[call] {
			out = append(out, ProcessCall{what, g.symbol, sinceSupported(g.since)})
			what = "the same"
		}
	}
	return out
}

// Label fields with a text, by DCGM's ids. Those with a number come from the table
// of readings.
const (
	factDriver         field.ID = 1
	factNVML           field.ID = 2
	factName           field.ID = 50
	factBrand          field.ID = 51
	factSerial         field.ID = 53
	factUUID           field.ID = 54
	factOEMVersion     field.ID = 56
	factPCI            field.ID = 57
	factVisibleDevices field.ID = 68
	factECCVersion     field.ID = 80
	factPowerVersion   field.ID = 81
	factImageVersion   field.ID = 82
	factVBIOS          field.ID = 85
	factCluster        field.ID = 172
	factGUID           field.ID = 571
	factChassis        field.ID = 572
)

// textFacts are all of them.
func textFacts() []field.ID {
	return []field.ID{
		factDriver, factNVML, factName, factBrand, factSerial, factUUID, factOEMVersion, factPCI,
		factVisibleDevices, factECCVersion, factPowerVersion, factImageVersion, factVBIOS, factCluster, factGUID, factChassis,
	}
}

// Has returns a function that reports whether the collector supplies a field on some GPU and driver.
func Has() func(*field.Descriptor) bool {
	has := map[field.ID]bool{
		field.XIDErrors: true, field.XIDErrorsCount: true, field.XIDErrorsTotal: true,
		field.ClockEventsCount: true, field.ClockEventsTotal: true, field.GPUHealth: true, field.P2PStatus: true,
	}
	for _, s := range Supplies() {
		has[s.Field] = true
	}
	return func(d *field.Descriptor) bool { return has[d.ID] }
}
