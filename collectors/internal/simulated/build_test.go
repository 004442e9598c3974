//go:build linux

package simulated_test

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"warpgauge/collectors/internal/simulated"
	"warpgauge/internal/testkit/programtest"
)

// tiny is a library of two functions, built in a cache of the test.
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func source(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func build(t *testing.T, l *simulated.Library, exports ...string) string {
	t.Helper()
	file, err := l.Build(exports)
	must(t, err)
	return file
}

func TestExports(t *testing.T) {
	l := tiny(t)
	f := func(want []string, exports ...string) {
		t.Helper()
		lib, err := elf.Open(build(t, l, exports...))
		must(t, err)
		defer lib.Close()
		symbols, err := lib.DynamicSymbols()
		must(t, err)
		var got []string
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC && strings.HasPrefix(s.Name, "tiny") {
				got = append(got, s.Name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("exports %v: got %v, want %v", exports, got, want)
		}
		if soname, err := lib.DynString(elf.DT_SONAME); err != nil || !slices.Equal(soname, []string{"libtiny.so.3"}) {
			t.Errorf("soname %q, %v", soname, err)
		}
	}
	f([]string{"tinyOne", "tinyTwo"})
	f([]string{"tinyOne"}, "tinyOne")
	f([]string{"tinyTwo"}, "tinyTwo")
}

// TestKept: what was built is not built again, and whatever goes into a build makes
// another one of it.
func TestKept(t *testing.T) {
	l := tiny(t)
	first := build(t, l)
	before, err := os.Stat(first)
	must(t, err)
	if again := build(t, l); again != first {
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
		file := filepath.Base(filepath.Dir(build(t, other, exports...)))
		if twin, ok := seen[file]; ok {
			t.Errorf("a change of %s makes the library of a change of %s", what, twin)
		}
		seen[file] = what
	}
	none := func(*simulated.Library, fstest.MapFS) {}
	f("exports", none, "tinyOne")
	f("exports again", none, "tinyOne", "tinyTwo")
	f("a source", func(_ *simulated.Library, s fstest.MapFS) { s["two.c"].Data = append(s["two.c"].Data, '\n') })
	f("a list", func(_ *simulated.Library, s fstest.MapFS) { s["functions.def"].Data = nil })
	f("the sources", func(_ *simulated.Library, s fstest.MapFS) { delete(s, "two.c") })
	f("the soname", func(l *simulated.Library, _ fstest.MapFS) { l.File = "libtiny.so.4" })
	f("the name", func(l *simulated.Library, _ fstest.MapFS) { l.Name = "Small" })
	f("flags", func(l *simulated.Library, _ fstest.MapFS) { l.Compile = []string{"-DX"} })
	f("flags of the linker", func(l *simulated.Library, _ fstest.MapFS) { l.Link = []string{"-Wl,-z,nodelete"} })
	f("a header", func(l *simulated.Library, _ fstest.MapFS) {
		l.Headers = func() (map[string][]byte, error) {
			return map[string][]byte{"vendor.h": []byte("#define ANSWER 2\n")}, nil
		}
	})
	t.Setenv("CC", "cc -DANOTHER")
	f("the compiler", none)
}

// TestCompiler: $CC compiles, as for cgo, which may be for another architecture.
func TestCompiler(t *testing.T) {
	l := tiny(t)
	t.Setenv("CC", "cc -DANSWER=3")
	l.Sources.(fstest.MapFS)["one.c"] = source("#if ANSWER != 3\n#error not by $CC\n#endif\n")
	build(t, l)
	t.Setenv("CC", "cc-that-is-nowhere")
	if _, err := l.Build(nil); err == nil || !strings.Contains(err.Error(), "cc-that-is-nowhere") {
		t.Errorf("got %v of a compiler that is nowhere", err)
	}
}

// TestAtOnce: those who build the same at once all get it whole.
func TestAtOnce(t *testing.T) {
	l := tiny(t)
	files := make([]string, 4)
	errs := make([]error, len(files))
	var all sync.WaitGroup
	for i := range files {
		all.Go(func() {
			if files[i], errs[i] = l.Build(nil); errs[i] == nil {
				var lib *elf.File
				if lib, errs[i] = elf.Open(files[i]); errs[i] == nil {
					errs[i] = lib.Close()
				}
			}
		})
	}
	all.Wait()
	for i := range files {
		if errs[i] != nil || files[i] != files[0] {
			t.Errorf("%s, %v; another got %s", files[i], errs[i], files[0])
		}
	}
	nothingUnfinished(t)
}

// nothingUnfinished: what was begun is there whole or not at all.
func nothingUnfinished(t *testing.T) {
	t.Helper()
	dir, err := simulated.Directory()
	must(t, err)
	left, err := filepath.Glob(filepath.Join(dir, "build-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestMistakes: what cannot be compiled says why, each time.
func TestMistakes(t *testing.T) {
	f := func(want string, change func(l *simulated.Library, sources fstest.MapFS)) {
		t.Helper()
		l := tiny(t)
		change(l, l.Sources.(fstest.MapFS))
		for range 2 {
			if _, err := l.Build(nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		nothingUnfinished(t)
	}
	f("compile the simulated Tiny: ", func(_ *simulated.Library, s fstest.MapFS) { s["two.c"] = source("int tinyTwo(void) { return; }\n") })
	f("tinyFour", func(l *simulated.Library, _ fstest.MapFS) { l.Link = []string{"-Wl,--require-defined=tinyFour"} })
	f("lines.c is there twice", func(l *simulated.Library, s fstest.MapFS) { l.Scripted = true; s["lines.c"] = source("") })
	f("headers of Tiny: ", func(l *simulated.Library, _ fstest.MapFS) {
		l.Headers = func() (map[string][]byte, error) { return nil, os.ErrNotExist }
	})
}

func TestSymbols(t *testing.T) {
	l := tiny(t)
	f := func(version int, without []string, want ...string) {
		t.Helper()
		if got, err := l.Symbols(version, without); err != nil || !slices.Equal(got, want) {
			t.Errorf("version %d without %v: got %v, %v, want %v", version, without, got, err, want)
		}
	}
	f(399, nil)
	f(400, nil, "tinyOne")
	f(405, nil, "tinyOne", "tinyTwo")
	f(405, []string{"tinyOne"}, "tinyTwo")
	if got, err := l.Symbols(405, []string{"tinyThree"}); err == nil {
		t.Errorf("got %v without a function that there never was", got)
	}
}
