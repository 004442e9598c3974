package main

import (
	"slices"
	"strings"

	"warpgauge/pkg/exporter"

	"github.com/urfave/cli/v3"
)

// relax leaves out flags in front of any command that are unknown, if an
// extension allows that. A word behind one is taken for its value.
func relax(a *exporter.Program, args []string, known []cli.Flag) []string {
	if !a.Flags.UnknownAllowed() || len(args) == 0 {
		return args
	}
	out := args[:1:1]
	for i := 1; i < len(args); i++ {
		word := args[i]
		if !strings.HasPrefix(word, "-") || word == "-" || word == "--" {
			return append(out, args[i:]...)
		}
		name, _, whole := strings.Cut(strings.TrimLeft(word, "-"), "=")
		at := slices.IndexFunc(known, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
		takes := !whole && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") // the next word
		if at < 0 {
			a.Unknown = append(a.Unknown, word)
			if takes {
				i++
			}
			continue
		}
		out = append(out, word)
		if b, ok := known[at].(interface{ IsBoolFlag() bool }); takes && !(ok && b.IsBoolFlag()) {
			i++
			out = append(out, args[i])
		}
	}
	return out
}
