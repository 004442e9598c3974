package config

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

// commandHelp returns the help text of a command. The library prints it unchanged, because it holds no template text.
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
		usage := d.GetUsage()
		if v := strings.Trim(d.GetValue(), `"`); v != "" && d.TakesValue() {
			usage += " Default: " + v + "."
		}
		Wrap(&text, usage, len(name))
		b.WriteString(name + strings.TrimLeft(text.String(), " "))
	}
	b.WriteString(footer)
	return b.String()
}

// HelpWidth is the width of help texts in columns.
const HelpWidth = 80

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

const helpIndent = 8 // columns

// FlagHelp returns the part of the help text that lists the flags: the common ones, the others by group, then
// the names of flags that are accepted without effect.
func FlagHelp(s *Set) string {
	var b strings.Builder
	helpGroup(&b, s, "The flags that most people need", func(f *Flag) bool { return f.Common })
	for _, g := range s.Groups() {
		if g != GroupIdle {
			helpGroup(&b, s, g, func(f *Flag) bool { return f.Group == g && !f.Common })
		}
	}
	var idle []string
	for _, f := range s.Flags() {
		if f.Group == GroupIdle {
			idle = append(idle, Dashed(f.Name))
		}
	}
	b.WriteString("Accepted without effect, as in the vendors' exporters (docs/flags.md says why):\n")
	Wrap(&b, strings.Join(idle, " "), 2)
	return b.String()
}

func helpGroup(b *strings.Builder, s *Set, heading Group, listed func(*Flag) bool) {
	fmt.Fprintf(b, "%s:\n", heading)
	for _, f := range s.Flags() {
		if listed(f) {
			helpFlag(b, f)
		}
	}
	b.WriteByte('\n')
}

func helpFlag(b *strings.Builder, f *Flag) {
	b.WriteString("  " + f.Spelling())
	switch {
	case f.Metavar != "" && f.IsBoolFlag():
		b.WriteString("=" + f.Metavar) // the value cannot be a separate argument
	case f.Metavar != "":
		b.WriteString(" " + f.Metavar)
	}
	b.WriteByte('\n')
	Wrap(b, f.Text(), helpIndent)
}
