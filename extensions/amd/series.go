package amd

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

var _ exposition.Dialect = (*Names)(nil)

// node numbers the GPUs of all sources, and the partitions of divided GPUs, in the order of AMD's exporter. Series of
// a whole board appear under its first partition.
type node struct {
	id    map[string]int               // gpu_id of a board and its first partition
	first map[string]*collector.Device // first partition of a divided board
	parts map[string]map[field.ID]bool // readings that a divided board's partitions have themselves
	board string                       // the board whose source exports the number of GPUs
	count float64                      // GPUs; each partition counts as one
}

// newNode returns nil if no board in the view has AMD's names.
func newNode(v *view.View) *node {
	n := &node{id: map[string]int{}, first: map[string]*collector.Device{}, parts: map[string]map[field.ID]bool{}}
	var boards []*collector.Device
	parts := map[string]int{}
	for _, s := range v.Sources {
		for i := range s.Devices {
			switch d := &s.Devices[i]; {
			case !hasNames(s, d):
			case d.Level == field.GPU && !slices.ContainsFunc(boards, func(o *collector.Device) bool { return o.ID == d.ID }):
				boards = append(boards, d)
			case d.Level == field.Instance:
				parts[d.Parent] = max(parts[d.Parent], number(d.Instance.ID)+1)
				if n.parts[d.Parent] == nil {
					n.parts[d.Parent] = map[field.ID]bool{}
				}
				if number(d.Instance.ID) == 0 {
					n.first[d.Parent] = d
				}
			}
		}
		for i := range s.Columns {
			if c := &s.Columns[i]; c.Device >= 0 && c.Device < len(s.Devices) && n.parts[s.Devices[c.Device].Parent] != nil {
				n.parts[s.Devices[c.Device].Parent][c.Field] = true
			}
		}
	}
	if len(boards) == 0 {
		return nil
	}
	slices.SortStableFunc(boards, func(x, y *collector.Device) int { return cmp.Compare(number(x.GPU), number(y.GPU)) })
	next := 0
	for at, d := range boards {
		share := max(parts[d.ID], 1)
		if at == 0 || number(d.GPU) > number(boards[at-1].GPU)+1 { // boards outside the selection count, too
			next = max(next, number(d.GPU)*share)
		}
		n.id[d.ID] = next
		next += share
		n.count += float64(share)
	}
	n.board = boards[0].ID
	return n
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// hasNames reports whether AMD's names apply to a device of a source.
func hasNames(s *view.Source, d *collector.Device) bool {
	if s.Fields.Dialect == nil || len(d.Texts) == 0 {
		return false
	}
	_, amd := s.Fields.Dialect.Names.(*Names)
	return amd
}

// shownAs returns the device whose labels the series of d get.
func (n *node) shownAs(d *collector.Device) *collector.Device {
	return cmp.Or(n.first[d.ID], d)
}

// layout collects the series of a page.
type layout struct {
	*Names
	node     *node
	hostname string
	owners   func(*collector.Device) []view.Owner
	labels   []string // labels of every device series
	series   []exposition.Series

	// State for the last device.
	device *collector.Device
	users  [][]collector.Label
}

// Series returns all series under these Names.
func (n *Names) Series(v *view.View, hostname string, owners func(*collector.Device) []view.Owner) []exposition.Series {
	l := &layout{Names: n, node: newNode(v), hostname: hostname, owners: owners, labels: n.labelNames()}
	if l.node == nil {
		return nil
	}
	families, shown := map[string]*field.Field{}, map[field.ID][]shownReading{}
	for _, m := range n.metrics {
		families[m.Field] = &field.Field{Name: m.Name(n.Prefix), Type: field.Gauge, Help: m.help(), Scale: 1}
		for i := range m.Sources {
			f := *families[m.Field]
			f.Scale = m.Sources[i].Scale
			shown[m.Sources[i].ID] = append(shown[m.Sources[i].ID], shownReading{&f, &m.Sources[i]})
		}
	}
	for i, s := range v.Sources {
		if s.Fields.Dialect != nil && s.Fields.Dialect.Names == n {
			l.addKnown(i, s, families)
			l.addColumns(i, s, shown)
		}
	}
	return l.series
}

// shownReading is an AMD metric with one of its sources.
type shownReading struct {
	field  *field.Field
	source *Source
}

// addKnown adds the metrics that the exporter computes itself.
func (l *layout) addKnown(source int, s *view.Source, families map[string]*field.Field) {
	for i := range s.Devices {
		d := &s.Devices[i]
		if !hasNames(s, d) || d.Level == field.Link {
			continue
		}
		if f := families[Nodes]; f != nil && d.ID == l.node.board {
			pairs := []collector.Label{{Name: "hostname", Value: l.hostname}}
			for _, c := range l.Custom {
				pairs = append(slices.DeleteFunc(pairs, func(p collector.Label) bool { return p.Name == c.Name }), collector.Label(c))
			}
			count := l.node.count
			l.series = append(l.series, exposition.Series{
				Field: f, Labels: sorted(pairs), Source: source, Device: i, Always: true,
				Value: func() float64 { return count },
			})
		}
		if f := families[Health]; f != nil && l.verdicts != nil && l.node.shownAs(d) == d {
			l.add(d, nil, exposition.Series{Field: f, Source: source, Device: i, Value: func() float64 { return health(l.verdicts(), d) }})
		}
	}
}

// addColumns adds the series of a source's columns.
func (l *layout) addColumns(source int, s *view.Source, shown map[field.ID][]shownReading) {
	for i := range s.Columns {
		c := &s.Columns[i]
		if c.Device < 0 || c.Device >= len(s.Devices) || c.Buffer > 0 {
			continue
		}
		d := &s.Devices[c.Device]
		if !hasNames(s, d) || l.node.parts[d.ID][c.Field] {
			continue
		}
		for _, r := range shown[c.Field] {
			for _, more := range r.source.labels(s, c) {
				l.add(d, more, exposition.Series{Field: r.field, Source: source, Device: c.Device, Column: i})
			}
		}
	}
}

// add adds a series with additional labels for each user of a device.
func (l *layout) add(d *collector.Device, more []collector.Label, s exposition.Series) {
	if d = l.node.shownAs(d); d != l.device {
		l.device, l.users = d, l.labelsOf(d)
	}
	for _, labels := range l.users {
		s.Labels = sorted(slices.Concat(labels, more))
		l.series = append(l.series, s)
	}
}

// labelsOf returns the labels of a device's series for each of its users. As in AMD's exporter, every label is present, with an
// empty value if necessary.
func (l *layout) labelsOf(d *collector.Device) (out [][]collector.Label) {
	users := l.owners(d)
	if len(users) == 0 {
		users = []view.Owner{{}}
	}
	for i := range users {
		var labels []collector.Label
		for _, name := range l.labels {
			labels = append(labels, collector.Label{Name: name, Value: l.value(name, d, &users[i])})
		}
		if !slices.ContainsFunc(out, func(o []collector.Label) bool { return slices.Equal(o, labels) }) {
			out = append(out, labels)
		}
	}
	return out
}

func sorted(labels []collector.Label) []collector.Label {
	slices.SortFunc(labels, func(x, y collector.Label) int { return strings.Compare(x.Name, y.Name) })
	return labels
}

// value returns a label's value for a device and an owner.
func (l *layout) value(name string, d *collector.Device, o *view.Owner) string {
	if v, custom := l.custom(name); custom {
		return v
	}
	part := number(d.Instance.ID)
	switch name {
	case "gpu_id":
		return strconv.Itoa(l.node.id[cmp.Or(d.Parent, d.ID)] + part)
	case "gpu_partition_id":
		return strconv.Itoa(part)
	case "hostname":
		return l.hostname
	}
	if text, ok := l.deviceText(name, d); ok {
		return text
	}
	// An owner's labels have our names, or the names from dcgm-exporter before 2.0.
	own := map[string]string{"job_id": "hpc_job", "pod_uuid": "pod_uid"}
	for _, p := range slices.Concat(o.Facts, o.Labels) {
		if p.Name == name || p.Name == own[name] || p.Name == name+"_name" || p.Name == "pod_"+name {
			return p.Value
		}
	}
	return ""
}

// health returns 0 if the device or its GPU must get no new work, 1 if at least one of them works, and NaN otherwise.
func health(s *events.Snapshot, d *collector.Device) float64 {
	out := math.NaN()
	for i := range s.Verdicts {
		v := &s.Verdicts[i]
		switch {
		case v.Device.ID != d.ID && v.Device.ID != d.Parent:
		case v.OutOfService():
			return 0
		case v.State != events.Unknown:
			out = 1
		}
	}
	return out
}

// labels returns the additional labels of each series for a column; none if the source does not use the column.
func (s *Source) labels(of *view.Source, c *collector.Column) (out [][]collector.Label) {
	own, ok := s.own(c.Labels)
	for i := range of.Columns {
		if o := &of.Columns[i]; ok && s.Each != nil && o.Device == c.Device && o.Field == s.Each.ID {
			out = append(out, s.Each.labels(of, o)...)
		}
	}
	if ok && len(out) == 0 {
		out = append(out, own)
	}
	return out
}

// own returns the additional labels of one series. It returns false if the source does not use the column.
func (s *Source) own(column []collector.Label) (more []collector.Label, ok bool) {
	if len(column) != len(s.Where)+min(len(s.Index.From), 1) {
		return nil, false
	}
	if slices.ContainsFunc(s.Where, func(w Pair) bool { return !slices.Contains(column, collector.Label(w)) }) {
		return nil, false
	}
	for _, l := range s.Add {
		more = append(more, collector.Label(l))
	}
	for _, l := range column {
		digits, has := strings.CutPrefix(l.Value, s.Index.Prefix)
		if n, err := strconv.Atoi(digits); l.Name == s.Index.From && has && err == nil {
			return append(more, collector.Label{Name: s.Index.To, Value: strconv.Itoa(n + s.Index.Plus)}), true
		}
	}
	return more, s.Index.From == ""
}
