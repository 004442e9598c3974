//go:build linux && cgo

package dl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	libc    = "libc.so.6"
	libm    = "libm.so.6"
	missing = "libwarpgauge-does-not-exist.so.1"
)

func mustOpen(t *testing.T, names ...string) *Library {
	t.Helper()
	l, err := Open(names)
	if err != nil {
		t.Fatalf("Open(%q): %v", names, err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func TestOpenTakesTheFirstThatLoads(t *testing.T) {
	l := mustOpen(t, missing, libm, libc)
	if !filepath.IsAbs(l.Path()) || !strings.HasPrefix(filepath.Base(l.Path()), "libm") {
		t.Errorf("Path() = %q, want the absolute path of libm", l.Path())
	}
	if _, err := os.Stat(l.Path()); err != nil {
		t.Errorf("Path() is no file: %v", err)
	}
}

func TestLookup(t *testing.T) {
	l := mustOpen(t, libm)
	p, err := l.Lookup("cos")
	if err != nil || p == nil {
		t.Errorf("Lookup(cos) = %v, %v, want an address", p, err)
	}
	if !l.Has("sin") {
		t.Error("Has(sin) = false, want true")
	}
	for _, symbol := range []string{"nvmlInit_v2", "", "cos\x00"} {
		if l.Has(symbol) {
			t.Errorf("Has(%q) = true, want false", symbol)
		}
		p, err := l.Lookup(symbol)
		if p != nil || !errors.Is(err, ErrNoSymbol) {
			t.Errorf("Lookup(%q) = %v, %v, want nil, ErrNoSymbol", symbol, p, err)
		}
	}
	_, err = l.Lookup("nvmlInit_v2")
	for _, want := range []string{`"nvmlInit_v2"`, l.Path(), "undefined symbol"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}

func TestOpenNamesAllThatFailed(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "libbroken.so")
	if err := os.WriteFile(broken, []byte("not an ELF file, and longer than its header would be: "+strings.Repeat("x", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open([]string{missing, broken})
	var oe *OpenError
	if !errors.As(err, &oe) {
		t.Fatalf("Open = %v, want an OpenError", err)
	}
	if len(oe.Attempts) != 2 || oe.Attempts[0].Name != missing || oe.Attempts[1].Name != broken {
		t.Fatalf("attempts = %+v, want both names in order", oe.Attempts)
	}
	if !oe.Attempts[0].Absent() || oe.Attempts[1].Absent() || oe.Absent() {
		t.Errorf("absent = %v, %v, all %v; want true, false, false: %v",
			oe.Attempts[0].Absent(), oe.Attempts[1].Absent(), oe.Absent(), err)
	}
	for _, want := range []string{missing, broken, "No such file", "invalid ELF header"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	if _, err := Open([]string{missing}); !errors.As(err, &oe) || !oe.Absent() {
		t.Errorf("Open(missing) = %v, want absent", err)
	}
}

func TestCloseTwice(t *testing.T) {
	l := mustOpen(t, libm)
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	if _, err := l.Lookup("cos"); !errors.Is(err, ErrClosed) {
		t.Errorf("Lookup after Close = %v, want ErrClosed", err)
	}
	if l.Path() == "" {
		t.Error("Path() after Close is empty, want what was loaded")
	}
}

func TestCloseUnloads(t *testing.T) {
	// A library that neither Go nor the C library needs by itself.
	const name = "libBrokenLocale.so.1"
	if loaded(t, name) {
		t.Skipf("%s is loaded already", name)
	}
	l, err := Open([]string{name})
	if err != nil {
		t.Skipf("needs %s of glibc: %v", name, err)
	}
	if filepath.Base(l.Path()) != name {
		t.Errorf("Path() = %q, want a path of %s", l.Path(), name)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if loaded(t, name) {
		t.Errorf("%s is still mapped after Close", name)
	}
}

func loaded(t *testing.T, name string) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(maps), name)
}

// The loader's error is per thread; unpinned, one goroutine would read the
// text of another.
func TestErrorsBelongToTheirCall(t *testing.T) {
	l := mustOpen(t, libm)
	var wg sync.WaitGroup
	for _, symbol := range []string{"absent_a", "absent_b", "absent_c", "absent_d"} {
		wg.Go(func() {
			lib := "lib" + symbol + ".so"
			for range 500 {
				if _, err := l.Lookup(symbol); err == nil || strings.Count(err.Error(), symbol) != 2 {
					t.Errorf("Lookup(%q) = %v, want the loader's text about it", symbol, err)
					return
				}
				_, err := Open([]string{lib})
				var oe *OpenError
				if !errors.As(err, &oe) || !oe.Absent() {
					t.Errorf("Open(%q) = %v, want the loader's text about it", lib, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
