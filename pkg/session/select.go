package session

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Selector chooses devices of one kind by number, as --devices, --switch-devices and --cpu-devices do. config.Selector
// implements it.
type Selector interface {
	MatchWhole(n int) bool        // a GPU, switch or CPU; n is -1 if it has no number
	MatchPart(n int) bool         // an instance of a GPU, a link of a switch, a core of a CPU
	Named() (wholes, parts []int) // the numbers in the flag
	Flexible() bool               // for readings that instances have, use them instead of their GPU
	String() string
}

// Selection selects the devices that a session shows. The zero value selects all; otherwise all three must be set.
type Selection struct{ GPUs, Switches, CPUs Selector }

// selecting applies a selection to the sources of one Open.
type selecting struct {
	Selection
	instances map[string]map[field.ID]bool // readings that the MIG instances of a GPU supply, by the GPU's ID
	boards    map[string]bool              // IDs of GPUs with a selected instance
	health    []field.Reading              // what is read of such a GPU if it is not selected itself
	log       *zap.Logger

	taken   map[string]bool // IDs of bound devices
	columns int             // number of bound columns
	leftOut int             // number of devices that cannot be shown, including the collector's own count
	why     []string        // examples
	cut     int             // number of columns beyond MaxColumns
}

func (s Selection) over(sources []collector.Source, health []field.Reading, log *zap.Logger) *selecting {
	out := &selecting{Selection: s, instances: map[string]map[field.ID]bool{}, boards: map[string]bool{}, health: health, taken: map[string]bool{}, log: log}
	if s.GPUs == nil {
		return out
	}
	present := map[string]bool{}
	for _, src := range sources {
		devices := src.Devices()
		for i := range devices {
			notePresent(present, &devices[i])
			if d := &devices[i]; d.Instance.ID != "" && len(health) > 0 && out.matches(d) {
				out.boards[d.Parent] = true
			}
		}
		for _, c := range src.Columns() {
			d := &devices[c.Device]
			if d.Level != field.Instance && d.Level != field.ComputeInstance {
				continue
			}
			if out.instances[d.Parent] == nil {
				out.instances[d.Parent] = map[field.ID]bool{}
			}
			out.instances[d.Parent][c.Field] = true
		}
	}
	if missing := s.missing(present); len(missing) > 0 {
		log.Warn("selected devices do not exist yet", zap.String("device", strings.Join(missing, ", ")))
	}
	return out
}

// notePresent adds the names that may select a device.
func notePresent(present map[string]bool, d *collector.Device) {
	for kind, name := range map[string]string{
		"GPU": d.GPU, "MIG instance": d.Instance.ID, "switch": strings.TrimPrefix(d.Label("nvswitch"), "nvswitch"),
		"CPU": d.Label("cpu"), "core": d.Label("cpucore"),
	} {
		if name != "" {
			present[kind+" "+name] = true
		}
	}
}

// missing returns the selected names that no device has.
func (s Selection) missing(present map[string]bool) (out []string) {
	for _, k := range []struct {
		by          Selector
		whole, part string
	}{{s.GPUs, "GPU", "MIG instance"}, {s.Switches, "switch", ""}, {s.CPUs, "CPU", "core"}} {
		wholes, parts := k.by.Named()
		for i, named := range [...][]int{wholes, parts} {
			for _, n := range named {
				if kind := [...]string{k.whole, k.part}[i]; kind != "" && !present[fmt.Sprintf("%s %d", kind, n)] {
					out = append(out, fmt.Sprintf("%s %d", kind, n))
				}
			}
		}
	}
	return out
}

// matches reports whether a device is selected. Links belong to their GPU or switch.
func (s *selecting) matches(d *collector.Device) bool {
	if s.GPUs == nil {
		return true
	}
	switch d.Level {
	case field.GPU:
		return s.GPUs.MatchWhole(number(d.GPU))
	case field.Instance, field.ComputeInstance:
		return s.GPUs.MatchPart(number(d.Instance.ID))
	case field.Link:
		if d.Label("nvswitch") != "" {
			return s.Switches.MatchPart(number(d.Label("nvlink")))
		}
		return s.GPUs.MatchWhole(number(d.GPU))
	case field.Switch:
		return s.Switches.MatchWhole(number(d.Label("nvswitch")))
	case field.CPU:
		return s.CPUs.MatchWhole(number(d.Label("cpu")))
	case field.Core:
		return s.CPUs.MatchPart(number(d.Label("cpucore")))
	}
	return true
}

// number returns the number in "3" or "nvswitch3", or -1.
func number(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "nvswitch"))
	if err != nil {
		return -1
	}
	return n
}

// repeats reports whether a flexible selector leaves a GPU's column to its instances. Those that instances do not have
// (temperature, power, clocks …) and XIDs of the whole GPU stay.
func (s *selecting) repeats(c collector.Column, d *collector.Device) bool {
	return s.GPUs != nil && s.GPUs.Flexible() && d.Level == field.GPU && s.instances[d.ID][c.Field] && !field.IsXID(c.Field)
}

// bind returns the selected part of src; ok is false if nothing is selected.
func (s *selecting) bind(src collector.Source) (b bound, ok bool) {
	devices, columns := src.Devices(), src.Columns()
	k := &kept{shown: make([]int, len(devices)), row: make([]float64, len(columns)), due: make([]bool, len(columns))}
	b = bound{source: src}
	for i := range devices {
		k.shown[i] = -1
		d := Clean(devices[i])
		d.Unshown = !s.matches(&d) && s.boards[d.ID]
		if (d.Unshown || s.matches(&d)) && s.first(&d) {
			k.shown[i] = len(b.devices)
			b.devices = append(b.devices, d)
		}
	}
	b.reasons = reasonsOf(src, k.shown)
	for i, c := range columns {
		k.row[i] = math.NaN()
		at := k.shown[c.Device]
		switch {
		case at < 0, b.devices[at].Unshown && !field.IsXID(c.Field) && !slices.ContainsFunc(s.health, func(r field.Reading) bool { return r.Desc.ID == c.Field }):
		case s.repeats(c, &devices[c.Device]):
			b.reasons.addReason(at, c.Field, collector.Explanation{Reason: collector.ReasonOtherCollector, Detail: "the instances of the GPU report it"})
		case s.columns == MaxColumns:
			s.cut++
			b.reasons.addReason(at, c.Field, collector.Explanation{Reason: collector.ReasonUnknown, Detail: "there are more columns than a session takes"})
		default:
			s.columns++
			c.Device, c.Labels = at, CleanLabels(c.Labels)
			b.columns = append(b.columns, c)
			k.columns = append(k.columns, i)
		}
	}
	if len(b.devices) < len(devices) || len(b.columns) < len(columns) {
		b.keep = k
	}
	return b, len(b.devices) > 0
}

// nothing returns the error for a selection that matches nothing.
func (s *selecting) nothing(sources []collector.Source) error {
	n := 0
	for _, src := range sources {
		n += len(src.Devices())
	}
	if s.GPUs == nil {
		return fmt.Errorf("%w: there are %d devices, but none that has an id", collector.ErrNoDevices, n)
	}
	return fmt.Errorf("%w: there are %d devices, but none that --devices=%s --switch-devices=%s --cpu-devices=%s select",
		collector.ErrNoDevices, n, s.GPUs, s.Switches, s.CPUs)
}

// first reports whether d is the first device with its ID. Others are dropped, because their series would be identical.
func (s *selecting) first(d *collector.Device) bool {
	const some = 4
	switch {
	case d.ID == "":
		s.why = append(s.why, "one without an id")
	case s.taken[d.ID]:
		s.why = append(s.why, "a second "+d.ID)
	case len(s.taken) == MaxDevices:
		s.why = append(s.why, "one beyond the limit: "+d.ID)
	default:
		s.taken[d.ID] = true
		return true
	}
	s.why = s.why[:min(len(s.why), some)]
	s.leftOut++
	return false
}

// report logs the dropped devices and columns once.
func (s *selecting) report() {
	if s.leftOut > 0 || s.cut > 0 {
		s.log.Warn("library reports impossible devices or columns; skipping them",
			zap.Int("devices", s.leftOut), zap.Strings("among_them", s.why), zap.Int("columns", s.cut))
	}
}

// Clean makes all texts of a device valid for labels.
func Clean(d collector.Device) collector.Device {
	for _, text := range []*string{
		&d.ID, &d.Parent, &d.GPU, &d.UUID, &d.PCIBusID, &d.Node, &d.Model, &d.Alias, &d.Unread,
		&d.Instance.Profile, &d.Instance.ID, &d.Instance.ComputeID, &d.Instance.UUID,
	} {
		*text = sound(*text)
	}
	d.Labels, d.Facts, d.Texts = CleanLabels(d.Labels), CleanLabels(d.Facts), CleanLabels(d.Texts)
	return d
}

// CleanLabels is Clean for labels, which the collector shares.
func CleanLabels(labels []collector.Label) []collector.Label {
	if !slices.ContainsFunc(labels, func(l collector.Label) bool { return sound(l.Name) != l.Name || sound(l.Value) != l.Value }) {
		return labels
	}
	out := make([]collector.Label, len(labels))
	for i, l := range labels {
		out[i] = collector.Label{Name: sound(l.Name), Value: sound(l.Value)}
	}
	return out
}

// maxText is the maximum number of bytes in a library's text; vendors' buffers have at most 256.
const maxText = 256

// sound makes a text one printable line of UTF-8 with at most maxText bytes.
func sound(text string) string {
	text = strings.NewReplacer("\n", "?", "\t", "?").Replace(strings.Map(field.Printable, strings.ToValidUTF8(text, "\uFFFD")))
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "") // removes an incomplete rune at the end
}
