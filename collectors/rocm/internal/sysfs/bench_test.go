package sysfs

import (
	"context"
	"testing"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
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
	gpus, _, err := r.Find(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	wanted := everything(1)
	h, err := r.Open(context.Background(), &gpus[0], wanted)
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	values, due, m := make([]float64, len(wanted)), make([]bool, len(wanted)), new(gpumetrics.Metrics)
	has := h.Has()
	cells := 0
	for i, w := range wanted {
		fast := w.Kind < raw.Correctable && w.Kind != raw.TemperatureCrit && w.Kind != raw.TemperatureStop
		due[i] = fast && has[i]
		if due[i] {
			cells++
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := h.(raw.Files).Metrics(m); err != nil {
			b.Fatal(err)
		}
		if err := h.Read(values, due); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cells), "cells")
}
