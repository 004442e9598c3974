package main

import (
	"context"
	"time"
)

// callCost is the cost of one kind of library call.
type callCost struct {
	call    string
	perCall time.Duration
	perHour float64 // seconds spent in it per hour of sampling as in the check
}

// costs compares two pages that were taken so long apart.
func costs(before, after *page, apart time.Duration) []callCost {
	count := difference(before, after, "warpgauge_library_calls_total")
	spent := difference(before, after, "warpgauge_library_call_seconds_total")
	var out []callCost
	for _, call := range sorted(count) {
		if count[call] > 0 {
			out = append(out, callCost{call, seconds(spent[call] / count[call]), spent[call] / apart.Hours()})
		}
	}
	return out
}

func difference(before, after *page, metric string) map[string]float64 {
	out := after.total(metric, "call")
	for call, v := range before.total(metric, "call") {
		out[call] -= v
	}
	return out
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// usage is the exporter's processor time at one interval.
type usage struct {
	every   time.Duration
	percent float64 // of one core
	memory  float64 // resident bytes, the children's not included
}

// measureCPU runs the exporter with its default fields at an interval.
func measureCPU(ctx context.Context, o options, every time.Duration) (usage, error) {
	e, err := startExporter(ctx, o, every, "")
	if err != nil {
		return usage{}, err
	}
	u, err := e.measure(ctx, every, o.window)
	if e := e.stop(); err == nil {
		err = e
	}
	return u, err
}

func (e *exporter) measure(ctx context.Context, every, window time.Duration) (usage, error) {
	if err := wait(ctx, time.Second); err != nil { // what starting has cost is over
		return usage{}, err
	}
	a, err := e.cpu()
	if err != nil {
		return usage{}, err
	}
	start := time.Now()
	if err := wait(ctx, window); err != nil {
		return usage{}, err
	}
	b, err := e.cpu()
	if err != nil {
		return usage{}, err
	}
	u := usage{every: every, percent: 100 * (b - a).Seconds() / time.Since(start).Seconds()}
	p, err := scrape(ctx, e.url)
	if err != nil {
		return usage{}, err
	}
	for _, m := range p.families["process_resident_memory_bytes"].GetMetric() {
		u.memory = valueOf(m)
	}
	return u, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
