package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"go.yaml.in/yaml/v3"

	"warpgauge/extensions/remote/fleet"
)

// TestChart renders the chart and starts the program with its flags and the example directory.
func TestChart(t *testing.T) {
	template, err := os.ReadFile("../../deploy/helm/warpgauge/templates/fleet.yaml")
	must(t, err)
	known := map[string]bool{}
	for _, f := range serveCommand(nil).Flags {
		known["--"+f.Names()[0]] = true
	}
	flags := regexp.MustCompile(`(?m)^ +- (--[a-z-]+)`).FindAllSubmatch(template, -1)
	if len(flags) < 8 {
		t.Fatalf("%d flags in the chart", len(flags))
	}
	for _, m := range flags {
		if !known[string(m[1])] {
			t.Errorf("the chart sets %s, which is no flag", m[1])
		}
	}
	var values struct {
		Fleet struct{ Directory map[string]string }
	}
	text, err := os.ReadFile("../../deploy/helm/values/fleet.yaml")
	must(t, err)
	must(t, yaml.Unmarshal(text, &values))
	dir := t.TempDir()
	for name, text := range values.Fleet.Directory {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if _, err := fleet.ReadDirectory(dir, parseYAML); err != nil {
		t.Error(err)
	}
}
