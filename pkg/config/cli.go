package config

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"
)

// cliFlag makes a row of the table a flag of urfave/cli. It is used instead of
// the flag types of that package so that the environment can be passed in, so
// that every message names the flag or the variable it concerns, and so that
// help and documentation come from the same row.
type cliFlag struct {
	Flag
	initial string // the default, as text
	lookup  func(string) (string, bool)
	sources map[string]Source
}

var (
	_ cli.Flag              = (*cliFlag)(nil)
	_ cli.LocalFlag         = (*cliFlag)(nil)
	_ cli.VisibleFlag       = (*cliFlag)(nil)
	_ cli.CategorizableFlag = (*cliFlag)(nil)
)

// CLI returns the table as flags of a root command, persistent in its
// subcommands.
func (s *Set) CLI() []cli.Flag {
	out := make([]cli.Flag, len(s.flags))
	for i, f := range s.flags {
		out[i] = f
	}
	return out
}

// Set stores a value from the command line, which replaces one from the
// environment.
func (f *cliFlag) Set(_, text string) error {
	if f.sources[f.Name] != FromCommandLine {
		f.reset()
	}
	if err := f.value.Set(text); err != nil {
		return fmt.Errorf("%s is %q: %w", f.spelling(), text, err)
	}
	f.sources[f.Name] = FromCommandLine
	return nil
}

// PostParse takes the value of the environment where the command line gave none.
func (f *cliFlag) PostParse() error {
	if f.sources[f.Name] != FromDefault || f.Env == "" {
		return nil
	}
	text, ok := f.lookup(f.Env)
	if !ok || text == "" {
		return nil
	}
	f.reset()
	if err := f.value.Set(text); err != nil {
		return fmt.Errorf("environment variable %s is %q: %w", f.Env, text, err)
	}
	f.sources[f.Name] = FromEnvironment
	return nil
}

// reset forgets what a list has gathered; other values are overwritten.
func (f *cliFlag) reset() {
	if l, ok := f.value.(interface{ reset() }); ok {
		l.reset()
	}
}

// PreParse has nothing to prepare: the Config holds the defaults.
func (f *cliFlag) PreParse() error { return nil }

// IsBoolFlag says whether the flag may stand without a value.
func (f *cliFlag) IsBoolFlag() bool {
	b, ok := f.value.(interface{ isBare() bool })
	return ok && b.isBare()
}

func (f *cliFlag) Get() any            { return f.value.String() }
func (f *cliFlag) Names() []string     { return append([]string{f.Name}, f.Aliases...) }
func (f *cliFlag) IsSet() bool         { return f.sources[f.Name] != FromDefault }
func (f *cliFlag) IsLocal() bool       { return false }
func (f *cliFlag) IsVisible() bool     { return true }
func (f *cliFlag) GetCategory() string { return string(f.Group) }
func (f *cliFlag) SetCategory(string)  {}
func (f *cliFlag) String() string      { return f.spelling() + "\t" + f.Usage }

// spelling is how the flag is written: -f, --collectors.
func (f *Flag) spelling() string {
	var names []string
	for _, a := range f.Aliases {
		names = append(names, dashed(a))
	}
	return strings.Join(append(names, dashed(f.Name)), ", ")
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
