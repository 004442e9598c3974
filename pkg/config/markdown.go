package config

import (
	"fmt"
	"strings"
)

const markdownHead = `# Flags and environment variables

This page is generated from the flag table by ` + "`go generate ./pkg/config`" + `; a test fails when it is out of date.

A flag on the command line beats its environment variable, which beats the default. An empty variable counts as not
set. A switch stands alone or takes true or false after an equals sign, as in ` + "`--debug=false`" + `; lists take commas or
repetition. Flags are accepted before and after a subcommand. *Origin* says whether name, variable and meaning are
dcgm-exporter's or ours. A flag whose *status* is "no effect" is accepted, so that a manifest written for dcgm-exporter
starts, and is named once in the log when it is set to something other than its default.

Besides these, ` + "`NODE_NAME`" + ` gives the value of the hostname label, and the node whose pods and ResourceSlices are asked
for, as in dcgm-exporter. ` + "`POD_NAME` and `POD_NAMESPACE`" + ` say which pod the exporter itself is, which uses no device whatever it claims;
` + "`KUBECONFIG`" + ` leads to the API server outside of a pod.
`

// Markdown is the text of docs/flags.md.
func (s *Set) Markdown() string {
	var b strings.Builder
	b.WriteString(markdownHead)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n", g)
		b.WriteString("| Flag | Environment | Default | Meaning | Origin | Status |\n|---|---|---|---|---|---|\n")
		for _, f := range s.flags {
			if f.Group == g {
				f.markdown(&b)
			}
		}
	}
	return b.String()
}

func (f *cliFlag) markdown(b *strings.Builder) {
	names := "`" + dashed(f.Name) + "`"
	for _, a := range f.Aliases {
		names += ", `" + dashed(a) + "`"
	}
	meaning := f.Usage
	if f.Differs != "" {
		meaning += " *Differs on purpose:* " + f.Differs + "."
	}
	if f.Needs != "" {
		meaning += " Needs `" + dashed(f.Needs) + "`."
	}
	status := "active"
	if f.NoEffect != "" {
		status = "no effect: " + f.NoEffect
	}
	fmt.Fprintf(b, "| %s | `%s` | %s | %s | %s | %s |\n",
		names, f.Env, f.markdownDefault(), cell(meaning), f.Origin, cell(status))
}

func (f *cliFlag) markdownDefault() string {
	switch {
	case f.ShownDefault != "":
		return cell(f.ShownDefault)
	case f.initial == "":
		return "none"
	}
	return "`" + f.initial + "`"
}

// cell keeps a text from ending its table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
