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
func costs(before, after page, apart time.Duration) (out []callCost) {
	const calls, seconds = "warpgauge_library_calls_total", "warpgauge_library_call_seconds_total"
	count, spent := after.total(calls, "call"), after.total(seconds, "call")
	for call, n := range before.total(calls, "call") {
		count[call] -= n
	}
	for call, s := range before.total(seconds, "call") {
		spent[call] -= s
	}
	for _, call := range sorted(count) {
		if count[call] > 0 {
			out = append(out, callCost{call, time.Duration(spent[call] / count[call] * float64(time.Second)), spent[call] / apart.Hours()})
		}
	}
	return out
}

// usage is the exporter's processor time at one interval.
type usage struct {
	every   time.Duration
	percent float64 // of one core
	memory  float64 // resident bytes, the children's not included
}

// measureCPU runs the exporter with its default fields at an interval.
func measureCPU(ctx context.Context, o options, every time.Duration) (usage, error) {
	u := usage{every: every}
	err := withExporter(ctx, o, every, "", func(e *exporter) error {
		var pages [2]page
		var at [2]time.Time
		for i, before := range []time.Duration{time.Second, o.window} { // what starting has cost is over
			err := wait(ctx, before)
			if err != nil {
				return err
			}
			at[i] = time.Now()
			if pages[i], err = scrape(ctx, e.url); err != nil {
				return err
			}
		}
		u.percent = 100 * (pages[1].cpu() - pages[0].cpu()) / at[1].Sub(at[0]).Seconds()
		u.memory = pages[1].total("process_resident_memory_bytes", "")[""]
		return nil
	})
	return u, err
}

// cpu returns the processor time of the exporter and its children in seconds.
func (p page) cpu() float64 {
	sum := p.total("process_cpu_seconds_total", "")[""]
	for _, child := range p.total("warpgauge_collector_child_cpu_seconds_total", "collector") {
		sum += child
	}
	return sum
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
