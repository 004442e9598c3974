package remote

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Guard checks a server's list. Only flags set its limits.
type Guard struct {
	Limits
	Allow []string // AllowProfiling, AllowChangingLabels
}

// maxRefusals bounds the refusals of one list.
const maxRefusals = 100

// Parser parses the list of a server. *lists.Files and *lists.Desk implement it.
type Parser interface {
	ParseDelivered(content []byte, origin string, isYAML bool) *lists.Parsed
}

// errRefused means that the refusals have the reasons.
var errRefused = errors.New("the list is refused")

// Parse parses a server's list. It also reports a length above the guard's limit and an invalid validity comment.
func (g *Guard) Parse(o *lists.Offer, parser Parser) *lists.Parsed {
	if n := int64(len(o.Content)); n > g.Bytes {
		text := fmt.Sprintf("the list has %d bytes, which is more than %d (--remote-limit bytes)", n, g.Bytes)
		return &lists.Parsed{Problems: []field.Problem{{File: o.Origin, Severity: field.Error, Message: text}}, Err: errRefused}
	}
	p := parser.ParseDelivered(o.Content, o.Origin, o.YAML)
	_, refused := readValidity(o.Content)
	var bad []field.Problem
	for _, r := range refused {
		bad = append(bad, field.Problem{File: o.Origin, Line: r.Line, Severity: field.Error, Message: r.Text})
	}
	p.Problems = append(bad, p.Problems...)
	if p.Err == nil && len(p.Fields.Fields) == 0 {
		p.Err = errors.New("the list asks for nothing")
	}
	return p
}

// Examine returns what the guard refuses in a list on a node with the View's devices, with an error if it cannot be applied.
func (g *Guard) Examine(p *lists.Parsed, v *view.View) (refused []lists.Refusal, err error) {
	for i := range p.Problems {
		if r := &p.Problems[i]; r.Severity == field.Error {
			refused = append(refused, lists.Refusal{Line: r.Line, Text: r.Message})
		}
	}
	if err = p.Err; err == nil {
		refused = append(refused, g.check(p.Fields, v)...)
		if len(refused) > 0 {
			err = errRefused
		}
	}
	return refused[:min(len(refused), maxRefusals)], err
}

// check returns the refusals for a list's fields.
func (g *Guard) check(list field.List, v *view.View) (out []lists.Refusal) {
	if n := len(list.Fields); n > g.Fields {
		out = append(out, lists.Refusal{Line: 0, Text: fmt.Sprintf("%d fields are more than %d (--remote-limit fields)", n, g.Fields)})
	}
	for i := range list.Fields {
		f := &list.Fields[i]
		if why := g.refuses(f); why != "" {
			out = append(out, lists.Refusal{Line: f.Line, Text: f.Name + ": " + why})
		}
	}
	n := newInventory(v)
	series, widest := n.all(list)
	switch {
	case series > g.Series:
		out = append(out, lists.Refusal{Line: widest.Line, Text: fmt.Sprintf("the list makes up to %d series here, which is more than %d (--remote-limit series); most are of %s: %d",
			series, g.Series, widest.Name, n.series(widest))})
	case n.knows() && series == 0:
		out = append(out, lists.Refusal{Line: 0, Text: "no device of this node has any of the fields"})
	}
	return out
}

// loses returns why a list takes too much away, or "".
func (g *Guard) loses(gone, of int, what string) string {
	if float64(gone) <= g.Lost*float64(of) {
		return ""
	}
	return fmt.Sprintf("the list takes away %d of %d %s, more than a share of %v (--remote-limit lost)", gone, of, what, g.Lost)
}

func (g *Guard) refuses(f *field.Field) string {
	switch {
	case f.Interval > 0 && f.Interval < g.Interval:
		return fmt.Sprintf("the interval %v is shorter than %v (--remote-limit interval)", f.Interval, g.Interval)
	case !slices.Contains(g.Allow, AllowProfiling) && f.Desc.ID.Profiling():
		return "profiling fields come from a server only with --remote-allow=profiling"
	case !slices.Contains(g.Allow, AllowChangingLabels) && f.Changes() && f.Desc.Cost == field.EachTick:
		return "labels that change all the time come from a server only with --remote-allow=changing-labels"
	}
	return ""
}

// inventory counts the devices and columns of a View.
type inventory struct {
	levels  map[field.Level]int
	columns map[field.ID]int  // number of series by reading
	bound   map[field.ID]bool // readings in the View's list
}

func newInventory(v *view.View) *inventory {
	n := &inventory{levels: map[field.Level]int{}, columns: map[field.ID]int{}, bound: map[field.ID]bool{}}
	devices := map[string]bool{}
	seen := map[string]bool{}
	for _, s := range v.Sources {
		for i := range s.Devices {
			if d := &s.Devices[i]; !devices[d.ID] { // two collectors can report one device
				devices[d.ID] = true
				n.levels[d.Level]++
			}
		}
		for _, r := range s.Fields.Readings() {
			n.bound[r.Desc.ID] = true
		}
		for i := range s.Columns {
			c := &s.Columns[i]
			key := fmt.Sprint(s.Devices[c.Device].ID, c.Field, c.Labels)
			if c.Buffer == 0 && !seen[key] {
				seen[key] = true
				n.columns[c.Field]++
			}
		}
	}
	return n
}

func (n *inventory) knows() bool { return len(n.levels) > 0 }

// all estimates the number of series of a list, and returns the field that makes most of them.
func (n *inventory) all(list field.List) (series int, widest *field.Field) {
	most := -1
	for i := range list.Fields {
		count := n.series(&list.Fields[i])
		if series += count; count > most {
			most, widest = count, &list.Fields[i]
		}
	}
	return series, widest
}

// series estimates the number of series of a field. It counts the columns of readings in service; for other readings it
// assumes one on every device of the right level. Manager.apply checks the actual number.
func (n *inventory) series(f *field.Field) int {
	if f.Type == field.Label {
		return 0
	}
	reading := f.Desc
	if in, computed := field.Input(f.Desc); computed {
		reading = in
	}
	count := n.columns[reading.ID]
	if !n.bound[reading.ID] {
		for level := field.Global; level <= field.ConnectX; level++ {
			if reading.AskedOf(level) {
				count += n.devices(level)
			}
		}
	}
	switch {
	case f.Desc.ID == field.XIDErrorsCount, f.Desc.ID == field.XIDErrorsTotal:
		count *= codes
	case f.Desc.ID == field.ClockEventsCount, f.Desc.ID == field.ClockEventsTotal:
		count *= field.ClockReasons
	case f.Type == field.Histogram:
		count *= len(f.Buckets) + 3 // +Inf, sum and count
	}
	return count
}

// maxDevices bounds the devices that a collector looks for only when a list needs them.
var maxDevices = map[field.Level]int{field.Switch: 18, field.CPU: 4, field.Core: 576, field.ConnectX: 16}

const (
	linksOfGPU = 72 // including the ports at the other ends
	codes      = 64 // XIDs per device with a series
)

func (n *inventory) devices(l field.Level) int {
	switch have := n.levels[l]; {
	case have > 0 || !n.knows():
		return have
	case l == field.Link:
		return linksOfGPU * n.levels[field.GPU]
	}
	return maxDevices[l]
}

// costs holds the time in vendors' libraries by source, since the source's session began.
type costs map[string]time.Duration

func newCosts(all []session.Costs) costs {
	out := costs{}
	for _, c := range all {
		for source, s := range c.Sources {
			out[c.Collector+"/"+source] = s.Time
		}
	}
	return out
}

// since returns the time spent after an earlier measurement. A smaller total belongs to a new session and counts fully.
func (c costs) since(before costs) (total time.Duration) {
	for source, d := range c {
		if was := before[source]; was <= d {
			d -= was
		}
		total += d
	}
	return total
}
