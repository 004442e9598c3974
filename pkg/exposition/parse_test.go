package exposition

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	promhistogram "github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"warpgauge/internal/testkit"
)

// said is the content of a page, from Prometheus' own parser.
type said struct {
	Values     map[string]float64
	Types      map[string]model.MetricType
	Help       map[string]string
	Histograms map[string]string // native
	Began      map[string]int64  // of series and native histograms by name and xid, Unix ms
}

func parse(t testing.TB, page string, f Format) said {
	t.Helper()
	p, err := textparse.New([]byte(page), f.ContentType(), nil, textparse.ParserOptions{OpenMetricsSkipSTSeries: true, KeepClassicOnClassicAndNativeHistograms: true})
	testkit.FatalIf(t, err != nil, "%v: %v", f, err)
	s := said{map[string]float64{}, map[string]model.MetricType{}, map[string]string{}, map[string]string{}, map[string]int64{}}
	once := func(key string) string {
		t.Helper()
		_, series := s.Values[key]
		_, native := s.Histograms[key]
		testkit.ErrorIf(t, series || native, "%v: %s is there twice", f, key)
		return key
	}
	var l labels.Labels
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return s
		}
		testkit.FatalIf(t, err != nil, "parse %v: %v\n%s", f, err, page)
		switch entry {
		case textparse.EntrySeries:
			_, stamp, v := p.Series()
			p.Labels(&l)
			testkit.ErrorIf(t, stamp != nil, "%v: a series has a time stamp", f)
			s.Values[once(l.WithoutEmpty().String())] = v
			s.Began[l.Get(model.MetricNameLabel)+l.Get("xid")] = p.StartTimestamp() // it reads ahead, so call it last
		case textparse.EntryHistogram:
			_, _, whole, _ := p.Histogram()
			p.Labels(&l)
			s.Histograms[once(l.WithoutEmpty().String())] = describeHistogram(whole)
			s.Began[l.Get(model.MetricNameLabel)] = p.StartTimestamp()
		case textparse.EntryType:
			name, kind := p.Type()
			_, twice := s.Types[string(name)]
			testkit.ErrorIf(t, twice, "%v: type of %s is said twice", f, name)
			s.Types[string(name)] = kind
		case textparse.EntryHelp:
			name, help := p.Help()
			if len(help) > 0 {
				s.Help[string(name)] = string(help)
			}
		}
	}
}

func describeHistogram(whole *promhistogram.Histogram) string {
	if err := whole.Validate(); err != nil {
		return err.Error()
	}
	return whole.String()
}

func TestAllFormatsSayTheSame(t *testing.T) {
	r := newNode(t)
	text := parse(t, pageOf(t, r, Text), Text)
	open := parse(t, pageOf(t, r, OpenMetrics), OpenMetrics)
	proto := parse(t, pageOf(t, r, Protobuf), Protobuf)

	testkit.ErrorIf(t, len(text.Values) < 40, "only %d series", len(text.Values))
	same := func(what string, want, got any) {
		t.Helper()
		testkit.Equal(t, what+" (-text +other)", want, got)
	}
	same("values in OpenMetrics", text.Values, open.Values)
	same("values in protobuf", text.Values, proto.Values)
	same("types in protobuf", text.Types, proto.Types)
	same("help in protobuf", text.Help, proto.Help)
	// OpenMetrics: a counter without _total is unknown; the family of one with it has no _total.
	types, help := map[string]model.MetricType{}, map[string]string{}
	for name, kind := range text.Types {
		if kind == model.MetricTypeCounter {
			if base, ok := strings.CutSuffix(name, "_total"); ok {
				help[base] = text.Help[name]
				name = base
			} else {
				kind = model.MetricTypeUnknown
			}
		}
		types[name] = kind
		if text.Help[name] != "" {
			help[name] = text.Help[name]
		}
	}
	same("types in OpenMetrics", types, open.Types)
	same("help in OpenMetrics", help, open.Help)
}

// wantLabels prints labels as parse does: Prometheus drops empty ones.
func wantLabels(name string, pairs ...string) string {
	b := labels.NewScratchBuilder(0)
	b.Add(model.MetricNameLabel, name)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			b.Add(pairs[i], pairs[i+1])
		}
	}
	b.Sort()
	return b.Labels().String()
}
