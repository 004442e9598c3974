package rocm

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"warpgauge/collectors/rocm/internal/raw"
)

func TestMarkdownIsCurrent(t *testing.T) {
	var want bytes.Buffer
	if err := WriteMarkdown(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/rocm.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/rocm.md is not what the tables say: run go generate ./cmd/warpgauge")
	}
	for line := range strings.Lines(want.String()) {
		if strings.Contains(line, "``") || strings.Contains(line, "gpu_metrics: `") || strings.Contains(line, "gpu_metrics: []") {
			t.Errorf("a source without a name: %s", line)
		}
	}
}

// Every reading that a column can ask for has a file in the documentation.
func TestEveryReadingHasAFile(t *testing.T) {
	whole := raw.GPU{Instances: []raw.Instance{{Units: 1}}}
	units := []unit{{specs: boardSpecs(&whole, node{})}, {specs: instanceSpecs(raw.Instance{})}}
	all := readings(units)
	if len(all) < 100 {
		t.Fatalf("only %d readings", len(all))
	}
	for _, r := range all {
		if fileOf(r) == "" {
			t.Errorf("reading %+v has no file", r)
		}
	}
}
