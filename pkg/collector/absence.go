package collector

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// Reasons for missing values. If the reason is known when a collector binds its list, it is an Absence, and the device
// has no column for the field. If the reason changes from row to row, it is in the cell: a blank is a NaN whose payload
// bits identify one of the source's explanations. So a row needs no further memory, and reasons travel with values to
// readers in another process. A NaN without such bits is a blank without a known reason.

// Reason says why a field has no value. It is from a short fixed list, so it can be a label.
type Reason string

// The reasons.
const (
	ReasonUnsupported    Reason = "unsupported"     // the device, or its driver, does not have the field
	ReasonNoSymbol       Reason = "no_symbol"       // this version of the driver or library lacks the function or field
	ReasonPermission     Reason = "permission"      // this process, or the host engine, may not read the field
	ReasonOtherCollector Reason = "other_collector" // only another collector supplies the field
	ReasonBlank          Reason = "blank"           // the library has no value now
	ReasonImplausible    Reason = "implausible"     // the value is outside of the field's plausible range
	ReasonNotDue         Reason = "not_due"         // not read yet, or read only once where two readings are needed
	ReasonNotListed      Reason = "not_listed"      // the current field list does not have the field
	ReasonDeviceLost     Reason = "device_lost"
	ReasonDeviceStalled  Reason = "device_stalled"
	ReasonDeviceAbsent   Reason = "device_absent"
	ReasonReleased       Reason = "released" // an operator has released the collector
	ReasonUnknown        Reason = "unknown"
)

// Valid reports whether r is in the list.
func (r Reason) Valid() bool {
	switch r {
	case ReasonUnsupported, ReasonNoSymbol, ReasonPermission, ReasonOtherCollector, ReasonBlank, ReasonImplausible, ReasonNotDue,
		ReasonNotListed, ReasonDeviceLost, ReasonDeviceStalled, ReasonDeviceAbsent, ReasonReleased, ReasonUnknown:
		return true
	}
	return false
}

// Explanation is a reason, for programs and for people.
type Explanation struct {
	Reason Reason
	Detail string // for people: the failed attempt and the remedy
}

// ForeignReading explains a reading that only devices of other vendors than v have. It returns false for other readings.
func ForeignReading(d *field.Descriptor, v *field.Vendor) (Explanation, bool) {
	if d.Vendor == nil || d.Vendor == v {
		return Explanation{}, false
	}
	return Explanation{Reason: ReasonUnsupported, Detail: "only " + d.Vendor.Name + " GPUs have it"}, true
}

// Absence says why a device has no column for a reading.
type Absence struct {
	Device      int // index into Source.Devices
	Field       field.ID
	Explanation uint16 // index into Explainer.Explanations
}

// MarshalJSON writes one number, because a view can have very many.
func (a Absence) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, int64(a.Device)<<32|int64(a.Field)<<16|int64(a.Explanation), 10), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Absence) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseInt(string(b), 10, 64)
	*a = Absence{int(n >> 32), field.ID(n >> 16), uint16(n)}
	return err
}

// Explainer is an optional ability of a Source. It explains each reading of the list that a device of the source could
// have (field.Descriptor.AskedOf) but has no column for. Both results are fixed for the life of the source and shared,
// like Devices.
type Explainer interface {
	// Explanations are referenced by Absent and by blank cells (Absences.Blank).
	Explanations() []Explanation
	// Absent has at most one entry per device and field, and none for a field with a column.
	Absent() []Absence
}

// Limits on one source's explanations.
const (
	MaxExplanations = 1024
	MaxDetail       = 256 // bytes
)

// Absences collects a source's explanations. One goroutine fills it while the source is bound, with Note and Blank, and
// calls Complete at the end. A source that embeds it is an Explainer. The zero Absences is empty.
type Absences struct {
	explanations []Explanation
	absent       []Absence

	// Used while the source is bound.
	numbers map[Explanation]uint16
	noted   map[reading]Explanation
}

// reading is a reading of a device.
type reading struct {
	device int
	field  field.ID
}

// Explanations implements Explainer.
func (a *Absences) Explanations() []Explanation { return a.explanations }

// Absent implements Explainer.
func (a *Absences) Absent() []Absence { return a.absent }

// Note records why one way of reading a field does not work. If no other way works, the field gets the first noted
// reason, with the details of all.
func (a *Absences) Note(device int, id field.ID, e Explanation) {
	if a.noted == nil {
		a.noted = make(map[reading]Explanation)
	}
	at := reading{device, id}
	old, known := a.noted[at]
	switch {
	case !known:
		a.noted[at] = e
	case !strings.Contains(old.Detail, e.Detail):
		old.Detail += "; " + e.Detail
		a.noted[at] = old
	}
}

// Blank returns a NaN that carries a reason.
func (a *Absences) Blank(reason Reason, detail string) float64 {
	return blank(a.number(Explanation{reason, detail}), 0)
}

// Complete ends the binding of a source. For each reading that a device could have but has no column for, it uses the
// noted reason, or else the result of rest.
func (a *Absences) Complete(devices []Device, columns []Column, readings []field.Reading, rest func(device int, d *field.Descriptor) Explanation) {
	has := make(map[reading]bool, len(columns))
	for _, c := range columns {
		has[reading{c.Device, c.Field}] = true
	}
	for i := range devices {
		for _, r := range readings {
			at := reading{i, r.Desc.ID}
			if has[at] || !r.Desc.AskedOf(devices[i].Level) {
				continue
			}
			e, noted := a.noted[at]
			if !noted {
				e = rest(i, r.Desc)
			}
			a.absent = append(a.absent, Absence{Device: i, Field: at.field, Explanation: a.number(e)})
		}
	}
	a.absent = slices.Clip(a.absent)
	a.numbers, a.noted = nil, nil
}

// number returns the index of an explanation, which it adds if needed. Above the limit, explanations share the last one.
func (a *Absences) number(e Explanation) uint16 {
	if len(e.Detail) > MaxDetail {
		e.Detail = strings.ToValidUTF8(e.Detail[:MaxDetail], "")
	}
	if _, known := a.numbers[e]; !known && len(a.explanations) >= MaxExplanations-1 {
		e = Explanation{Reason: ReasonUnknown, Detail: "there are more explanations than a source may have"}
	}
	n, known := a.numbers[e]
	if known {
		return n
	}
	if a.numbers == nil {
		a.numbers = make(map[Explanation]uint16)
	}
	n = uint16(len(a.explanations))
	a.explanations, a.numbers[e] = append(a.explanations, e), n
	return n
}

// A blank consists of the bits of a quiet NaN, a mark that neither math.NaN nor processors produce, a code, and bits
// whose meaning depends on the code.
const (
	blankMark = 0x7ffd_0000_0000_0000
	markBits  = 0xffff_0000_0000_0000
	codeShift = 32

	codeImplausible = 0xffff // bits of the value as a float32
	codeNotSampled  = 0xfffe
)

func blank(code uint16, bits uint32) float64 {
	return math.Float64frombits(blankMark | uint64(code)<<codeShift | uint64(bits))
}

// NotSampled returns the blank of a cell that has not been read yet.
func NotSampled() float64 { return blank(codeNotSampled, 0) }

// Dropped returns the blank of a cell whose value v is outside its field's plausible range.
func Dropped(v float64) float64 { return blank(codeImplausible, math.Float32bits(float32(v))) }

// Blank is the decoded reason of a blank cell.
type Blank struct {
	NotSampled  bool
	Implausible bool
	Value       float64 // the implausible value, to seven digits
	Explanation int     // index into Explainer.Explanations, or -1
}

// BlankOf decodes a blank cell. v must be NaN.
func BlankOf(v float64) Blank {
	b := Blank{Explanation: -1}
	bits := math.Float64bits(v)
	if bits&markBits != blankMark {
		return b
	}
	switch code := uint16(bits >> codeShift); code {
	case codeImplausible:
		b.Implausible, b.Value = true, float64(math.Float32frombits(uint32(bits)))
	case codeNotSampled:
		b.NotSampled = true
	default:
		b.Explanation = int(code)
	}
	return b
}
