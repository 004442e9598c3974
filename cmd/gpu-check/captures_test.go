package main

import (
	"math"
	"testing"

	"warpgauge/internal/testkit/captures"
	"warpgauge/pkg/field"
)

// TestCaptures reads what nvidia-smi said on boards of others as this program does, and
// wants each value in the range in which the exporter takes it for plausible.
func TestCaptures(t *testing.T) {
	boards := captures.NVIDIA(t)
	models, compared := map[string]bool{}, map[string]int{}
	for _, b := range boards {
		models[b.First("xml:product_name", "csv:name")] = true
		for _, c := range checks {
			desc, scale, known := field.ByName(c.metric)
			if !known || c.how == text {
				continue
			}
			if c.scale != 0 {
				scale *= c.scale
			}
			for _, source := range c.sources {
				said, there := b.Readings[source]
				if !there || absent(said) {
					continue
				}
				v, ok := numberOf(said)
				if !ok {
					t.Errorf("%s: %s is %q, which is no number (%s)", b.Name, source, said, b.Source)
				}
				if v *= scale; v < desc.Min || v > desc.Max || math.IsNaN(v) {
					t.Errorf("%s: %s is %v by %s %q, outside of %v to %v (%s)", b.Name, c.metric, v, source, said, desc.Min, desc.Max, b.Source)
				}
				compared[c.metric]++
			}
		}
	}
	if len(models) < 20 || len(compared) < 50 {
		t.Errorf("%d models and %d fields, want at least 20 and 50", len(models), len(compared))
	}
}
