package main

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/fake"
	"warpgauge/collectors/rocm"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// TestFakeMI300XIsOne wants the simulated node to have the families and labels
// that the collector of AMD GPUs has of a whole MI300X: what works with one
// works with the other.
func TestFakeMI300XIsOne(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.7"})
	want := families(t, rocm.New(rocm.Options{Root: tree.Root, Source: rocm.SourceSysfs}), func() { tree.Step(t, time.Second) })
	factory, err := fake.Factory(fake.Options{Profile: "mi300x", Devices: 2})
	must(t, err)
	if diff := cmp.Diff(want, families(t, factory(), func() {})); diff != "" {
		t.Errorf("families of an MI300X (-real +simulated):\n%s", diff)
	}
	if len(want) < 80 {
		t.Errorf("only %d families", len(want))
	}
}

// families are the fields by level that have values, with names and values of
// their labels; the number of XGMI links is the node's.
func families(t *testing.T, c collector.Collector, step func()) []string {
	t.Helper()
	sources, err := c.Open(context.Background(), collectortest.Fields())
	must(t, err)
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	seen := map[string]bool{}
	for _, s := range sources {
		row := make([]float64, len(s.Columns()))
		for range 2 { // rates need two samples
			step()
			must(t, s.Sample(row, slices.Repeat([]bool{true}, len(row))))
		}
		for i, col := range s.Columns() {
			if math.IsNaN(row[i]) || col.Field >= field.AMDRecords { // what AMD SMI adds is not in the tree
				continue
			}
			d, _ := field.ByID(col.Field)
			key := []string{s.Devices()[col.Device].Level.String(), d.Name}
			for _, l := range col.Labels {
				if l.Name == "link" {
					l.Value = "*"
				}
				key = append(key, l.Name+"="+l.Value)
			}
			seen[strings.Join(key, " ")] = true
		}
		for _, d := range s.Devices() {
			for _, f := range d.Facts {
				seen[d.Level.String()+" label "+f.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
