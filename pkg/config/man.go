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

// page returns the manual page of a program, with the help texts of its commands (Prepare).
func (m Manual) page(root *cli.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s %s\" \"User Commands\"\n", strings.ToUpper(root.Name), root.Name, roff(m.Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", root.Name, roff(root.Usage))
	b.WriteString(m.Head)
	b.WriteString(".SH COMMANDS\n")
	for _, c := range root.Commands {
		if !c.Hidden && c.Name != "help" {
			fmt.Fprintf(&b, ".SS %s\n%s", roff(c.Name), Preformatted(c.CustomHelpTemplate))
		}
	}
	b.WriteString(".SS completion\n" + completionUsage + ".\n")
	b.WriteString(m.Tail)
	return b.String()
}

// Preformatted returns a help text in troff. No line of it is taken for a request.
func Preformatted(text string) string {
	lines := strings.Split(strings.TrimSpace(roff(text)), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return ".nf\n" + strings.Join(lines, "\n") + "\n.fi\n"
}

// roff escapes text for troff.
func roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `"`, `\(dq`).Replace(text)
}
