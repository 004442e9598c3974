package config

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"
)

// Manual is the program's own part of a manual page, in troff.
type Manual struct {
	Version string
	Head    string // from the synopsis to the commands
	Tail    string // options, and everything after the commands
}

// ManCommand returns the command that prints the manual page to w.
func ManCommand(w io.Writer, program string, manual func() Manual) *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "Print the manual page",
		Description: "In the language of troff: " + program + " man | man -l -",
		Action: func(_ context.Context, cmd *cli.Command) error {
			if err := NoArguments(cmd); err != nil {
				return err
			}
			_, err := io.WriteString(w, manual().page(cmd.Root()))
			return err
		},
	}
}

// page returns the manual page of a program, with the table of its commands.
func (m Manual) page(root *cli.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s %s\" \"User Commands\"\n", strings.ToUpper(root.Name), root.Name, Roff(m.Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", root.Name, Roff(root.Usage))
	b.WriteString(m.Head)
	b.WriteString(".SH COMMANDS\n")
	for _, c := range root.Commands {
		if !c.Hidden && c.Name != "help" {
			manualCommand(&b, c)
		}
	}
	b.WriteString(".SS completion bash|zsh|fish|pwsh\n" + completionUsage + ".\n")
	b.WriteString(m.Tail)
	return b.String()
}

func manualCommand(b *strings.Builder, c *cli.Command) {
	name := c.Name
	if c.ArgsUsage != "" {
		name += " " + c.ArgsUsage
	}
	fmt.Fprintf(b, ".SS %s\n%s.\n", Roff(name), RoffLines(strings.TrimSuffix(c.Usage, ".")))
	if c.Description != "" {
		fmt.Fprintf(b, "%s\n", RoffLines(c.Description))
	}
	for _, f := range c.Flags {
		d, ok := f.(cli.DocGenerationFlag)
		if !ok || f.Names()[0] == "help" {
			continue
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fP\n%s\n", Roff("--"+f.Names()[0]), RoffLines(flagText(d)))
	}
}

// Roff escapes text for troff.
func Roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `"`, `\(dq`).Replace(text)
}

// RoffLines escapes whole lines: troff must not take one for a request.
func RoffLines(text string) string {
	lines := strings.Split(Roff(strings.TrimSpace(text)), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// ManualOptions lists the flags of the exporter.
func ManualOptions(flags *Set) string {
	var b strings.Builder
	var idle []string
	b.WriteString(".SH OPTIONS\n")
	for _, g := range flags.Groups() {
		if g != GroupIdle {
			fmt.Fprintf(&b, ".SS %s\n", Roff(string(g)))
		}
		for _, f := range flags.Flags() {
			switch {
			case f.Group != g:
				continue
			case g == GroupIdle:
				idle = append(idle, Roff(Dashed(f.Name)))
				continue
			}
			term := Roff(f.Spelling())
			if f.Metavar != "" {
				term += `=\fI` + Roff(f.Metavar) + `\fP`
			}
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fP\n%s\n", term, RoffLines(f.Text()))
		}
	}
	fmt.Fprintf(&b, ".SS Without effect\nAccepted as in dcgm\\-exporter:\n%s.\n", strings.Join(idle, ", "))
	return b.String()
}
