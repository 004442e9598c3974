package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWriteJobs(t *testing.T) {
	dir := t.TempDir()
	f := func(jobs map[int]string, want map[string]string) {
		t.Helper()
		if err := writeJobs(dir, jobs); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got[filepath.Base(path)] = string(text)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("files (-want +got):\n%s", d)
		}
	}
	f(map[int]string{0: "1", 1: "1"}, map[string]string{"0": "1\n", "1": "1\n"})
	f(map[int]string{1: "2"}, map[string]string{"1": "2\n"})
	f(nil, map[string]string{})
}

// TestNodes looks for what would make a picture show less than it is for.
func TestNodes(t *testing.T) {
	names := map[string]bool{}
	for _, n := range nodes() {
		if names[n.name] {
			t.Errorf("two nodes are called %q", n.name)
		}
		names[n.name] = true
		for i, p := range n.phases {
			if (p.jobs != nil) == (p.pods != nil) {
				t.Errorf("%s, phase %d: want pods or jobs", n.name, i)
			}
			if i > 0 && p.from <= n.phases[i-1].from {
				t.Errorf("%s: phase %d begins before the one before it", n.name, i)
			}
		}
	}
}
