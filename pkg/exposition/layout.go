package exposition

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// layout lists the families and series, sorted by name, and the place of each value. It is immutable, except for
// computed values and the protobuf parts, which are encoded at first use.
type layout struct {
	view     *view.View
	store    uint64 // version of the accumulated series
	owners   uint64 // version of the owners
	shares   uint64 // set of the shares; 0: none
	families []*family
	sets     []*labelSet
	encoded  bool // protobuf parts of families and sets are made
	computed []*computed
	stats    layoutStats
}

// layoutStats holds the metrics about a layout.
type layoutStats struct {
	series     int
	duplicates int // series left out: another has the same name and labels
	misfits    int // series left out: illegal name, type of another field's family, no such device or bucket
	labels     int // labels left out: name taken or illegal
}

// builder makes a layout.
type builder struct {
	o        *Options
	layout   *layout
	snap     *snapshot
	families map[string]*family
	sets     map[string]*labelSet
	bounds   map[*float64]*boundTexts
	claimed  map[identity]int32 // device of the last series with that name and labels
}

// identity identifies a series; it is unique on a page. Label sets are interned, so comparing pointers compares texts.
type identity struct {
	family *family
	labels *labelSet
}

// build returns the layout for v, its accumulated series and the shares of its devices' users. s holds the values of v.
func build(o *Options, v *view.View, s *snapshot, accumulated []accumulate.Series, shares *view.Shares) *layout {
	b := &builder{
		o:        o,
		layout:   &layout{view: v},
		snap:     s,
		families: map[string]*family{},
		sets:     map[string]*labelSet{},
		bounds:   map[*float64]*boundTexts{},
		claimed:  map[identity]int32{},
	}
	for i, s := range v.Sources {
		b.addSource(i, s)
	}
	b.addAccumulated(accumulated)
	b.addShares(shares)
	b.addDialects()
	return b.finish()
}

// addSource adds a series for every column, metric field of its reading and owner of its device, device by
// device in any order of columns.
func (b *builder) addSource(index int, s *view.Source) {
	byReading := metricsByReading(s)
	order := make([]int, len(s.Columns))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(s.Columns[x].Device, s.Columns[y].Device) })

	labels := &deviceLabels{b: b}
	for _, i := range order {
		c := &s.Columns[i]
		fields := byReading[c.Field]
		if len(fields) == 0 || c.Buffer > 0 {
			continue
		}
		if c.Device < 0 || c.Device >= len(s.Devices) {
			b.layout.stats.misfits += len(fields)
			continue
		}
		if InPlace(&s.Fields, &s.Devices[c.Device]) {
			continue
		}
		xid := c.Field == field.XIDErrors
		sets := labels.setsOf(&s.Devices[c.Device], c.Field, c.Labels, xid)
		at, device := b.snap.roster.at(index, i, c.Device)
		for _, f := range fields {
			b.addCell(f, sets, xid, &b.snap.cells[at], device)
		}
	}
}

// metricsByReading returns the fields of a source that show the newest value of a reading.
func metricsByReading(s *view.Source) map[field.ID][]*field.Field {
	by := map[field.ID][]*field.Field{}
	for i := range s.Fields.Fields {
		f := &s.Fields.Fields[i]
		if _, computed := field.Input(f.Desc); !computed && f.Type != field.Label && f.Type != field.Histogram {
			by[f.Desc.ID] = append(by[f.Desc.ID], f)
		}
	}
	return by
}

// addCell adds a series of a value for each label set.
func (b *builder) addCell(f *field.Field, sets []*labelSet, xid bool, value *float64, device int32) {
	fam := b.family(f, kindOf(f.Type))
	if fam == nil {
		b.layout.stats.misfits += len(sets)
		return
	}
	list := &fam.samples
	if xid {
		list, device = &fam.xids, b.snap.roster.event(device)
	}
	for _, set := range sets {
		if b.claim(fam, set, device) {
			*list = append(*list, sampleSeries{labels: set, scale: field.NewScale(f.Scale), value: value, device: device})
		}
	}
}

func (b *builder) addAccumulated(all []accumulate.Series) {
	index := map[*view.Source]int{}
	for i, s := range b.layout.view.Sources {
		index[s] = i
	}
	labels := &deviceLabels{b: b}
	for i := range all {
		s := &all[i]
		source, known := index[s.Source]
		if !known || s.Device < 0 || s.Device >= len(s.Source.Devices) {
			b.layout.stats.misfits++
			continue
		}
		if InPlace(&s.Source.Fields, &s.Source.Devices[s.Device]) {
			continue
		}
		_, device := b.snap.roster.at(source, 0, s.Device)
		if id := s.Field.Desc.ID; id == field.XIDErrorsCount || id == field.XIDErrorsTotal {
			device = b.snap.roster.event(device)
		}
		b.addSeries(s, labels.setsOf(&s.Source.Devices[s.Device], s.Field.Desc.ID, s.Labels, false), device)
	}
}

func (b *builder) addSeries(s *accumulate.Series, sets []*labelSet, device int32) {
	k := kindOf(s.Field.Type)
	if s.Histogram != nil {
		k = histogram
	}
	fam := b.family(s.Field, k)
	if fam == nil || s.Histogram == nil && s.Value == nil {
		b.layout.stats.misfits += len(sets)
		return
	}
	for _, set := range sets {
		switch {
		case !b.claim(fam, set, device):
		case s.Histogram != nil:
			fam.histograms = append(fam.histograms, histogramSeries{labels: set, state: s.Histogram, bounds: b.boundsOf(s.Histogram.Bounds), device: device})
		default:
			fam.samples = append(fam.samples, sampleSeries{labels: set, scale: field.NewScale(1), value: s.Value, device: device, created: s.Created})
		}
	}
}

// family returns the family of a field. If several sources or lines share a name, the first in the View's
// order sets type and help. It returns nil if a histogram would share the family with single values.
func (b *builder) family(f *field.Field, k kind) *family {
	if fam := b.families[f.Name]; fam != nil {
		if (fam.kind == histogram) != (k == histogram) {
			return nil
		}
		return fam
	}
	if !model.LegacyValidation.IsValidMetricName(f.Name) {
		return nil
	}
	help := strings.TrimSpace(printable(f.Help)) // text 0.0.4 cannot have blanks around it
	fam := &family{name: f.Name, help: help, kind: k}
	b.families[f.Name] = fam
	return fam
}

// claim reports whether a series may be added: no other series has its name and labels, except series of the
// same device from another source, which are never on the same page.
func (b *builder) claim(f *family, set *labelSet, device int32) bool {
	id := identity{f, set}
	last, taken := b.claimed[id]
	if taken && (last >= device || b.snap.roster.firstOf(last) != b.snap.roster.firstOf(device)) {
		b.layout.stats.duplicates++
		return false
	}
	b.claimed[id] = device
	return true
}

func (b *builder) boundsOf(bounds []float64) *boundTexts {
	if len(bounds) == 0 {
		return newBoundTexts(nil)
	}
	texts := b.bounds[&bounds[0]]
	if texts == nil || len(texts[classic]) != len(bounds)+1 {
		texts = newBoundTexts(bounds)
		b.bounds[&bounds[0]] = texts
	}
	return texts
}

// finish sorts the families and drops those whose name a histogram needs for its parts.
func (b *builder) finish() *layout {
	l := b.layout
	parts := map[string]bool{}
	for name, f := range b.families {
		if f.kind == histogram {
			for _, part := range [...]string{"_bucket", "_sum", "_count"} {
				parts[name+part] = true
			}
		}
	}
	for name, f := range b.families {
		switch {
		case parts[name]:
			l.stats.misfits += f.size()
		case f.size() > 0:
			l.families = append(l.families, f)
			l.stats.series += f.size()
		}
	}
	slices.SortFunc(l.families, func(x, y *family) int { return cmp.Compare(x.name, y.name) })
	for _, f := range l.families {
		f.finish(func(name string) bool { return b.families[name] != nil })
	}
	return l
}

func (b *builder) intern(set *labelSet) *labelSet {
	key := set.key()
	if old := b.sets[key]; old != nil {
		return old
	}
	b.sets[key] = set
	b.layout.sets = append(b.layout.sets, set)
	return set
}

// addShares adds a series for every Share, metric field of its reading and source that has its device. At
// most one of those sources is on a page.
func (b *builder) addShares(shares *view.Shares) {
	if len(shares.Series) == 0 {
		return
	}
	of := map[string][]int{}
	for i := range shares.Series {
		id := shares.Series[i].Device
		of[id] = append(of[id], i)
	}
	for i, s := range b.layout.view.Sources {
		b.addSharesOf(i, s, shares, of)
	}
}

func (b *builder) addSharesOf(index int, s *view.Source, shares *view.Shares, of map[string][]int) {
	byReading := metricsByReading(s)
	labels := &deviceLabels{b: b}
	for d := range s.Devices {
		if !s.Devices[d].Ownable() || InPlace(&s.Fields, &s.Devices[d]) {
			continue
		}
		_, device := b.snap.roster.at(index, 0, d)
		for _, at := range of[s.Devices[d].ID] {
			share := &shares.Series[at]
			fields := byReading[share.Field]
			if len(fields) == 0 {
				continue
			}
			labels.turn(&s.Devices[d])
			set := []*labelSet{labels.one(&share.Owner, nil, false)}
			for _, f := range fields {
				b.addCell(f, set, false, &b.snap.shares[at], device)
			}
		}
	}
}
