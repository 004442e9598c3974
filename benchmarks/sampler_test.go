package benchmarks

import (
	"context"
	"math"
	"syscall"
	"testing"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/supervisor"
)

// memorySource fills its row from memory: what is measured is the sampler, the
// ring and the runtime's timers, not a library.
type memorySource struct {
	devices []collector.Device
	columns []collector.Column
	calls   float64
}

func (s *memorySource) Devices() []collector.Device { return s.devices }
func (s *memorySource) Columns() []collector.Column { return s.columns }
func (s *memorySource) Sample(row []float64, due []bool) error {
	s.calls++
	for i := range row {
		if due[i] {
			row[i] = s.calls
		}
	}
	return nil
}

type memoryCollector struct{ sources, columns int }

func (c memoryCollector) Name() string { return "memory" }
func (c memoryCollector) Close() error { return nil }
func (c memoryCollector) Open(context.Context, field.List) ([]collector.Source, error) {
	var out []collector.Source
	for i := range c.sources {
		s := &memorySource{devices: []collector.Device{{ID: "GPU-" + string(rune('a'+i)), Level: field.GPU}}}
		for j := range c.columns {
			s.columns = append(s.columns, collector.Column{Field: field.ID(60000 + j)})
		}
		out = append(out, s)
	}
	return out, nil
}

func anyFields(n int) (l field.List) {
	for j := range n {
		d := &field.Descriptor{ID: field.ID(60000 + j), Name: "F", Min: math.Inf(-1), Max: math.Inf(1)}
		l.Fields = append(l.Fields, field.Field{Desc: d, Name: d.Name, Scale: 1})
	}
	return l
}

// cpuTime is the user and system time of this process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSampler runs 16 sources of 100 columns at 10 ms ticks for two seconds
// per iteration and reports how much of one core that takes.
func BenchmarkSampler(b *testing.B) {
	const sources, columns = 16, 100
	factory := func() collector.Collector { return memoryCollector{sources, columns} }
	s := supervisor.New(supervisor.Wanted{List: anyFields(columns)}, supervisor.Options{
		Name: "memory", Open: factory, Session: session.Options{Interval: 10 * time.Millisecond},
	})
	ctx, cancel := context.WithCancel(b.Context())
	ended := runInBackground(ctx, s)
	for len(s.Board().Load().Sources) < sources {
		time.Sleep(time.Millisecond)
	}
	rows := func() (n uint64) {
		for _, src := range s.Board().Load().Sources {
			n += src.Ring.Head()
		}
		return n
	}
	var cpu, wall time.Duration
	var ticks uint64
	for b.Loop() {
		c, w, t := cpuTime(b), time.Now(), rows()
		time.Sleep(2 * time.Second)
		cpu, wall, ticks = cpu+cpuTime(b)-c, wall+time.Since(w), ticks+rows()-t
	}
	b.ReportMetric(100*cpu.Seconds()/wall.Seconds(), "%core")
	b.ReportMetric(float64(ticks)/wall.Seconds(), "ticks/s")
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(ticks*columns), "cpu-ns/cell")
	b.ReportMetric(0, "ns/op")
	cancel()
	<-ended
}

func runInBackground(ctx context.Context, s *supervisor.Supervisor) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return done
}
