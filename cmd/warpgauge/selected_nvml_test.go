//go:build linux && cgo

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/nvml"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// TestSelectionOfMIG: what -d leaves of a node with a GPU in MIG mode and one that
// is not, through NVML, and that hiding costs no allocation.
func TestSelectionOfMIG(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2, MIG: map[int][]string{0: {"1g.10gb", "3g.40gb"}}})
	list, _, err := field.Parse(strings.NewReader("DCGM_FI_DEV_GPU_TEMP, gauge, a\nDCGM_FI_DEV_FB_USED, gauge, b\nDCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, c\n"), field.ParseOptions{})
	must(t, err)
	factory := func() collector.Collector {
		return nvml.New(nvml.Options{Library: n.Library(), Root: n.Root(), Getenv: func(string) string { return "" }})
	}
	for _, c := range []struct {
		gpus string
		want []string // device and field
	}{
		{"f", []string{"0 TEMP", "0/1 FB", "0/1 GR", "0/7 FB", "0/7 GR", "1 FB", "1 GR", "1 TEMP"}},
		{"g", []string{"0 FB", "0 TEMP", "1 FB", "1 GR", "1 TEMP"}},
		{"i", []string{"0/1 FB", "0/1 GR", "0/7 FB", "0/7 GR"}},
		{"g:0", []string{"0 FB", "0 TEMP"}},
		{"i:7", []string{"0/7 FB", "0/7 GR"}},
		{"g:1+i:1", []string{"0/1 FB", "0/1 GR", "1 FB", "1 GR", "1 TEMP"}},
	} {
		open := choose(t, c.gpus, "f", "f").wrap(factory)()
		sources, err := open.Open(t.Context(), list)
		must(t, err)
		var got []string
		for _, s := range sources {
			got = append(got, told(s)...)
			checkAllocations(t, c.gpus, s)
		}
		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("-d %s (-want +got):\n%s", c.gpus, diff)
		}
		must(t, open.Close())
	}
}

// told names the columns of a source.
func told(s collector.Source) (out []string) {
	devices := s.Devices()
	short := map[field.ID]string{150: " TEMP", 252: " FB", 1001: " GR"}
	for _, c := range s.Columns() {
		d := devices[c.Device]
		name := d.GPU
		if d.InstanceID != "" {
			name += "/" + d.InstanceID
		}
		out = append(out, name+short[c.Field])
	}
	return out
}

func checkAllocations(t *testing.T, what string, s collector.Source) {
	t.Helper()
	row, due := make([]float64, len(s.Columns())), slices.Repeat([]bool{true}, len(s.Columns()))
	got := testing.AllocsPerRun(20, func() {
		if err := s.Sample(row, due); err != nil {
			t.Error(err)
		}
	})
	if got != 0 {
		t.Errorf("-d %s: %v allocations per sample, want 0", what, got)
	}
}
