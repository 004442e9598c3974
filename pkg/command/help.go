package command

import (
	"fmt"
	"strings"

	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/config"
)

const helpIndent = 8 // columns

// flagHelp returns the part of the help text that lists the flags: the common ones, the others by group, then
// the names of flags that are accepted without effect.
func flagHelp(s *config.Set) string {
	var b strings.Builder
	helpGroup(&b, s, "The flags that most people need", func(f *config.Flag) bool { return f.Common })
	for _, g := range s.Groups() {
		if g != config.GroupIdle {
			helpGroup(&b, s, g, func(f *config.Flag) bool { return f.Group == g && !f.Common })
		}
	}
	var idle []string
	for _, f := range s.Flags() {
		if f.Group == config.GroupIdle {
			idle = append(idle, config.Dashed(f.Name))
		}
	}
	b.WriteString("Accepted as in the vendors' exporters, without effect in this version (docs/flags.md says why):\n")
	cmdline.Wrap(&b, strings.Join(idle, " "), 2)
	return b.String()
}

func helpGroup(b *strings.Builder, s *config.Set, heading config.Group, listed func(*config.Flag) bool) {
	fmt.Fprintf(b, "%s:\n", heading)
	for _, f := range s.Flags() {
		if listed(f) {
			helpFlag(b, f)
		}
	}
	b.WriteByte('\n')
}

func helpFlag(b *strings.Builder, f *config.Flag) {
	b.WriteString("  " + f.Spelling())
	switch {
	case f.Metavar != "" && f.IsBoolFlag():
		b.WriteString("=" + f.Metavar) // the value cannot be a separate argument
	case f.Metavar != "":
		b.WriteString(" " + f.Metavar)
	}
	b.WriteByte('\n')
	cmdline.Wrap(b, f.Text(), helpIndent)
}
