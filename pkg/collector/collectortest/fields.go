package collectortest

import (
	"testing"

	"warpgauge/pkg/field"
)

// Gauges returns a list with the named fields as gauges.
func Gauges(tb testing.TB, names ...string) (l field.List) {
	tb.Helper()
	for _, name := range names {
		d, scale, ok := field.ByName(name)
		if !ok {
			tb.Fatalf("no field %q", name)
		}
		l.Fields = append(l.Fields, field.Field{Desc: d, Name: name, Scale: scale})
	}
	return l
}

// Fields returns the whole catalogue: every number as a metric, every text as a label.
func Fields() field.List {
	var l field.List
	for _, entry := range field.All() {
		d, scale, ok := field.ByName(entry.Name)
		if !ok {
			continue
		}
		f := field.Field{Desc: d, Name: entry.Name, Help: entry.Help, Scale: scale, Line: len(l.Fields) + 1}
		switch d.Kind {
		case field.Int64, field.Double:
			f.Type = field.Gauge
		case field.String:
			f.Type = field.Label
		default:
			continue
		}
		l.Fields = append(l.Fields, f)
	}
	return l
}

// withHistograms returns l with histograms of the readings that drivers buffer: DCGM_FI_DEV_POWER_USAGE and
// DCGM_FI_DEV_GPU_UTIL.
func withHistograms(l field.List) field.List {
	for i := range l.Fields {
		if id := l.Fields[i].Desc.ID; id == 155 || id == 203 {
			l.Fields[i].Type = field.Histogram
		}
	}
	return l
}

// unknown returns a field that no collector can have.
func unknown() *field.Descriptor {
	return &field.Descriptor{ID: 65000, Name: "WARPGAUGE_TEST_UNKNOWN", Level: field.GPU, Max: 1}
}

// with returns l and one more metric.
func with(l field.List, d *field.Descriptor) field.List {
	fields := append([]field.Field(nil), l.Fields...)
	return field.List{Fields: append(fields, field.Field{Desc: d, Name: d.Name, Scale: 1, Line: len(fields) + 1})}
}

// descriptors returns the fields that collectors must supply for l, by ID.
func descriptors(l field.List) map[field.ID]*field.Descriptor {
	out := map[field.ID]*field.Descriptor{}
	for _, r := range l.Readings() {
		out[r.Desc.ID] = r.Desc
	}
	return out
}
