package main

import (
	"path/filepath"
	"testing"
)

func TestReplayRefuses(t *testing.T) {
	dir := t.TempDir()
	text := tempFile(t, "page.txt", "DCGM_FI_DEV_POWER_USAGE 1\n")
	there := tempFile(t, "there", "")
	f := func(want string, args ...string) {
		t.Helper()
		execute(t, args...).want(t, 1, want)
	}
	f("replay takes one file", "replay", "a", "b")
	f("replay takes one file", "replay")
	f("no such file", "replay", filepath.Join(dir, "x"))
	f("is a directory", "replay", dir)
	f("the file is not one", "replay", text)
	f("the file is not whole", "replay", there)
}
