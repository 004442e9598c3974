//go:build linux && cgo

package nvml

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// Supplied says how the collector supplies a field. Texts are Markdown.
type Supplied struct {
	Field      field.ID
	Kind       SuppliedKind
	Levels     string // which devices have it, of readings
	From       string // the calls, or of profiling the metric of GPM
	Conversion string // from NVML's value to the field's unit; "" none
	Driver     int    // branch of the first driver; 0 if all supported ones have it
	GPUs       string // which have it, as far as it is documented; "" all
	Note       string // what differs from DCGM, and why
}

// SuppliedKind is what supplies a field.
type SuppliedKind int

// A field can be supplied in several ways, and by several readings: a device uses the first
// that it has.
const (
	SuppliedReading   SuppliedKind = iota // a call on each tick that is due
	SuppliedProfiling                     // GPM
	SuppliedOther                         // events, health, peers
	SuppliedLabel                         // a text, which only rows of type label can show
)

// Supplies lists what the collector supplies, by kind: readings by ascending field, in
// order of preference. It is for the documentation.
func Supplies() []Supplied {
	var out []Supplied
	for _, r := range allReadings() {
		d, _ := field.ByID(r.id)
		out = append(out, Supplied{
			Field: r.id, Kind: SuppliedReading, Levels: r.levels(), From: r.callText(), Conversion: r.conversion(d),
			Driver: sinceSupported(r.since), GPUs: r.boards, Note: r.note,
		})
	}
	slices.SortStableFunc(out, func(a, b Supplied) int { return int(a.Field) - int(b.Field) })
	for _, p := range profilings() {
		s := Supplied{Field: p.id, Kind: SuppliedProfiling, From: strconv.Itoa(int(p.metric)), Driver: sinceSupported(p.since)}
		if p.perLink {
			s.From += " …"
		}
		if p.scale != 1 {
			s.Conversion = "× " + plain(p.scale)
		}
		out = append(out, s)
	}
	out = append(out, others()...)
	for _, id := range textFacts() {
		out = append(out, Supplied{Field: id, Kind: SuppliedLabel})
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

// others are the fields that have a part to themselves.
func others() []Supplied {
	const events = "`nvmlEventSetWait_v2`"
	all := []Supplied{
		{Field: field.XIDErrors, From: events + ": the last XID"},
		{Field: field.XIDErrorsCount, From: events + ": XIDs in a window"},
		{Field: field.XIDErrorsTotal, From: events + ": XIDs since start"},
		{Field: field.ClockEventsCount, From: "`DCGM_FI_DEV_CLOCKS_EVENT_REASONS` of every sample"},
		{Field: field.ClockEventsTotal, From: "`DCGM_FI_DEV_CLOCKS_EVENT_REASONS` of every sample"},
		{Field: field.GPUHealth, From: "readings above, XIDs and `nvmlDeviceGetNvLinkState`: what NVML knows of DCGM's watches"},
		{Field: field.P2PStatus, From: "`nvmlDeviceGetP2PStatus`", GPUs: "with NVLink"},
	}
	for i := range all {
		all[i].Kind = SuppliedOther
	}
	return all
}

// Missing is why a number of the catalogue is not supplied, "" if it is or is no
// number.
func Missing(d *field.Descriptor) string {
	_, profiled := profilingOf(d.ID)
	elsewhere := slices.ContainsFunc(others(), func(o Supplied) bool { return o.Field == d.ID })
	if d.Kind != field.Int64 && d.Kind != field.Double || d.Factor != 0 || len(byField()[d.ID]) > 0 || profiled || elsewhere {
		return ""
	}
	for _, r := range missingReasons() {
		if slices.ContainsFunc(r.words, func(w string) bool { return strings.Contains(d.Name, w) }) {
			return r.reason
		}
	}
	panic("nvml: no call and no reason for " + d.Name)
}

// MissingReasons are what Missing returns, in the order of the documentation.
func MissingReasons() (out []string) {
	for _, r := range missingReasons() {
		out = append(out, r.reason)
	}
	return out
}

type missingReason struct {
	words  []string // of the names
	reason string
}

func missingReasons() []missingReason {
	return []missingReason{
		{[]string{"P2P_NVLINK_STATUS"}, "a mask by DCGM's numbers of GPUs; `DCGM_EXP_P2P_STATUS` has a series for each peer"},
		{[]string{"GPU_NVLINK_ERRORS"}, "DCGM makes it of XIDs; `DCGM_EXP_XID_ERRORS_TOTAL` counts each"},
		{[]string{"NVSWITCH"}, "NVML knows no NVSwitch; DCGM asks the fabric manager's library"},
		{[]string{"_PPRM_", "_PPCNT_"}, "read from the port's registers, for which NVML wants root"},
		{[]string{"_DIAG_"}, "results of DCGM's diagnostics"},
		{[]string{"DEV_CPU_", "SYSIO_", "MODULE_"}, "of Grace CPUs, from the kernel"},
		{[]string{"CONNECTX"}, "of network adapters"},
		{[]string{"IMEX"}, "of the IMEX daemon"},
		{[]string{"amd_gpu_"}, "of AMD's GPUs"},
		{[]string{"BIND_UNBIND"}, "restarts of a session are counted in `warpgauge_*`"},
	}
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

// levels are the devices that have the reading.
func (r *reading) levels() string {
	switch r.levelOf() {
	case field.Instance:
		return "gpu, instance"
	case field.Link:
		return "link"
	case field.VGPU:
		return "vgpu"
	}
	return "gpu"
}

// callText names the calls of a row, each once, with what they ask for.
func (r *reading) callText() string {
	var out []string
	for _, t := range r.terms {
		if s := t.text(); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	const few = 2
	if len(out) > few {
		return out[0] + " … " + out[len(out)-1]
	}
	return strings.Join(out, " + ")
}

func (t term) text() string {
	if t.call == getFieldValues {
		return "field " + strconv.Itoa(int(t.arg[0])) + scopeText(t.arg[1])
	}
	names := make([]string, len((*t.call)))
	for i, g := range *t.call {
		names[i] = "`" + g.symbol + "`"
	}
	text := strings.Join(names, " or ")
	switch (*t.call)[0].args {
	case 1:
		text += fmt.Sprintf(" (%d)", t.arg[0])
	case 2: // of a link
		text += fmt.Sprintf(" (%s, %d)", strings.TrimPrefix(scopeText(t.arg[0]), " of "), t.arg[1])
	case 3:
		text += fmt.Sprintf(" (%d, %d, %d)", t.arg[0], t.arg[1], t.arg[2])
	}
	return text
}

func scopeText(scope uint32) string {
	switch scope {
	case 0:
		return ""
	case allLinks:
		return " of all links"
	case thisLink:
		return " of the link"
	}
	return " of link " + strconv.Itoa(int(scope))
}

// conversion says what becomes of NVML's value.
func (r *reading) conversion(d *field.Descriptor) string {
	text := string(r.how)
	switch {
	case r.how == asIs && len(r.terms) > 1:
		text = "sum"
	case r.how == perSecondWide:
		text = string(perSecond)
	case r.how == usedShare && len(r.terms) == 2:
		text = "used ÷ total"
	}
	factor := ""
	if r.mul != 0 {
		factor += "× " + plain(r.mul) + " "
	}
	if r.div != 0 {
		factor += "÷ " + plain(r.div) + " "
	}
	if factor = strings.TrimSpace(factor); factor != "" && text != "" {
		text += ", "
	}
	text += factor
	if r.div != 0 && d.Kind == field.Int64 {
		text += ", whole"
	}
	return text
}

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
