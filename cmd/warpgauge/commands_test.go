package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"warpgauge/pkg/exporter"

	"github.com/urfave/cli/v3"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/pages"
)

// TestCommandsOfPages checks each `warpgauge …` in a code block of the docs: subcommand and flags
// exist, and it runs on simulated GPUs if it can.
func TestCommandsOfPages(t *testing.T) {
	a := newProgram(exporter.Streams{Out: os.Stderr, Err: os.Stderr}, nil)
	root := exporter.RootCommand(a)
	list := testkit.Get(os.ReadFile("../../etc/default-counters.csv"))(t)
	// The reader's list from docs/remote.md has no profiling fields, because nodes refuse those from a server.
	readers := tempFile(t, "readers.csv", regexp.MustCompile(`(?m)^.*_PROF_.*\n`).ReplaceAllString(string(list), ""))
	ran := map[string]bool{}
	checked := pages.Check(t, pages.Read(t, "../.."), root, func(path string, cmd *cli.Command, args []string) {
		line := strings.Join(args, " ")
		if args = runnable(readers, cmd.Name, args); args == nil || ran[line] {
			return
		}
		ran[line] = true
		o := execute(t, environment{"WARPGAUGE_ENABLE_FAKE": "true", "WARPGAUGE_ENABLE_DCGM": "false",
			"WARPGAUGE_ENABLE_NVML": "false", "WARPGAUGE_ENABLE_ROCM": "false"}, args...)
		if o.Code != 0 || o.Out == "" {
			t.Errorf("%s: %s: exit code %d\noutput: %s\nerrors: %s", path, line, o.Code, o.Out, o.Err)
		}
	}, "warpgauge", "bin/warpgauge")
	if t.Logf("%d commands, %d run", checked, len(ran)); checked < 40 || len(ran) < 8 {
		t.Errorf("only %d commands found, %d of them run", checked, len(ran))
	}
}

// runnable returns the command with existing lists, or nil if the command serves, writes files or queries an exporter.
func runnable(readers, command string, args []string) []string {
	switch command {
	case "check", "fields", "devices", "once", "version":
	default:
		return nil
	}
	out := slices.Clone(args)
	for i, w := range out {
		if strings.Contains(w, "://") {
			return nil
		}
		if strings.HasSuffix(w, ".csv") {
			out[i] = filepath.Join("../../etc", filepath.Base(w))
			if _, err := os.Stat(out[i]); err != nil {
				out[i] = readers
			}
		}
	}
	if command == "devices" || command == "once" {
		out = append(out, "--url=none")
	}
	return out
}
