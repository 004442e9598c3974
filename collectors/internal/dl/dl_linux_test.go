//go:build linux && cgo

package dl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"warpgauge/internal/testkit"
)

const (
	libc    = "libc.so.6"
	libm    = "libm.so.6"
	missing = "libwarpgauge-does-not-exist.so.1"
)

// TestLibrary opens the first of several names, looks symbols up and closes twice.
func TestLibrary(t *testing.T) {
	l := testkit.Get(Open([]string{missing, libm, libc}))(t)
	testkit.ErrorIf(t, !filepath.IsAbs(l.Path()) || !strings.HasPrefix(filepath.Base(l.Path()), "libm"), "Path() = %q, want the absolute path of libm", l.Path())
	p, err := l.Lookup("cos")
	testkit.ErrorIf(t, err != nil || p == nil || !l.Has("sin"), "Lookup(cos) = %v, %v, want an address", p, err)
	p, err = l.Lookup("nvmlInit_v2")
	testkit.ErrorIf(t, p != nil || !errors.Is(err, ErrNoSymbol) || l.Has("nvmlInit_v2"), "Lookup(nvmlInit_v2) = %v, %v, want nil, ErrNoSymbol", p, err)
	for range 2 {
		err := l.Close()
		testkit.FatalIf(t, err != nil, "Close: %v", err)
	}
	_, err = l.Lookup("cos")
	testkit.ErrorIf(t, !errors.Is(err, ErrClosed), "Lookup after Close = %v, want ErrClosed", err)
}

func TestOpenNamesAllThatFailed(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "libbroken.so")
	testkit.Must(t, os.WriteFile(broken, []byte("not an ELF file, and longer than its header would be: "+strings.Repeat("x", 64)), 0o600))
	_, err := Open([]string{missing, broken})
	var oe *OpenError
	testkit.FatalIf(t, !errors.As(err, &oe) || len(oe.Attempts) != 2, "Open = %v, want an OpenError of two names", err)
	if !oe.Attempts[0].Absent() || oe.Attempts[1].Absent() || oe.Absent() {
		t.Errorf("absent = %v, %v, all %v; want true, false, false: %v", oe.Attempts[0].Absent(), oe.Attempts[1].Absent(), oe.Absent(), err)
	}
	for _, want := range []string{missing, broken, "No such file", "invalid ELF header"} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("error %q has %q %d times", err, want, strings.Count(err.Error(), want))
		}
	}
	dependency := Attempt{"libx.so", "libdependency.so: cannot open shared object file: No such file or directory"}
	if text := (&OpenError{[]Attempt{dependency}}).Error(); dependency.Absent() || !strings.HasPrefix(text, "load library: libx.so: libdependency.so: ") {
		t.Errorf("a library with a missing dependency: absent %t, %s", dependency.Absent(), text)
	}
}

// The loader's error is per thread: without pinning, a goroutine would read another one's text.
func TestErrorsBelongToTheirCall(t *testing.T) {
	l := testkit.Get(Open([]string{libm}))(t)
	defer l.Close()
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
