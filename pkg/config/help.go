package config

import (
	"fmt"
	"strings"

	"warpgauge/pkg/cmdline"
)

const helpIndent = 8 // columns

// Help is the part of the help text that lists the flags: the common ones, the others
// that work, by group, then the names of those that are accepted without effect.
func (s *Set) Help() string {
	var b strings.Builder
	s.helpGroup(&b, "The flags that most people need", func(f *Flag) bool { return f.Common })
	for _, g := range s.Groups() {
		if g != GroupIdle {
			s.helpGroup(&b, g, func(f *Flag) bool { return f.Group == g && !f.Common })
		}
	}
	var idle []string
	for _, f := range s.flags {
		if f.Group == GroupIdle {
			idle = append(idle, Dashed(f.Name))
		}
	}
	b.WriteString("Accepted as in the vendors' exporters, without effect in this version (docs/flags.md says why):\n")
	cmdline.Wrap(&b, strings.Join(idle, " "), 2)
	return b.String()
}

func (s *Set) helpGroup(b *strings.Builder, heading Group, listed func(*Flag) bool) {
	fmt.Fprintf(b, "%s:\n", heading)
	for _, f := range s.flags {
		if listed(f) {
			f.help(b)
		}
	}
	b.WriteByte('\n')
}

func (f *Flag) help(b *strings.Builder) {
	b.WriteString("  " + f.Spelling())
	switch {
	case f.Metavar != "" && f.IsBoolFlag():
		b.WriteString("=" + f.Metavar) // the value cannot be an argument of its own
	case f.Metavar != "":
		b.WriteString(" " + f.Metavar)
	}
	b.WriteByte('\n')
	cmdline.Wrap(b, f.Text(), helpIndent)
}

// Text returns the flag's help, with its default and its variable.
func (f *Flag) Text() string {
	text := f.Usage
	if d := f.defaultText(); d != "" {
		text += " Default: " + d + "."
	}
	if f.Needs != "" {
		text += " Needs " + Dashed(f.Needs) + "."
	}
	if f.Env != "" {
		text += " $" + f.Env
	}
	return text
}

// defaultText is the default as the help shows it; empty for a switch that is off.
func (f *Flag) defaultText() string {
	switch {
	case f.ShownDefault != "":
		return f.ShownDefault
	case f.Metavar == "" && f.initial == "false":
		return ""
	}
	return f.initial
}
