package isolation

import (
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// metricSet is what a child counts: its counters and histograms. States, which
// are gauges, are not carried; the parent tells them, also of a child that is
// gone.
type metricSet struct{ families []countedFamily }

type countedFamily struct {
	name, help string
	bounds     []float64 // of a histogram; nil for a counter
	histogram  bool
	series     []counted
}

// counted is one series.
type counted struct {
	labels []dtoLabel
	value  float64  // of a counter, or the sum of a histogram
	count  uint64   // of a histogram
	counts []uint64 // by bound, cumulative
}

type dtoLabel struct{ name, value string }

func (m *metricSet) encode(e *encoder) {
	e.uint(uint64(len(m.families)))
	for i := range m.families {
		f := &m.families[i]
		e.text(f.name, maxName)
		e.text(f.help, maxText)
		e.bool(f.histogram)
		e.uint(uint64(len(f.bounds)))
		for _, b := range f.bounds {
			e.float(b)
		}
		e.uint(uint64(len(f.series)))
		for j := range f.series {
			s := &f.series[j]
			e.uint(uint64(len(s.labels)))
			for _, l := range s.labels {
				e.text(l.name, maxName)
				e.text(l.value, maxText)
			}
			e.float(s.value)
			if f.histogram {
				e.uint(s.count)
				for _, c := range s.counts {
					e.uint(c)
				}
			}
		}
	}
}

func (m *metricSet) decode(d *decoder) {
	m.families = make([]countedFamily, d.count(maxFamilies, 5))
	total := 0
	for i := range m.families {
		f := &m.families[i]
		f.name, f.help, f.histogram = d.text(maxName), d.text(maxText), d.bool()
		if d.err == nil && !ourMetric(f.name) {
			d.fail("metric %q is none of ours", f.name)
		}
		f.bounds = make([]float64, d.count(maxBuckets, 8))
		for j := range f.bounds {
			f.bounds[j] = d.float()
			if math.IsNaN(f.bounds[j]) || j > 0 && f.bounds[j] <= f.bounds[j-1] {
				d.fail("bounds of histogram %q do not ascend", f.name)
			}
		}
		f.series = make([]counted, d.count(maxSeries-total, 9))
		total += len(f.series)
		for j := range f.series {
			f.series[j].decode(d, f)
		}
	}
}

func (s *counted) decode(d *decoder, f *countedFamily) {
	s.labels = make([]dtoLabel, d.count(maxLabels, 2))
	for i := range s.labels {
		s.labels[i] = dtoLabel{d.text(maxName), d.text(maxText)}
		if name := s.labels[i].name; d.err == nil && (!word(name) || i > 0 && name <= s.labels[i-1].name) {
			d.fail("label %q of metric %q is illegal or out of order", name, f.name)
		}
	}
	s.value = d.float()
	if d.err == nil && (math.IsNaN(s.value) || math.IsInf(s.value, 0) || s.value < 0) {
		d.fail("metric %q counts %v", f.name, s.value)
	}
	if !f.histogram {
		return
	}
	s.count = d.below(1 << 53)
	if len(d.b) < len(f.bounds) {
		d.fail("a histogram is cut off")
		return
	}
	s.counts = make([]uint64, len(f.bounds))
	for i := range s.counts {
		s.counts[i] = d.below(s.count + 1)
		if i > 0 && s.counts[i] < s.counts[i-1] {
			d.fail("buckets of %q go down", f.name)
		}
	}
}

// ourMetric reports whether the name is in our namespace and legal.
func ourMetric(name string) bool { return strings.HasPrefix(name, "warpgauge_") && word(name) }

// word reports whether s is a legal name of a metric or label of ours.
func word(s string) bool {
	for i, r := range s {
		if (r < 'a' || r > 'z') && r != '_' && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && !strings.HasPrefix(s, "__")
}

// countsOf picks the counters and histograms of what a registry has gathered.
func countsOf(gathered []*dto.MetricFamily) *metricSet {
	m := &metricSet{}
	for _, g := range gathered {
		f := countedFamily{name: g.GetName(), help: g.GetHelp()}
		switch g.GetType() {
		case dto.MetricType_COUNTER:
		case dto.MetricType_HISTOGRAM:
			f.histogram = true
		default:
			continue
		}
		for i, s := range g.GetMetric() {
			c := counted{value: s.GetCounter().GetValue()}
			for _, l := range s.GetLabel() {
				c.labels = append(c.labels, dtoLabel{l.GetName(), l.GetValue()})
			}
			if f.histogram {
				h := s.GetHistogram()
				c.value, c.count = h.GetSampleSum(), h.GetSampleCount()
				for _, b := range h.GetBucket() {
					if i == 0 {
						f.bounds = append(f.bounds, b.GetUpperBound())
					}
					c.counts = append(c.counts, b.GetCumulativeCount())
				}
			}
			f.series = append(f.series, c)
		}
		m.families = append(m.families, f)
	}
	slices.SortFunc(m.families, func(a, b countedFamily) int { return strings.Compare(a.name, b.name) })
	return m
}
