package config

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"warpgauge/pkg/field"
)

// Dialect is an extension's names of another exporter (field.Dialect). Its own configuration file, if any, is read
// together with the field list.
type Dialect interface {
	// Name returns the dialect's name in --field-names.
	Name() string
	// Read returns the content of the dialect's file, or nil without one. A change of a file that readFile has read
	// causes a reload. Calls must not overlap.
	Read(ctx context.Context, readFile func(ctx context.Context, path string) ([]byte, error)) ([]byte, error)
	// Apply returns the list with the dialect. file is from Read, or nil to use the previous file. The problems are warnings.
	Apply(list field.List, inPlace bool, file []byte) (field.List, []field.Problem)
	// Use tells the dialect that the list read together with file is in use. level is the log level; nil: it does not change.
	Use(file []byte, log *zap.Logger, level *zap.AtomicLevel)
}

// AddDialect adds a way to name fields, alone or after the names of the list's fields. usage is a sentence for
// --field-names.
func (s *Set) AddDialect(d Dialect, usage string) {
	s.config.dialects = append(s.config.dialects, d)
	f := s.find("field-names")
	f.Value = OneOf(&s.config.FieldNames, field.AllNames(s.config.DialectNames()...)...)
	f.Usage += " " + usage
}

// DialectNames returns the names of all dialects.
func (c *Config) DialectNames() (out []string) {
	for _, d := range c.dialects {
		out = append(out, d.Name())
	}
	return out
}

// Named returns the list under the configured names, and a problem for each field without such a name.
func (c *Config) Named(list field.List, in *Content) (field.List, []field.Problem) {
	names := c.Names(in)
	list, problems := list.Named(names, in.Name)
	_, wanted := names.Split()
	if i := slices.IndexFunc(c.dialects, func(d Dialect) bool { return d.Name() == wanted }); i >= 0 {
		var more []field.Problem
		list, more = c.dialects[i].Apply(list, string(names) == wanted, in.dialects[wanted])
		problems = append(problems, more...)
	}
	return list, problems
}

// Use tells all dialects that the list of in is in use.
func (c *Config) Use(in *Content, log *zap.Logger, level *zap.AtomicLevel) {
	for _, d := range c.dialects {
		if file := in.dialects[d.Name()]; file != nil {
			d.Use(file, log, level)
		}
	}
}
