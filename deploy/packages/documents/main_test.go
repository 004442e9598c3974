package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

var must = testkit.Must

// TestInstalled installs the documentation as packages and tarball do, with and without a home, and follows every link.
func TestInstalled(t *testing.T) {
	t.Chdir("../../..")
	for _, home := range []string{"", "https://example.org/warpgauge"} {
		for _, asSource := range []bool{false, true} {
			d := documents{home: home, ref: "v1.4.0"}
			must(t, d.read("deploy/packages/files", asSource))
			root := t.TempDir()
			must(t, d.write(root))
			if err := d.check(root); err != nil {
				t.Errorf("home %q, as the source %v: %v", home, asSource, err)
			}
			page := testkit.Get(os.ReadFile(filepath.Join(root, d.installed["README.md"])))(t)
			if home != "" && !strings.Contains(string(page), home+"/blob/v1.4.0/") {
				t.Errorf("as the source %v: README.md has no link to %s", asSource, home)
			}
		}
	}
}

func TestPage(t *testing.T) {
	d := documents{home: "https://example.org/w", ref: "v1", sources: []string{"docs/a.md", "etc/a.csv", "etc/b.csv", "x/y/z"},
		installed: map[string]string{"docs/a.md": "usr/share/doc/w/docs/a.md", "etc/a.csv": "etc/w/a.csv", "etc/b.csv": "etc/w/b.csv", "x/y/z": "usr/z"}}
	for in, want := range map[string]string{
		"[a](a.md#b)":          "[a](a.md#b)",
		"[a](#b)":              "[a](#b)",
		"[a](https://b.c/#d)":  "[a](https://b.c/#d)",
		"[a](../etc/a.csv)":    "[a](../../../../../etc/w/a.csv)",
		"[a](../etc)":          "[a](../../../../../etc/w)",
		"![a](../pkg/a.go#L1)": "![a](https://example.org/w/blob/v1/pkg/a.go#L1)",
		"[a](../x)":            "[a](https://example.org/w/blob/v1/x)",
	} {
		if got := d.page("docs/a.md", in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	d.home = ""
	if got, want := d.page("docs/a.md", "[a](../pkg/a.go#L1)"), "a (`pkg/a.go` of the source)"; got != want {
		t.Errorf("without a home: got %s, want %s", got, want)
	}
}

// TestCheck: check reports a broken link.
func TestCheck(t *testing.T) {
	root := t.TempDir()
	d := documents{home: "https://example.org/w", ref: "v1"}
	if err := d.check(root); err == nil {
		t.Error("a folder without a page passes")
	}
	for text, want := range map[string]bool{"[a](b.md)": false, "[a](https://example.org/w/blob/v1/none)": false, "[a](.)[b](https://example.org/w/blob/v1/main.go)[c](https://other)": true} {
		must(t, os.WriteFile(filepath.Join(root, "a.md"), []byte(text), 0o644))
		testkit.Equal(t, text, want, (d.check(root) == nil))
	}
}
