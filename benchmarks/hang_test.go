package benchmarks

import (
	"slices"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/fake"
)

// BenchmarkHungGPU compares the latency of scrapes of two nodes that differ in
// one thing: on the second, GPU 3 hangs for ever within its library call. Each
// iteration sends 200 scrapes to either, in turns, while both sample at 100 ms.
// Reported are quantiles with and without, and the age of the oldest value of
// the GPUs that do not hang.
func BenchmarkHungGPU(b *testing.B) {
	spec, err := fake.ParseSpec(strings.NewReader("faults:\n  - {at: 300ms, device: 3, kind: hang}\n"))
	must(b, err)
	list := defaultCounters(b)
	healthy := startNode(b, fake.Options{Profile: "dgx-h100"}, list, 100*time.Millisecond)
	hung := startNode(b, fake.Options{Profile: "dgx-h100", Spec: spec}, list, 100*time.Millisecond)
	c := client(2)
	time.Sleep(time.Second) // GPU 3 hangs now
	var with, without []time.Duration
	var oldest time.Duration
	for b.Loop() {
		for range 200 {
			without = append(without, timed(b, func() error { _, err := get(c, healthy.url); return err }))
			with = append(with, timed(b, func() error { _, err := get(c, hung.url); return err }))
			oldest = max(oldest, hung.oldestSample(b, 1))
		}
	}
	report := func(d []time.Duration, q float64, name string) {
		slices.Sort(d)
		b.ReportMetric(float64(d[int(q*float64(len(d)-1))].Microseconds()), name)
	}
	report(without, 0.5, "µs-p50-healthy")
	report(with, 0.5, "µs-p50-hung")
	report(without, 0.99, "µs-p99-healthy")
	report(with, 0.99, "µs-p99-hung")
	b.ReportMetric(float64(oldest.Milliseconds()), "ms-oldest-value-of-the-others")
	b.ReportMetric(0, "ns/op")
}

func timed(b *testing.B, f func() error) time.Duration {
	start := time.Now()
	must(b, f())
	return time.Since(start)
}

// oldestSample returns the age of the oldest last sample, leaving out the
// devices that are the oldest few.
func (n *node) oldestSample(b *testing.B, leaveOut int) time.Duration {
	var ages []time.Duration
	for _, d := range n.sampler.Status().Devices {
		if d.Device.Parent == "" {
			ages = append(ages, time.Since(d.LastSample))
		}
	}
	if len(ages) <= leaveOut {
		b.Fatalf("%d devices", len(ages))
	}
	slices.Sort(ages)
	return ages[len(ages)-1-leaveOut]
}
