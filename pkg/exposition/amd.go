package exposition

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// amdNode is what the names of AMD's exporter need to know of all sources: it numbers GPUs
// and the partitions of divided ones through, and shows what belongs to a whole board under
// its first partition.
type amdNode struct {
	id    map[string]int               // gpu_id of a board, which is that of its first partition
	first map[string]*collector.Device // of a divided board, its first partition
	parts map[string]map[field.ID]bool // of a divided board, what its partitions have themselves
	node  string                       // ID of the board whose sources show what the node has
	count int
}

// newAMDNode returns nil if no list asks for AMD's names.
func (b *builder) newAMDNode() *amdNode {
	n := &amdNode{id: map[string]int{}, first: map[string]*collector.Device{}, parts: map[string]map[field.ID]bool{}}
	var boards []*collector.Device
	parts, asked := map[string]int{}, false
	for _, s := range b.layout.view.Sources {
		asked = asked || s.Fields.AMD != nil
		for i := range s.Devices {
			d := &s.Devices[i]
			switch {
			case len(d.AMD) == 0:
			case d.Level == field.GPU && !slices.ContainsFunc(boards, func(o *collector.Device) bool { return o.ID == d.ID }):
				boards = append(boards, d)
			case d.Level == field.Instance:
				parts[d.Parent] = max(parts[d.Parent], partition(d)+1)
				if partition(d) == 0 {
					n.first[d.Parent] = d
				}
			}
		}
		for i := range s.Columns {
			c := &s.Columns[i]
			if c.Device < 0 || c.Device >= len(s.Devices) || s.Devices[c.Device].Level != field.Instance {
				continue
			}
			of := s.Devices[c.Device].Parent
			if n.parts[of] == nil {
				n.parts[of] = map[field.ID]bool{}
			}
			n.parts[of][c.Field] = true
		}
	}
	if !asked || len(boards) == 0 {
		return nil
	}
	slices.SortStableFunc(boards, func(x, y *collector.Device) int { return cmp.Compare(index(x), index(y)) })
	for at, d := range boards {
		if at == 0 || index(d) > index(boards[at-1])+1 { // boards that are not selected have numbers, too
			n.count = max(n.count, index(d)*max(parts[d.ID], 1))
		}
		n.id[d.ID] = n.count
		n.count += max(parts[d.ID], 1)
	}
	n.node = boards[0].ID
	return n
}

func index(d *collector.Device) int {
	i, _ := strconv.Atoi(d.GPU)
	return i
}

func partition(d *collector.Device) int {
	i, _ := strconv.Atoi(d.Instance.ID)
	return i
}

// gpuID is the number of a device.
func (n *amdNode) gpuID(d *collector.Device) int {
	if d.Level == field.Instance {
		return n.id[d.Parent] + partition(d)
	}
	return n.id[d.ID]
}

// shown is the device under which the series of one are shown.
func (n *amdNode) shown(d *collector.Device) *collector.Device {
	if first := n.first[d.ID]; first != nil && d.Level == field.GPU {
		return first
	}
	return d
}

// isAMD reports whether a device of the list is shown under AMD's names.
func isAMD(list *field.List, d *collector.Device) bool {
	return list.AMD != nil && len(d.AMD) > 0
}

// inPlace reports whether it has no other names.
func inPlace(list *field.List, d *collector.Device) bool { return isAMD(list, d) && list.AMD.InPlace }

// addAMD adds the series of a source under AMD's names, all gauges.
func (b *builder) addAMD(source int) {
	s := b.layout.view.Sources[source]
	labels := &amdLabels{b: b, list: s.Fields.AMD}
	by := map[field.ID][]amdSeries{}
	for _, n := range labels.list.Names() {
		name := n.Metric(labels.list.Prefix)
		fam := b.families[name]
		switch {
		case fam == nil:
			fam = &family{name: name, help: amdHelp(n), kind: gauge, amd: true}
			b.families[name] = fam
		case !fam.amd: // a prefix made it the name of another field
			b.layout.stats.misfits++
			continue
		}
		for i := range n.Of {
			by[n.Of[i].ID] = append(by[n.Of[i].ID], amdSeries{&n.Of[i], fam})
		}
		b.addKnown(n, fam, source, labels)
	}
	for i := range s.Columns {
		c := &s.Columns[i]
		if c.Device < 0 || c.Device >= len(s.Devices) {
			continue // counted in addSource
		}
		d := &s.Devices[c.Device]
		if !isAMD(&s.Fields, d) || c.Buffer > 0 || d.Level == field.GPU && b.amd.parts[d.ID][c.Field] {
			continue
		}
		at, device := b.snap.roster.at(source, i, c.Device)
		for _, as := range by[c.Field] {
			if more, ok := amdColumn(as.source, c.Labels); ok {
				b.addGauge(as.family, labels.of(d, more), field.NewScale(as.source.Scale), &b.snap.cells[at], device)
			}
		}
	}
}

type amdSeries struct {
	source *field.AMDSource
	family *family
}

func amdHelp(n *field.AMDName) string {
	if n.Unit == "" {
		return n.Help
	}
	return n.Help + " (" + n.Unit + ")"
}

// addKnown adds what the exporter knows without a reading.
func (b *builder) addKnown(n *field.AMDName, fam *family, source int, labels *amdLabels) {
	s := b.layout.view.Sources[source]
	for i := range s.Devices {
		d := &s.Devices[i]
		if !isAMD(&s.Fields, d) || d.Level != field.GPU && d.Level != field.Instance {
			continue
		}
		_, device := b.snap.roster.at(source, 0, i)
		switch n.Field {
		case field.AMDNodes:
			if d.ID == b.amd.node {
				count := float64(b.amd.count)
				b.addGauge(fam, []*labelSet{labels.ofNode()}, field.NewScale(1), &count, b.snap.roster.event(device))
			}
		case field.AMDHealth:
			if b.o.Health != nil && b.amd.shown(d) == d {
				b.addGauge(fam, labels.of(d, nil), field.NewScale(1), &b.snap.health[device], device)
			}
		}
	}
}

func (b *builder) addGauge(fam *family, sets []*labelSet, scale field.Scale, value *float64, device int32) {
	for _, set := range sets {
		if b.claim(fam, set, device) {
			fam.samples = append(fam.samples, sampleSeries{labels: set, scale: scale, value: value, device: device})
		}
	}
}

// amdColumn returns the labels that a column has under a name of AMD's, false if it is not
// shown there.
func amdColumn(s *field.AMDSource, column []collector.Label) (more []collector.Label, ok bool) {
	if want := len(s.Where) + min(len(s.Index.From), 1); len(column) != want {
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
	if s.Index.From == "" {
		return more, true
	}
	for _, l := range column {
		digits, has := strings.CutPrefix(l.Value, s.Index.Prefix)
		if number, err := strconv.Atoi(digits); l.Name == s.Index.From && has && err == nil {
			return append(more, collector.Label{Name: s.Index.To, Value: strconv.Itoa(number + s.Index.Plus)}), true
		}
	}
	return nil, false
}

// amdLabels makes the label sets of one device after the other. All labels are there, be
// they empty, as AMD's exporter has them.
type amdLabels struct {
	b      *builder
	list   *field.AMD
	names  []string
	device *collector.Device
	owners []Owner
	bare   []*labelSet // of columns without labels
}

func (l *amdLabels) of(d *collector.Device, more []collector.Label) []*labelSet {
	if d = l.b.amd.shown(d); l.device != d {
		l.device, l.owners, l.bare = d, l.b.o.owners(d), nil
		if len(l.owners) == 0 {
			l.owners = []Owner{{}}
		}
	}
	if len(more) > 0 {
		return l.make(more)
	}
	if l.bare == nil {
		l.bare = l.make(nil)
	}
	return l.bare
}

func (l *amdLabels) make(more []collector.Label) []*labelSet {
	if l.names == nil {
		l.names = l.list.LabelNames()
	}
	sets := make([]*labelSet, 0, len(l.owners))
	for i := range l.owners {
		pairs := slices.Clone(more)
		for _, name := range l.names {
			pairs = append(pairs, collector.Label{Name: name, Value: l.value(name, &l.owners[i])})
		}
		if set := l.set(pairs); !slices.Contains(sets, set) { // owners with the same labels are one
			sets = append(sets, set)
		}
	}
	return sets
}

// ofNode are the labels of what belongs to the node.
func (l *amdLabels) ofNode() *labelSet {
	pairs := []collector.Label{{Name: "hostname", Value: l.b.o.Hostname}}
	for _, c := range l.list.Custom {
		pairs = append(slices.DeleteFunc(pairs, func(p collector.Label) bool { return p.Name == c.Name }), collector.Label(c))
	}
	return l.set(pairs)
}

func (l *amdLabels) set(pairs []collector.Label) *labelSet {
	slices.SortFunc(pairs, func(x, y collector.Label) int { return strings.Compare(x.Name, y.Name) })
	labels := labelsOf{fixed: pairs}
	set := l.b.intern(labels.set())
	l.b.layout.stats.labels += labels.dropped
	return set
}

// value is that of a label of the device with an owner.
func (l *amdLabels) value(name string, o *Owner) string {
	if v, custom := l.list.CustomValue(name); custom {
		return v
	}
	switch name {
	case "gpu_id":
		return strconv.Itoa(l.b.amd.gpuID(l.device))
	case "gpu_partition_id":
		return strconv.Itoa(partition(l.device))
	case "hostname":
		return l.b.o.Hostname
	}
	for _, all := range [][]collector.Label{l.device.AMD, o.AMD} {
		for _, p := range all {
			if p.Name == name {
				return p.Value
			}
		}
	}
	for _, p := range o.Labels {
		if amdOwner(p.Name) == name {
			return p.Value
		}
	}
	return ""
}

// amdOwner is how AMD's exporter calls a label of an owner.
func amdOwner(name string) string {
	switch name {
	case "pod_name", "pod_namespace", "container_name": // of before dcgm-exporter 2.0
		return map[string]string{"pod_name": "pod", "pod_namespace": "namespace", "container_name": "container"}[name]
	case "hpc_job":
		return "job_id"
	case "pod_uid":
		return "pod_uuid"
	}
	return name
}

// readHealth takes what is known of the health of AMD's devices: 1, 0, or NaN.
func (s *snapshot) readHealth(of func(*collector.Device) float64) {
	if of == nil {
		return
	}
	device := 0
	for _, source := range s.view.Sources {
		for i := range source.Devices {
			s.health[device] = math.NaN()
			if isAMD(&source.Fields, &source.Devices[i]) {
				s.health[device] = of(&source.Devices[i])
			}
			device++
		}
	}
}
