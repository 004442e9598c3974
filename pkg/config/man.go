package config

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"
)

// ManCommand returns the command that prints the manual page to w. tail, in troff, comes after the help texts.
func ManCommand(w io.Writer, program, version, tail string) *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "Print the manual page",
		Description: "In the language of troff: " + program + " man | man -l -",
		Action: func(_ context.Context, cmd *cli.Command) error {
			if err := NoArguments(cmd); err != nil {
				return err
			}
			_, err := io.WriteString(w, manual(cmd.Root(), version)+tail)
			return err
		},
	}
}

// manual returns the manual page of a program: the help texts of the program and its commands (Prepare).
func manual(root *cli.Command, version string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s %s\" \"User Commands\"\n", strings.ToUpper(root.Name), root.Name, roff(version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", root.Name, roff(root.Usage))
	b.WriteString(".SH DESCRIPTION\n" + preformatted(root.CustomRootCommandHelpTemplate))
	b.WriteString(".SH COMMANDS\n")
	for _, c := range root.Commands {
		if !c.Hidden && c.Name != "help" {
			fmt.Fprintf(&b, ".SS %s\n%s", roff(c.Name), preformatted(c.CustomHelpTemplate))
		}
	}
	b.WriteString(".SS completion\n" + completionUsage + ".\n")
	return b.String()
}

// preformatted returns a help text in troff. No line of it is taken for a request.
func preformatted(text string) string {
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
