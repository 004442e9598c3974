package cmdline

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"
)

// Manual is the part of a manual page that is a program's own, in the language of troff.
type Manual struct {
	Version string
	Head    string // from the synopsis to the commands
	Tail    string // options, and all that follows the commands
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

// page is the manual page of a program, with the table of its commands.
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

// Roff writes text so that troff shows it as it is.
func Roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `"`, `\(dq`).Replace(text)
}

// RoffLines is Roff for lines: troff takes none of them for a request.
func RoffLines(text string) string {
	lines := strings.Split(Roff(strings.TrimSpace(text)), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
