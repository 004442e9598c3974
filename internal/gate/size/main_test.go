package main

import (
	"fmt"
	"testing"

	"warpgauge/internal/testkit"
)

func TestLayers(t *testing.T) {
	for name, want := range map[string]string{
		"pkg/ring/ring.go":                              coreLines,
		"pkg/ring/ring_test.go":                         testLines,
		"pkg/collector/collectortest/suite.go":          testLines,
		"collectors/nvml/nvml.go":                       coreLines,
		"collectors/nvml/nvmltest/lib/fake.h":           testLines,
		"collectors/fake/fake.go":                       testLines,
		"collectors/dcgm/calls_linux.c":                 cLines,
		"extensions/live/page/web/main.js":              "extensions/live, lines of Go and of the page",
		"extensions/remote/fleet/core.go":               "extensions/remote, lines of Go and of the page",
		"cmd/warpgauge/main.go":                         "cmd/warpgauge, lines of Go",
		"cmd/warpctl/top/view.go":                       "cmd/warpctl, lines of Go",
		"cmd/warpgauge-fleet/main.go":                   "other programs, generators and benchmarks, lines of Go",
		"dashboards/generate/main.go":                   "other programs, generators and benchmarks, lines of Go",
		"docs/load.html":                                "",
		"extensions/live/page/testdata/modules.js":      testLines,
		"internal/testkit/browser/browser.go":           testLines,
		"collectors/internal/simulated/lib/simulated.h": testLines,
	} {
		testkit.Equal(t, "layer of "+name, want, layerOf(name))
	}
}

func TestNeighbours(t *testing.T) {
	for pair, want := range map[[2]string]bool{
		{"collectors/nvml", "collectors/nvml/internal/driver"}: false,
		{"collectors/nvml", "collectors/internal/simulated"}:   false,
		{"collectors/nvml/internal/driver", "collectors/rocm"}: true,
		{"extensions/live/api", "extensions/health"}:           true,
		{"extensions/live/api", "extensions/live/apiv1"}:       false,
		{"pkg/ring", "pkg/view"}:                               false,
		{"cmd/warpgauge", "extensions/live"}:                   false,
	} {
		testkit.Equal(t, fmt.Sprintf("neighbours%q", pair), want, neighbours(pair[0], pair[1]))
	}
}

func TestParseLimits(t *testing.T) {
	got, err := parseLimits("# head\n10 5 pkg, lines # why\n\n")
	testkit.ErrorIf(t, err != nil || len(got) != 1 || got[0] != (limit{"pkg, lines", 10, 5}), "got %v, %v", got, err)
	for _, bad := range []string{"10 5\n", "x 5 pkg\n"} {
		_, err := parseLimits(bad)
		testkit.Equal(t, fmt.Sprintf("parseLimits(%q) has an error", bad), true, err != nil)
	}
}

// TestTree checks the counts of this repository.
func TestTree(t *testing.T) {
	t.Chdir("../../..")
	files, err := readTree()
	testkit.Must(t, err)
	counts := testkit.Get(files.counts())(t)
	testkit.ErrorIf(t, counts[coreLines] < 10_000 || counts[testLines] < 10_000 || counts["packages of the core"] < 10, "counts of this tree: %v", counts)
}
