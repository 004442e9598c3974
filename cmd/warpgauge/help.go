package main

import (
	"strings"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/config"
)

const helpHead = `warpgauge serves GPU metrics to Prometheus.

Usage:
  warpgauge [flags]                 serve http://HOST:9400/metrics
  warpgauge [flags] COMMAND         see below; warpgauge COMMAND --help says more

Commands:
`

// rootHelp is the help text of the program. It is printed as it is: it holds
// nothing that a template would replace.
func rootHelp(root *cli.Command, flags *config.Set) string {
	var b strings.Builder
	b.WriteString(helpHead)
	b.WriteString(cmdline.CommandList(root))
	b.WriteString("\nA flag beats its environment variable ($NAME), which beats the default.\n\n")
	b.WriteString(flags.Help())
	return b.String()
}
