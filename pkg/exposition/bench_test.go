package exposition

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view/viewtest"
)

// benchSizes are devices × fields; the last is 100,000 series.
var benchSizes = [][2]int{{8, 60}, {56, 60}, {1000, 100}}

func forSizes(b *testing.B, sizes [][2]int, run func(b *testing.B, f *feed)) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("devices=%d/fields=%d", size[0], size[1]), func(b *testing.B) {
			b.ReportAllocs()
			run(b, gpus(size[0], size[1]))
		})
	}
}

// benchRender renders after each new row. It does not measure the row.
func benchRender(b *testing.B, f *feed, format Format, gzip bool) {
	r := New(viewtest.Board(1, f), Options{Hostname: "node-1"})
	render := func(n int) {
		age(r)
		p := r.Page(format, gzip)
		if n == 0 {
			b.SetBytes(int64(len(p)))
		}
	}
	for n := range 4 { // buffers grow
		vary(f, n)
		f.Tick(time.Now())
		render(n)
	}
	n := 4
	for b.Loop() {
		b.StopTimer()
		vary(f, n)
		f.Tick(time.Now())
		n++
		b.StartTimer()
		render(n)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(f.Row)), "ns/series")
}

func BenchmarkRender(b *testing.B) {
	for _, format := range []Format{Text, OpenMetrics, Protobuf} {
		b.Run(format.String(), func(b *testing.B) {
			forSizes(b, benchSizes, func(b *testing.B, f *feed) { benchRender(b, f, format, false) })
		})
	}
}

func BenchmarkRenderAndCompress(b *testing.B) {
	forSizes(b, benchSizes[:2], func(b *testing.B, f *feed) { benchRender(b, f, Text, true) })
}

// BenchmarkClientGolang is the rival: const metrics made from the row, gathered and encoded as text into a reused buffer.
func BenchmarkClientGolang(b *testing.B) {
	forSizes(b, benchSizes, func(b *testing.B, f *feed) {
		registry := prometheus.NewRegistry()
		registry.MustRegister(newConstCollector(f))
		var out bytes.Buffer
		n := 0
		for b.Loop() {
			b.StopTimer()
			vary(f, n)
			n++
			b.StartTimer()
			out.Reset()
			families := testkit.Get(registry.Gather())(b)
			for _, mf := range families {
				testkit.Get(expfmt.MetricFamilyToText(&out, mf))(b)
			}
		}
		b.SetBytes(int64(out.Len()))
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(f.Row)), "ns/series")
	})
}

// constCollector shows the row of a feed the ordinary way.
type constCollector struct {
	feed  *feed
	descs map[field.ID]*prometheus.Desc
}

func newConstCollector(f *feed) *constCollector {
	c := &constCollector{feed: f, descs: map[field.ID]*prometheus.Desc{}}
	for _, m := range f.Fields.Fields {
		c.descs[m.Desc.ID] = prometheus.NewDesc(m.Name, m.Help,
			[]string{"gpu", "UUID", "pci_bus_id", "device", "modelName", "hostname", "DCGM_FI_DRIVER_VERSION"}, nil)
	}
	return c
}

func (c *constCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

func (c *constCollector) Collect(ch chan<- prometheus.Metric) {
	for i, col := range c.feed.Columns {
		d := &c.feed.Devices[col.Device]
		ch <- prometheus.MustNewConstMetric(c.descs[col.Field], prometheus.GaugeValue, c.feed.Row[i],
			d.GPU, d.UUID, d.PCIBusID, d.Node, d.Model, "node-1", d.Facts[0].Value)
	}
}

func BenchmarkCachedPage(b *testing.B) {
	for _, sources := range []int{1, 16, 1000} {
		b.Run(fmt.Sprintf("sources=%d", sources), func(b *testing.B) {
			var all []*feed
			for range sources {
				f := gpus(1, 1)
				f.Tick(time.Now())
				all = append(all, f)
			}
			r := New(viewtest.Board(1, all...), Options{StaleAfter: time.Hour})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r.Page(Text, false)
				}
			})
		})
	}
}
