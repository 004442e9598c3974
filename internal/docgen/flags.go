//go:build linux && cgo

package main

import (
	"fmt"
	"io"
	"strings"

	"warpgauge/extensions/amd"
	health "warpgauge/extensions/health/extension"
	"warpgauge/extensions/live"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/config"
)

const flagsHead = `# Flags and environment variables

This page is generated from the flag table by ` + "`go generate ./internal/docgen`" + `; a test fails when it is out of date.

A flag on the command line beats its environment variable, which beats the default. An empty variable counts as not
set. A switch stands alone or takes true or false after an equals sign, as in ` + "`--debug=false`" + `; lists take commas or
repetition. Flags are accepted before and after a subcommand. *Origin* says whether name, variable and meaning are
dcgm-exporter's, AMD's exporter's or ours. The last table has flags that are accepted without effect, so that a manifest
written for another exporter starts; the log names each once if it is set to something other than its default.

In addition, ` + "`NODE_NAME`" + ` gives the value of the hostname label, and the node whose pods and ResourceSlices are asked
for, as in dcgm-exporter. ` + "`POD_NAME` and `POD_NAMESPACE`" + ` say which pod the exporter itself is, which uses no device whatever it claims;
` + "`KUBECONFIG`" + ` leads to the API server outside of a pod.
`

// writeFlags writes docs/flags.md.
func writeFlags(w io.Writer) error {
	set := flagTable()
	var b strings.Builder
	b.WriteString(flagsHead)
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
	_, err := io.WriteString(w, b.String())
	return err
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
