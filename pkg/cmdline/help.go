package cmdline

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v3"
)

// completionUsage describes a command of urfave/cli's.
const completionUsage = "Print a completion script: bash, zsh, fish or pwsh"

// CommandList lists the commands of a program for its help text.
func CommandList(root *cli.Command) string {
	var b strings.Builder
	for _, c := range root.Commands {
		if !c.Hidden {
			fmt.Fprintf(&b, "  %-10s %s\n", c.Name, c.Usage)
		}
	}
	fmt.Fprintf(&b, "  %-10s %s\n", "completion", completionUsage)
	return b.String()
}

// commandHelp returns the help text of a command. The library prints it unchanged, because it holds no
// template text.
func commandHelp(program string, c *cli.Command, footer string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s %s [flags]", c.Usage, program, c.Name)
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
		Wrap(&text, flagText(d), len(name))
		b.WriteString(name + strings.TrimLeft(text.String(), " "))
	}
	b.WriteString(footer)
	return b.String()
}

// flagText describes a flag of a command, with its default.
func flagText(f cli.DocGenerationFlag) string {
	text := f.GetUsage()
	if v := strings.Trim(f.GetValue(), `"`); v != "" && f.TakesValue() {
		text += " Default: " + v + "."
	}
	return text
}

// HelpWidth is the width of help texts in columns.
const HelpWidth = 100

// Wrap writes text in lines of at most HelpWidth columns, indented.
func Wrap(b *strings.Builder, text string, indent int) {
	column := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			b.WriteString(strings.Repeat(" ", indent))
			column = indent
		case column+1+n > HelpWidth:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteByte('\n')
}
