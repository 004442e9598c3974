package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
)

func TestOpen(t *testing.T) {
	absent := &dl.OpenError{Attempts: []dl.Attempt{
		{Name: "liba.so.2", Text: "liba.so.2: cannot open shared object file: No such file or directory"},
		{Name: "liba.so.1", Text: "liba.so.1: cannot open shared object file: No such file or directory"},
	}}
	broken := &dl.OpenError{Attempts: []dl.Attempt{{Name: "liba.so.2", Text: "liba.so.2: wrong ELF class: ELFCLASS32"}}}
	loaded, none := Driver{true, "driver 1.2"}, Driver{false, "no driver"}

	f := func(d Driver, findErr error, sentinel error, want string) {
		t.Helper()
		p := Probe{
			API: "ABC", Libraries: []string{"liba.so.2", "liba.so.1"}, Driver: d,
			Advice: Advice{Nothing: "install both", NoLibrary: "install the library", NoDriver: "load the driver"},
			Find: func(names []string) (string, error) {
				if strings.Join(names, " ") != "liba.so.2 liba.so.1" {
					t.Errorf("asked for %q", names)
				}
				if findErr != nil {
					return "", findErr
				}
				return "/usr/lib/liba.so.1.3", nil
			},
		}
		err := p.Open(context.Background())
		if !errors.Is(err, sentinel) {
			t.Errorf("got %v, want it to wrap %v", err, sentinel)
		}
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
	}
	f(none, absent, collector.ErrNotLoaded,
		"look for ABC: library or driver not found: the loader finds no liba.so.2, liba.so.1; no driver; install both")
	f(loaded, absent, collector.ErrNotLoaded,
		"look for ABC: library or driver not found: the loader finds no liba.so.2, liba.so.1; driver 1.2; install the library")
	f(loaded, broken, collector.ErrNotLoaded,
		"look for ABC: library or driver not found: unusable library: load library: liba.so.2: wrong ELF class: ELFCLASS32; driver 1.2; install the library")
	f(none, nil, collector.ErrNotLoaded,
		"look for ABC: library or driver not found: library /usr/lib/liba.so.1.3; no driver; load the driver")
	f(loaded, nil, collector.ErrNotBuiltIn,
		"look for ABC: not built into this binary: sampling through ABC is not part of this build; library /usr/lib/liba.so.1.3; driver 1.2")
	f(loaded, fmt.Errorf("load library: %w", dl.ErrUnavailable), collector.ErrNotBuiltIn,
		"look for ABC: not built into this binary: it needs liba.so.2 or liba.so.1, and a binary built without cgo loads no libraries; driver 1.2; use a binary built with CGO_ENABLED=1")
}

func TestOpenHeedsItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p := Probe{API: "ABC", Find: func([]string) (string, error) {
		t.Error("looked although the context had ended")
		return "", nil
	}}
	if err := p.Open(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// With the real loader: a name that no system has.
func TestOpenWithTheLoader(t *testing.T) {
	p := Probe{API: "ABC", Libraries: []string{"libwarpgauge-does-not-exist.so"}, Driver: Driver{false, "no driver"}}
	err := p.Open(context.Background())
	if !errors.Is(err, collector.ErrNotLoaded) && !errors.Is(err, collector.ErrNotBuiltIn) {
		t.Errorf("got %v, want ErrNotLoaded, or ErrNotBuiltIn without cgo", err)
	}
	if !strings.Contains(err.Error(), "libwarpgauge-does-not-exist.so") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q, want one line that names the library", err)
	}
}
