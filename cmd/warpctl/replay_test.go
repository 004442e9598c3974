package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/extensions/recorder"
	"warpgauge/internal/testkit"
)

func TestReplayRefuses(t *testing.T) {
	dir := t.TempDir()
	text := tempFile(t, "page.txt", "DCGM_FI_DEV_POWER_USAGE 1\n")
	there := tempFile(t, "there", "")
	f := func(want string, args ...string) {
		t.Helper()
		execute(t, args...).Want(t, 1, want)
	}
	f("replay takes one file", "replay", "a", "b")
	f("replay takes one file", "replay")
	f("no such file", "replay", filepath.Join(dir, "x"))
	f("is a directory", "replay", dir)
	f("the file is not one", "replay", text)
	f("the file is not whole", "replay", there)
}

func TestReplayWithoutValues(t *testing.T) {
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := replay(ctx, &app{err: &log}, &recorder.Recording{}, "127.0.0.1:0", time.Time{})
	testkit.ErrorIf(t, err != nil || !strings.Contains(log.String(), "/metrics is empty"), "%v, log %s", err, &log)
}
