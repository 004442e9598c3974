package config

import (
	"fmt"
	"strings"
)

// MigrationMarkdown is the table of docs/migration-names.md: what becomes of each
// flag and variable of dcgm-exporter.
func (s *Set) MigrationMarkdown() string {
	var b strings.Builder
	b.WriteString("| Flag | Environment | Here |\n|---|---|---|\n")
	for _, f := range s.flags {
		if f.Origin != Contract {
			continue
		}
		names := "`" + dashed(f.Name) + "`"
		for _, a := range f.Aliases {
			names += ", `" + dashed(a) + "`"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s |\n", names, f.Env, cell(f.migration()))
	}
	return b.String()
}

func (f *cliFlag) migration() string {
	switch {
	case f.NoEffect != "":
		return "accepted, no effect: " + f.NoEffect
	case f.Differs != "":
		return "the same, but: " + f.Differs
	}
	return "the same"
}
