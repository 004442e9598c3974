//go:build linux && cgo

package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/nvml"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// TestSelectionOfMIG: what -d leaves of a node with a GPU in MIG mode and one that is
// not, through NVML.
func TestSelectionOfMIG(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2, MIG: map[int][]string{0: {"1g.10gb", "3g.40gb"}}})
	list, _, err := field.Parse(strings.NewReader("DCGM_FI_DEV_GPU_TEMP, gauge, a\nDCGM_FI_DEV_FB_USED, gauge, b\nDCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, c\n"), field.ParseOptions{})
	must(t, err)
	factory := func() collector.Collector {
		return nvml.New(nvml.Options{Library: n.Library(), Root: n.Root(), Getenv: func(string) string { return "" }})
	}
	all, err := config.ParseSelector("f")
	must(t, err)
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
		gpus, err := config.ParseSelector(c.gpus)
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		s := session.New(factory, list, session.Options{Select: session.Selection{GPUs: gpus, Switches: all, CPUs: all}})
		go func() { <-s.Changed(); cancel() }()
		must(t, s.Run(ctx))
		if diff := cmp.Diff(c.want, columnNames(s.Sources())); diff != "" {
			t.Errorf("-d %s (-want +got):\n%s", c.gpus, diff)
		}
	}
}

// columnNames names the columns of sources by device and field.
func columnNames(sources []*view.Source) (out []string) {
	short := map[field.ID]string{150: " TEMP", 252: " FB", 1001: " GR"}
	for _, s := range sources {
		for _, c := range s.Columns {
			d := &s.Devices[c.Device]
			name := d.GPU
			if d.Instance.ID != "" {
				name += "/" + d.Instance.ID
			}
			out = append(out, name+short[c.Field])
		}
	}
	slices.Sort(out)
	return out
}
