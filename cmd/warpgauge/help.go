package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/config"
)

const helpHead = `warpgauge serves GPU metrics to Prometheus.

Usage:
  warpgauge [flags]                 serve http://HOST:9400/metrics
  warpgauge [flags] COMMAND         see below; warpgauge COMMAND --help says more

Commands:
`

// completionUsage is of a command of urfave/cli's.
const completionUsage = "Print a completion script: bash, zsh, fish or pwsh"

// rootHelp is the help text of the program. It is printed as it is: it holds
// nothing that a template would replace.
func rootHelp(root *cli.Command, flags *config.Set) string {
	var b strings.Builder
	b.WriteString(helpHead)
	for _, c := range root.Commands {
		if !c.Hidden {
			fmt.Fprintf(&b, "  %-10s %s\n", c.Name, c.Usage)
		}
	}
	fmt.Fprintf(&b, "  %-10s %s\n", "completion", completionUsage)
	b.WriteString("\nA flag beats its environment variable ($NAME), which beats the default.\n\n")
	b.WriteString(flags.Help())
	return b.String()
}

// commandHelp is the help text of a subcommand.
func commandHelp(c *cli.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage:\n  warpgauge %s [flags]", c.Usage, c.Name)
	if c.ArgsUsage != "" {
		b.WriteString(" " + c.ArgsUsage)
	}
	b.WriteString("\n")
	if c.Description != "" {
		b.WriteString("\n" + strings.TrimSpace(c.Description) + "\n")
	}
	if len(c.Flags) > 0 {
		b.WriteString("\nFlags:\n")
	}
	for _, f := range c.Flags {
		d, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		name := fmt.Sprintf("  --%-18s ", f.Names()[0])
		var text strings.Builder
		config.Wrap(&text, flagText(d), len(name))
		b.WriteString(name + strings.TrimLeft(text.String(), " "))
	}
	b.WriteString("\nAll flags of warpgauge --help work as well.\n")
	return b.String()
}

// flagText is what a flag of a command does, with its default.
func flagText(f cli.DocGenerationFlag) string {
	text := f.GetUsage()
	if v := strings.Trim(f.GetValue(), `"`); v != "" && f.TakesValue() {
		text += " Default: " + v + "."
	}
	return text
}
