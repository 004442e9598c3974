//go:build linux

package simulated_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"warpgauge/collectors/internal/simulated"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
)

var must = testkit.Must

// tiny returns a library of two functions, built in the test's cache.
func tiny(t *testing.T) *simulated.Library {
	t.Helper()
	programtest.Find(t, "cc")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return &simulated.Library{
		Name: "Tiny", File: "libtiny.so.3",
		Sources: fstest.MapFS{
			"one.c":         source("#include <vendor.h>\nint tinyOne(void);\nint tinyOne(void) { return ANSWER; }\n"),
			"two.c":         source("int tinyTwo(void);\nint tinyTwo(void) { return 2; }\n"),
			"functions.def": source("// FN and STUB.\nFN(tinyOne, 400)\nSTUB(tinyTwo, 405)\n"),
		},
		Headers: func() (map[string][]byte, error) {
			return map[string][]byte{"vendor.h": []byte("#define ANSWER 1\n")}, nil
		},
	}
}

func source(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// TestKept checks that a build is reused, and that a change of any input makes a new one.
func TestKept(t *testing.T) {
	l := tiny(t)
	first, err := l.Build(nil)
	must(t, err)
	before := testkit.Get(os.Stat(first))(t)
	if again, err := l.Build(nil); err != nil || again != first {
		t.Errorf("the same library is at %s and at %s", first, again)
	}
	if after, err := os.Stat(first); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was built again: %v", err)
	}
	seen := map[string]string{filepath.Base(filepath.Dir(first)): "nothing"}
	f := func(what string, change func(l *simulated.Library, sources fstest.MapFS), exports ...string) {
		t.Helper()
		other := tiny(t)
		change(other, other.Sources.(fstest.MapFS))
		file := testkit.Get(other.Build(exports))(t)
		file = filepath.Base(filepath.Dir(file))
		twin, ok := seen[file]
		testkit.ErrorIf(t, ok, "a change of %s makes the library of a change of %s", what, twin)
		seen[file] = what
	}
	none := func(*simulated.Library, fstest.MapFS) {}
	f("exports", none, "tinyOne")
	f("a source", func(_ *simulated.Library, s fstest.MapFS) { s["two.c"].Data = append(s["two.c"].Data, '\n') })
	f("a list", func(_ *simulated.Library, s fstest.MapFS) { s["functions.def"].Data = nil })
	f("the soname", func(l *simulated.Library, _ fstest.MapFS) { l.File = "libtiny.so.4" })
	f("flags", func(l *simulated.Library, _ fstest.MapFS) { l.Compile = []string{"-DX"} })
	f("a header", func(l *simulated.Library, _ fstest.MapFS) {
		l.Headers = func() (map[string][]byte, error) {
			return map[string][]byte{"vendor.h": []byte("#define ANSWER 2\n")}, nil
		}
	})
	t.Setenv("CC", "cc -DANOTHER")
	f("the compiler", none)
}
