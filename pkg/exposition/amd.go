package exposition

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// amdNode is what the names of AMD's exporter need to know of all sources: it numbers GPUs
// and the partitions of divided ones through, and shows what belongs to a whole board under
// its first partition.
type amdNode struct {
	id    map[string]int               // gpu_id of a board, which is that of its first partition
	first map[string]*collector.Device // of a divided board, its first partition
	parts map[string]map[field.ID]bool // of a divided board, what its partitions have themselves
	ours  map[string]bool              // names of families that are not AMD's
	node  string                       // ID of the board whose source shows what the node has
	count float64
}

// newAMDNode returns nil if no list asks for AMD's names, or no board has them.
func (b *builder) newAMDNode() *amdNode {
	n := &amdNode{id: map[string]int{}, first: map[string]*collector.Device{}, parts: map[string]map[field.ID]bool{}, ours: map[string]bool{}}
	var boards []*collector.Device
	parts := map[string]int{}
	for _, s := range b.layout.view.Sources {
		for i := range s.Devices {
			switch d := &s.Devices[i]; {
			case !isAMD(&s.Fields, d):
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
		of := max(parts[d.ID], 1)
		if at == 0 || number(d.GPU) > number(boards[at-1].GPU)+1 { // boards that are not selected have numbers, too
			next = max(next, number(d.GPU)*of)
		}
		n.id[d.ID] = next
		next += of
		n.count += float64(of)
	}
	n.node = boards[0].ID
	for name := range b.families {
		n.ours[name] = true
	}
	return n
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// shown is the device under which the series of one are shown.
func (n *amdNode) shown(d *collector.Device) *collector.Device {
	if first := n.first[d.ID]; first != nil {
		return first
	}
	return d
}

// isAMD reports whether a device of the list is shown under AMD's names.
func isAMD(list *field.List, d *collector.Device) bool { return list.AMD != nil && len(d.AMD) > 0 }

// inPlace reports whether it has no other names.
func inPlace(list *field.List, d *collector.Device) bool { return isAMD(list, d) && list.AMD.InPlace }

// amdSeries is a field under a name of AMD's, and what it is made from.
type amdSeries struct {
	field.Field
	of *field.AMDSource
}

// addAMD adds the series of a source under AMD's names, all gauges.
func (b *builder) addAMD(source int, s *view.Source) {
	by := map[field.ID][]amdSeries{}
	known := map[string]*field.Field{}
	for _, n := range s.Fields.AMD.Names() {
		f := field.Field{Name: n.Metric(s.Fields.AMD.Prefix), Type: field.Gauge, Help: n.Text(), Scale: 1}
		if b.amd.ours[f.Name] { // a prefix made it the name of another field
			b.layout.stats.misfits++
			continue
		}
		known[n.Field] = &f
		for i := range n.Of {
			f.Scale = n.Of[i].Scale
			by[n.Of[i].ID] = append(by[n.Of[i].ID], amdSeries{f, &n.Of[i]})
		}
	}
	labels := b.newDeviceLabels()
	labels.amd, labels.names = s.Fields.AMD, s.Fields.AMD.LabelNames()
	for i := range s.Devices {
		if d := &s.Devices[i]; isAMD(&s.Fields, d) && d.Level != field.Link {
			b.addKnown(known, d, labels, b.snap.roster.devices[source]+int32(i))
		}
	}
	for i := range s.Columns {
		c := &s.Columns[i]
		if c.Device < 0 || c.Device >= len(s.Devices) || c.Buffer > 0 {
			continue
		}
		d := &s.Devices[c.Device]
		if !isAMD(&s.Fields, d) || b.amd.parts[d.ID][c.Field] {
			continue
		}
		at, device := b.snap.roster.at(source, i, c.Device)
		for _, f := range by[c.Field] {
			if more, ok := AMDColumn(f.of, c.Labels); ok {
				b.addCell(&f.Field, labels.of(d, 0, more, false), false, at, device)
			}
		}
	}
}

// addKnown adds what the exporter knows of a device without a reading.
func (b *builder) addKnown(known map[string]*field.Field, d *collector.Device, labels *deviceLabels, device int32) {
	if f := known[field.AMDNodes]; f != nil && d.ID == b.amd.node {
		pairs := []collector.Label{{Name: "hostname", Value: b.o.Hostname}}
		for _, l := range labels.amd.Custom {
			pairs = append(slices.DeleteFunc(pairs, func(p collector.Label) bool { return p.Name == l.Name }), collector.Label(l))
		}
		b.addShare(f, labels.fixedSet(pairs), &b.amd.count, b.snap.roster.event(device))
	}
	if f := known[field.AMDHealth]; f != nil && b.o.Health != nil && b.amd.shown(d) == d {
		for _, set := range labels.of(d, 0, nil, false) {
			b.addShare(f, set, &b.snap.health[device], device)
		}
	}
}

// AMDColumn returns the further labels that a column has under a name of AMD's, false if it is not
// shown there.
func AMDColumn(s *field.AMDSource, column []collector.Label) (more []collector.Label, ok bool) {
	if len(column) != len(s.Where)+min(len(s.Index.From), 1) {
		return nil, false
	}
	for _, w := range s.Where {
		if !slices.Contains(column, collector.Label(w)) {
			return nil, false
		}
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

// amdSet are the labels of a series under AMD's names. All are there, be they empty, as in
// AMD's exporter.
func (l *deviceLabels) amdSet(o *Owner, more []collector.Label) *labelSet {
	if l.user != o {
		l.user, l.base = o, l.base[:0]
		for _, name := range l.names {
			l.base = append(l.base, collector.Label{Name: name, Value: l.amdValue(name, o)})
		}
	}
	return l.fixedSet(slices.Concat(l.base, more))
}

func (l *deviceLabels) fixedSet(pairs []collector.Label) *labelSet {
	slices.SortFunc(pairs, func(x, y collector.Label) int { return strings.Compare(x.Name, y.Name) })
	labels := labelsOf{fixed: pairs}
	set := l.b.intern(labels.set())
	l.b.layout.stats.labels += labels.dropped
	return set
}

// amdValue is that of a label of the device with an owner.
func (l *deviceLabels) amdValue(name string, o *Owner) string {
	if v, custom := l.amd.CustomValue(name); custom {
		return v
	}
	part := number(l.device.Instance.ID)
	switch name {
	case "gpu_id":
		return strconv.Itoa(l.b.amd.id[cmp.Or(l.device.Parent, l.device.ID)] + part)
	case "gpu_partition_id":
		return strconv.Itoa(part)
	case "hostname":
		return l.b.o.Hostname
	}
	// Of a device, of an owner for AMD's names only, of an owner by our name, by that of
	// before dcgm-exporter 2.0.
	ours := map[string]string{"job_id": "hpc_job", "pod_uuid": "pod_uid"}
	for _, p := range slices.Concat(l.device.AMD, o.AMD, o.Labels) {
		if p.Name == name || p.Name == ours[name] || p.Name == name+"_name" || p.Name == "pod_"+name {
			return p.Value
		}
	}
	return ""
}

// readHealth takes what is known of the health of AMD's devices: 1, 0, or NaN.
func (s *snapshot) readHealth(of func(*collector.Device) float64) {
	device := 0
	for _, source := range s.view.Sources {
		for i := range source.Devices {
			s.health[device] = math.NaN()
			if of != nil && isAMD(&source.Fields, &source.Devices[i]) {
				s.health[device] = of(&source.Devices[i])
			}
			device++
		}
	}
}
