//go:build linux && cgo

package main

import (
	"fmt"
	"strings"

	"warpgauge/extensions/amd"
	health "warpgauge/extensions/health/extension"
	"warpgauge/extensions/live"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/config"
)

// flagsPage has the tables of docs/flags.md.
func flagsPage() (any, error) {
	set := flagTable()
	var b strings.Builder
	for _, g := range set.Groups() {
		fmt.Fprintf(&b, "\n## %s\n\n", g)
		if g == config.GroupIdle {
			writeIdleFlags(&b, set)
			continue
		}
		b.WriteString("| Flag | Environment | Default | Meaning | Origin |\n|---|---|---|---|---|\n")
		for _, f := range set.Flags() {
			if f.Group == g {
				writeFlag(&b, f)
			}
		}
	}
	return b.String(), nil
}

// flagTable returns the flags of the core and of all extensions.
func flagTable() *config.Set {
	set := config.NewSet(noEnvironment)
	for _, e := range []interface{ Flags(*config.Set) }{live.New(), health.New(), remote.NewExtension(), new(amd.Extension)} {
		e.Flags(set)
	}
	return set
}

func noEnvironment(string) (string, bool) { return "", false }

func writeFlag(b *strings.Builder, f *config.Flag) {
	meaning := f.Usage
	if f.Differs != "" {
		meaning += " *Differs on purpose:* " + f.Differs + "."
	}
	if f.Needs != "" {
		meaning += " Needs `" + config.Dashed(f.Needs) + "`."
	}
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", flagNames(f), flagVariable(f), flagDefault(f), cell(meaning), f.Origin)
}

// writeIdleFlags writes the flags of other exporters that change nothing here.
func writeIdleFlags(b *strings.Builder, set *config.Set) {
	b.WriteString("| Flag | Environment | Default | Origin | Why |\n|---|---|---|---|---|\n")
	for _, f := range set.Flags() {
		if f.Group == config.GroupIdle {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", flagNames(f), flagVariable(f), flagDefault(f), f.Origin, cell(f.NoEffect))
		}
	}
}

func flagVariable(f *config.Flag) string {
	if f.Env == "" {
		return ""
	}
	return "`" + f.Env + "`"
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

// cell keeps a text from ending its table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
