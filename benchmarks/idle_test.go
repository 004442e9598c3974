package benchmarks

import (
	"fmt"
	"testing"
	"time"

	"warpgauge/collectors/fake"
)

// BenchmarkIdle measures the CPU time that an exporter of 8 simulated GPUs uses
// while it is not scraped, with one row a second and with none.
func BenchmarkIdle(b *testing.B) {
	for _, interval := range []time.Duration{time.Second, time.Hour} {
		b.Run(fmt.Sprintf("interval=%v", interval), func(b *testing.B) {
			startNode(b, fake.Options{Profile: "dgx-h100"}, defaultCounters(b), interval)
			time.Sleep(2 * time.Second) // the first layout and gatherings
			start, begin := cpuTime(b), time.Now()
			for b.Loop() {
				time.Sleep(10 * time.Second)
			}
			b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/1000/time.Since(begin).Seconds(), "cpu-ms/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
