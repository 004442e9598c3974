package sysfs

import (
	"context"
	"testing"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/rocmtest"
)

func TestReadAllocatesNothing(t *testing.T) {
	for _, o := range []rocmtest.Options{{GPUs: 1, Deferred: true}, {Model: rocmtest.RX7900, GPUs: 1}} {
		f := open(t, o, 0)
		f.tree.GPUs[0].Set(t, "ras/sdma_err_count", rocmtest.Inaccessible)
		f.tree.GPUs[0].Set(t, "mem_busy_percent", "")
		m := new(gpumetrics.Metrics)
		for i, w := range f.wanted {
			f.due[i] = !perProcess(w)
		}
		tick := func() {
			if f.h.Suspended() || f.h.Metrics(m) != nil || f.h.Read(f.values, f.due) != nil {
				panic("not read")
			}
		}
		tick()
		if n := testing.AllocsPerRun(100, tick); n != 0 {
			t.Errorf("%v allocations in a tick", n)
		}
	}
}

func BenchmarkTick(b *testing.B) {
	tree := rocmtest.NewTree(b, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 1})
	r := New(Options{Root: tree.Root})
	found, err := r.Find(context.Background())
	gpus := found.GPUs
	if err != nil {
		b.Fatal(err)
	}
	wanted := everything(1)
	h := r.Open(&gpus[0], wanted)
	defer h.Close()
	values, due, m := make([]float64, len(wanted)), make([]bool, len(wanted)), new(gpumetrics.Metrics)
	has := h.Has()
	cells := 0
	for i, w := range wanted {
		fast := w.Kind < Correctable && w.Kind != TemperatureCrit && w.Kind != TemperatureStop
		due[i] = fast && has[i]
		if due[i] {
			cells++
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := h.Metrics(m); err != nil {
			b.Fatal(err)
		}
		if err := h.Read(values, due); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cells), "cells")
}
