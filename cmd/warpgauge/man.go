package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/config"
)

func manCommand(a *app) *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "Print the manual page",
		Description: "In the language of troff: warpgauge man | man -l -",
		Action: func(_ context.Context, cmd *cli.Command) error {
			if err := noArguments(cmd); err != nil {
				return err
			}
			_, err := io.WriteString(a.out, manual(cmd.Root(), a.flags, a.build.version))
			return err
		},
	}
}

const manualHead = `.SH NAME
warpgauge \- GPU metrics for Prometheus
.SH SYNOPSIS
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

// manual is the manual page, from the tables of commands and flags.
func manual(root *cli.Command, flags *config.Set, version string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH WARPGAUGE 1 \"\" \"warpgauge %s\" \"User Commands\"\n", roff(version))
	b.WriteString(manualHead)
	b.WriteString(".SH COMMANDS\n")
	for _, c := range root.Commands {
		if !c.Hidden && c.Name != "help" {
			manualCommand(&b, c)
		}
	}
	b.WriteString(".SS completion bash|zsh|fish|pwsh\n" + completionUsage + ".\n")
	b.WriteString(".SH OPTIONS\n")
	for _, g := range flags.Groups() {
		fmt.Fprintf(&b, ".SS %s\n", roff(string(g)))
		for _, f := range flags.Flags() {
			if f.Group != g || f.NoEffect != "" {
				continue
			}
			term := roff(f.Spelling())
			if f.Metavar != "" {
				term += `=\fI` + roff(f.Metavar) + `\fP`
			}
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fP\n%s\n", term, roffLines(f.Text()))
		}
	}
	b.WriteString(".SS Without effect\nAccepted as in dcgm\\-exporter:\n")
	var idle []string
	for _, f := range flags.Flags() {
		if f.NoEffect != "" {
			idle = append(idle, roff(config.Dashed(f.Name)))
		}
	}
	fmt.Fprintf(&b, "%s.\n", strings.Join(idle, ", "))
	b.WriteString(manualTail)
	return b.String()
}

func manualCommand(b *strings.Builder, c *cli.Command) {
	name := c.Name
	if c.ArgsUsage != "" {
		name += " " + c.ArgsUsage
	}
	fmt.Fprintf(b, ".SS %s\n%s.\n", roff(name), roffLines(strings.TrimSuffix(c.Usage, ".")))
	if c.Description != "" {
		fmt.Fprintf(b, "%s\n", roffLines(c.Description))
	}
	for _, f := range c.Flags {
		d, ok := f.(cli.DocGenerationFlag)
		if !ok || f.Names()[0] == "help" {
			continue
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fP\n%s\n", roff("--"+f.Names()[0]), roffLines(flagText(d)))
	}
}

// roff writes text so that troff shows it as it is.
func roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `"`, `\(dq`).Replace(text)
}

// roffLines is roff of lines, none of which is taken for a request.
func roffLines(text string) string {
	lines := strings.Split(roff(strings.TrimSpace(text)), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
