package command

import (
	"fmt"
	"strings"

	"warpgauge/pkg/exporter"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/config"
)

func manCommand(a *exporter.Program) *cli.Command {
	return cmdline.ManCommand(a.Out, "warpgauge", func() cmdline.Manual {
		return cmdline.Manual{Version: a.Build.Version, Head: manualHead, Tail: manualOptions(a.Flags) + manualTail}
	})
}

const manualHead = `.SH SYNOPSIS
.B warpgauge
.RI [ flags ]
.br
.B warpgauge
.RI [ flags ]
.I command
.RI [ arguments ]
.SH DESCRIPTION
Without a command, warpgauge samples the GPUs of this machine and serves what it has sampled to Prometheus,
on port 9400 unless \-\-address says otherwise. A scrape is answered from memory and waits for no GPU.
.PP
Flags can stand before and behind a command. A flag beats its environment variable, which beats the configuration
file, which beats the default. A switch is alone, or has its value behind an equals sign.
`

const manualTail = `.SH EXIT STATUS
0 when all is well, also after a signal that ends it. 1 when something has to be put right, when it was ended at once by
a second signal, and when a command that looks for something has found nothing. What else a command says with its code is
in its description.
.SH SIGNALS
.TP
.B SIGHUP
Read the field list again.
.TP
.B SIGUSR1
Release the devices: close the libraries, for as long as \-\-release\-timeout says.
.TP
.B SIGUSR2
End that.
.TP
.BR SIGTERM ", " SIGINT ", " SIGQUIT
Stop. A second one ends it at once.
.SH FILES
.TP
.I /etc/warpgauge/*.csv
Field lists. default\-counters.csv is served if no other is named.
.TP
.I /etc/default/warpgauge
Flags and environment of the systemd unit of the packages.
.TP
.I /usr/share/doc/warpgauge
Documentation.
`

// manualOptions lists the flags of the exporter.
func manualOptions(flags *config.Set) string {
	var b strings.Builder
	var idle []string
	b.WriteString(".SH OPTIONS\n")
	for _, g := range flags.Groups() {
		if g != config.GroupIdle {
			fmt.Fprintf(&b, ".SS %s\n", cmdline.Roff(string(g)))
		}
		for _, f := range flags.Flags() {
			switch {
			case f.Group != g:
				continue
			case g == config.GroupIdle:
				idle = append(idle, cmdline.Roff(config.Dashed(f.Name)))
				continue
			}
			term := cmdline.Roff(f.Spelling())
			if f.Metavar != "" {
				term += `=\fI` + cmdline.Roff(f.Metavar) + `\fP`
			}
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fP\n%s\n", term, cmdline.RoffLines(f.Text()))
		}
	}
	fmt.Fprintf(&b, ".SS Without effect\nAccepted as in dcgm\\-exporter:\n%s.\n", strings.Join(idle, ", "))
	return b.String()
}
