package main_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"warpgauge/internal/testkit/eventually"
)

// TestE2EPrivileges looks at the capabilities of every thread: the exporter has
// none in effect, its child has those that the exporter had before.
func TestE2EPrivileges(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 || effective(t, os.Getpid()) == 0 {
		t.Skip("needs root and its capabilities")
	}
	exe := build(t)
	f := func(dropped bool, args ...string) {
		t.Helper()
		e := serve(t, exe, args...)
		var child int
		eventually.OK(t, "a child", func() error {
			v, err := e.scrape(t, acceptText).one("warpgauge_collector_child_pid", "collector", "fake")
			if child = int(v); err == nil && child == 0 {
				err = errors.New("none")
			}
			return err
		})
		if got := effective(t, e.PID()); (got == 0) != dropped {
			t.Errorf("%q: the exporter's effective capabilities are %#x", args, got)
		}
		if got, want := effective(t, child), effective(t, os.Getpid()); got != want {
			t.Errorf("%q: the child's effective capabilities are %#x, want %#x", args, got, want)
		}
	}
	f(true, "--isolation=process")
	f(false, "--isolation=process", "--drop-capabilities=false")
}

// effective returns what any thread of the process has.
func effective(t *testing.T, pid int) (all uint64) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, thread.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(raw), "CapEff:")
		var set uint64
		if _, err := fmt.Sscanf(after, "%x", &set); err != nil {
			t.Fatal(err)
		}
		all |= set
	}
	return all
}
