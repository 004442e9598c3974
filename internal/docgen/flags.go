//go:build linux && cgo

package main

import (
	"fmt"
	"strings"

	"warpgauge/extensions/accounts"
	"warpgauge/extensions/amd"
	health "warpgauge/extensions/health/extension"
	"warpgauge/extensions/live"
	recorder "warpgauge/extensions/recorder/extension"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/config"
)

// flagsPage returns the tables of docs/flags.md, with a reason for other exporters' flags without effect here.
func flagsPage() (any, error) {
	set := flagTable()
	var b strings.Builder
	for _, g := range set.Groups() {
		head := "Meaning | Origin"
		if g == config.GroupIdle {
			head = "Origin | Why"
		}
		fmt.Fprintf(&b, "\n## %s\n\n| Flag | Environment | Default | %s |\n|---|---|---|---|---|\n", g, head)
		for _, f := range set.Flags() {
			if f.Group != g {
				continue
			}
			last := fmt.Sprintf("%s | %s", meaning(f), f.Origin)
			if g == config.GroupIdle {
				last = fmt.Sprintf("%s | %s", f.Origin, cell(f.NoEffect))
			}
			variable := ""
			if f.Env != "" {
				variable = "`" + f.Env + "`"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", flagNames(f), variable, flagDefault(f), last)
		}
	}
	return b.String(), nil
}

// flagTable returns the flags of the core and of all extensions.
func flagTable() *config.Set {
	set := config.NewSet(func(string) (string, bool) { return "", false })
	for _, e := range []interface{ Flags(*config.Set) }{live.New(), recorder.New(), health.New(), remote.NewExtension(), new(amd.Extension), accounts.NewExtension()} {
		e.Flags(set)
	}
	return set
}

func meaning(f *config.Flag) string {
	text := f.Usage
	if f.Differs != "" {
		text += " *Differs on purpose:* " + f.Differs + "."
	}
	if f.Needs != "" {
		text += " Needs `" + config.Dashed(f.Needs) + "`."
	}
	return cell(text)
}

func flagNames(f *config.Flag) string {
	names := "`" + config.Dashed(f.Name) + "`"
	for _, a := range f.Aliases {
		names += ", `" + config.Dashed(a) + "`"
	}
	return names
}

func flagDefault(f *config.Flag) string {
	switch {
	case f.ShownDefault != "":
		return cell(f.ShownDefault)
	case f.Default() == "":
		return "none"
	}
	return "`" + f.Default() + "`"
}

// cell escapes a text for a table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
