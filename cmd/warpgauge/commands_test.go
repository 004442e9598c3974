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

	"warpgauge/internal/testkit/pages"
)

// TestCommandsOfPages checks each `warpgauge …` in a code block of the docs: subcommand and flags
// exist, and it runs on simulated GPUs if it can.
func TestCommandsOfPages(t *testing.T) {
	a := newProgram(exporter.Streams{Out: os.Stderr, Err: os.Stderr}, nil)
	root := exporter.RootCommand(a)
	list, err := os.ReadFile("../../etc/default-counters.csv")
	must(t, err)
	// The reader's list from docs/remote.md has no profiling fields, because nodes refuse those from a server.
	readers := tempFile(t, "readers.csv", regexp.MustCompile(`(?m)^.*_PROF_.*\n`).ReplaceAllString(string(list), ""))
	checked, ran := 0, map[string]bool{}
	for path, text := range pages.Read(t, "../..") {
		for _, words := range pages.Commands(text, "warpgauge", "bin/warpgauge") {
			line, args := path+": "+strings.Join(words, " "), words[1:]
			if slices.Contains(args, "…") || len(args) > 0 && strings.HasPrefix(args[0], "(") {
				continue // an incomplete command, or a command's output
			}
			cmd := root
			for _, w := range args {
				if sub := cmd.Command(w); sub != nil && cmd == root {
					cmd = sub
				}
				name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
				if strings.HasPrefix(w, "-") && w != "-" && !hasFlag(root, name) && !hasFlag(cmd, name) {
					t.Errorf("%s: there is no %s", line, w)
				}
			}
			checked++
			if args = runnable(readers, cmd.Name, args); args == nil || ran[strings.Join(args, " ")] {
				continue
			}
			ran[strings.Join(args, " ")] = true
			o := execute(t, environment{"WARPGAUGE_ENABLE_FAKE": "true", "WARPGAUGE_ENABLE_DCGM": "false",
				"WARPGAUGE_ENABLE_NVML": "false", "WARPGAUGE_ENABLE_ROCM": "false"}, args...)
			if o.code != 0 || o.out == "" {
				t.Errorf("%s: exit code %d\noutput: %s\nerrors: %s", line, o.code, o.out, o.err)
			}
		}
	}
	if t.Logf("%d commands, %d run", checked, len(ran)); checked < 40 || len(ran) < 8 {
		t.Errorf("only %d commands found, %d of them run", checked, len(ran))
	}
}

func hasFlag(cmd *cli.Command, name string) bool {
	return name == "help" || name == "h" || name == "version" || slices.ContainsFunc(cmd.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
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
