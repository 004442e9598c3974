package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
)

var must = testkit.Must

func TestWrites(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	must(t, run([]string{"--dir", dir, "--model", "mi300x", "--gpus", "2", "--partition", "CPX", "--memory", "NPS4"}, &out))
	sys := strings.TrimSpace(out.String())
	testkit.Equal(t, "its folder", filepath.Join(dir, "sys"), sys)
	for pattern, want := range map[string]int{
		"class/drm/renderD*": 16, "class/drm/card*": 17, "class/kfd/kfd/topology/nodes/*": 18, "devices/pci*/*/*/gpu_metrics": 2,
	} {
		got, err := filepath.Glob(filepath.Join(sys, pattern))
		testkit.ErrorIf(t, err != nil || len(got) != want, "%s: %d, %v, want %d", pattern, len(got), err, want)
	}
}

// TestMoves checks that values change while the command runs, that it leaves a pipe
// alone, and that a removed GPU does not stop the others.
func TestMoves(t *testing.T) {
	tree := testkit.Get(rocmtest.Build(t.TempDir(), rocmtest.Options{}))(t)
	first, second := tree.GPUs[0], tree.GPUs[1]
	pipe := second.Path("hwmon/temp2_input")
	must(t, os.Remove(pipe))
	must(t, syscall.Mkfifo(pipe, 0o600))
	end, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- move(tree, time.Millisecond, func() bool {
			select {
			case <-end:
				return true
			default:
				return false
			}
		})
	}()
	moves := func(what string, g *rocmtest.GPU) {
		t.Helper()
		before := clock(g)
		eventually.True(t, what, func() bool { now := clock(g); return now != before && now != "" })
	}
	moves("the GPU with a pipe", second)
	away := filepath.Join(t.TempDir(), "away")
	must(t, os.Rename(first.Path(""), away))
	moves("the other GPU", second)
	must(t, os.Rename(away, filepath.Clean(first.Path(""))))
	moves("the GPU that is back", first)
	close(end)
	must(t, <-done)
	info, err := os.Stat(pipe)
	testkit.ErrorIf(t, err != nil || info.Mode().Type() != os.ModeNamedPipe, "the pipe is %v, %v", info, err)
}

// clock returns the current gpu_metrics, which contains the driver's clock.
func clock(g *rocmtest.GPU) string {
	b, err := os.ReadFile(g.Path("gpu_metrics"))
	if err != nil {
		return ""
	}
	return string(b)
}
