package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

// Group is a heading of the help text.
type Group string

const (
	GroupFields     Group = "What is read"
	GroupSampling   Group = "Sampling"
	GroupCollectors Group = "Collectors and devices"
	GroupPage       Group = "The page"
	GroupWeb        Group = "Web"
	GroupOwners     Group = "Kubernetes, containers and jobs"
	GroupLogging    Group = "Logging and diagnosis"
	GroupFake       Group = "Simulated GPUs"
	GroupIdle       Group = "Accepted without effect" // see Idle
)

// lastGroups come after the groups of extensions.
var lastGroups = []Group{GroupLogging, GroupFake, GroupIdle}

// Groups returns the groups in the order of the help text: in table order, lastGroups at the end.
func (s *Set) Groups() (out []Group) {
	for _, f := range s.flags {
		if !slices.Contains(out, f.Group) && !slices.Contains(lastGroups, f.Group) {
			out = append(out, f.Group)
		}
	}
	return append(out, lastGroups...)
}

// Origin tells who defined a flag.
type Origin string

const (
	Contract Origin = "dcgm-exporter" // name, variable and meaning come from dcgm-exporter
	Own      Origin = "warpgauge"
)

// Source is the source of a value.
type Source uint8

const (
	FromDefault   Source = iota
	FromExtension        // an extension has another default
	FromFile             // a configuration file
	FromEnvironment
	FromCommandLine
)

func (s Source) String() string {
	return [...]string{"default", "default of an extension", "configuration file", "environment", "command line"}[s]
}

// Flag is one row of the flag table. It implements urfave/cli's flag itself, so that the environment is a
// parameter, every message names the flag or variable, and help and documentation come from the same row.
type Flag struct {
	Name    string   // without dashes
	Aliases []string // without dashes
	Env     string   // environment variable; empty and Own: WARPGAUGE_ and the name
	Group   Group
	Origin  Origin
	Metavar string // placeholder of the value in the help; empty for a switch
	Usage   string // one sentence or two, without the default
	// Common flags come first in the help: most people need them.
	Common bool
	// NoEffect explains why setting the flag changes nothing. Empty: it works.
	NoEffect string
	// Needs names a switch that the flag depends on: while the switch is empty, false or off, the flag
	// changes nothing. Empty: none.
	Needs string
	// ParentOnly flags are not passed to the child processes that run collectors, because all users can see a
	// process's arguments.
	ParentOnly bool
	// Differs explains how a flag of dcgm-exporter differs on purpose.
	Differs string
	// ShownDefault replaces the default in help and documentation.
	ShownDefault string

	Value   Value
	initial string // the default, as text
	lookup  func(string) (string, bool)
	sources map[string]Source
}

// Idle returns a flag of another exporter that changes nothing here. It is accepted, so that a manifest for that
// exporter starts; its value is checked and dropped.
func Idle(name, env string, v Value, why string) Flag {
	f := Flag{Name: name, Env: env, Group: GroupIdle, Value: v, Usage: "As in that exporter.", NoEffect: why}
	if !f.IsBoolFlag() {
		f.Metavar = "VALUE"
	}
	return f
}

var (
	_ cli.Flag        = (*Flag)(nil)
	_ cli.LocalFlag   = (*Flag)(nil)
	_ cli.VisibleFlag = (*Flag)(nil)
)

// Set stores a value from the command line. It replaces a value from the environment.
func (f *Flag) Set(_, text string) error {
	if f.sources[f.Name] != FromCommandLine {
		f.reset()
	}
	return f.set(f.Spelling(), text, FromCommandLine)
}

// set stores a value from a source. what names the flag in the error.
func (f *Flag) set(what, text string, from Source) error {
	if err := f.Value.Set(text); err != nil {
		return fmt.Errorf("%s is %q: %w", what, text, err)
	}
	f.sources[f.Name] = from
	return nil
}

// PostParse uses the environment's value if the command line has none.
func (f *Flag) PostParse() error {
	if f.sources[f.Name] != FromDefault || f.Env == "" {
		return nil
	}
	text, ok := f.lookup(f.Env)
	if !ok || text == "" {
		return nil
	}
	f.reset()
	return f.set("environment variable "+f.Env, text, FromEnvironment)
}

// reset empties a list; other values are overwritten.
func (f *Flag) reset() {
	if l, ok := f.Value.(interface{ Reset() }); ok {
		l.Reset()
	}
}

// IsBoolFlag reports whether the flag may stand without a value.
func (f *Flag) IsBoolFlag() bool {
	b, ok := f.Value.(interface{ isBare() bool })
	return ok && b.isBare()
}

// PreParse does nothing: the Config holds the defaults.
func (f *Flag) PreParse() error { return nil }

// Get returns the value as text.
func (f *Flag) Get() any { return f.Value.String() }

// Names returns the name and the aliases.
func (f *Flag) Names() []string { return append([]string{f.Name}, f.Aliases...) }

// IsSet reports whether the command line or the environment has set the flag.
func (f *Flag) IsSet() bool { return f.sources[f.Name] != FromDefault }

// IsLocal returns false: subcommands accept all flags.
func (f *Flag) IsLocal() bool { return false }

// IsVisible returns true; Set.Help prints the help.
func (f *Flag) IsVisible() bool { return true }
func (f *Flag) String() string  { return f.Spelling() + "\t" + f.Usage }

// Default returns the default as text.
func (f *Flag) Default() string { return f.initial }

// Spelling returns the flag as users write it: -f, --collectors.
func (f *Flag) Spelling() string {
	var names []string
	for _, a := range f.Aliases {
		names = append(names, Dashed(a))
	}
	return strings.Join(append(names, Dashed(f.Name)), ", ")
}

// Dashed returns the name of a flag with its dashes.
func Dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// Section is the core's or an extension's part of the flag table: rows bound to its own settings, with
// functions that set defaults and check the settings.
type Section struct {
	Origin Origin
	Flags  []Flag
	// ParentOnly makes all flags of the section Flag.ParentOnly.
	ParentOnly bool
	// Defaults sets flags of any section that the user has not set (Set.SetDefault). It runs after the
	// command line, the environment and --config-file were read. May be nil.
	Defaults func(*Set) error
	// Check returns every problem of the settings, joined. It runs after all Defaults. May be nil.
	Check func(*Config) error
	// Notices lists settings without effect for a reason other than Flag.NoEffect and Flag.Needs. May be nil.
	Notices func(*Config) []Notice
}

// Set is the flag table: the core's rows over one Config, and the rows of extensions (Add). It determines
// help, documentation, environment, configuration file and unknown variables.
type Set struct {
	flags    []*Flag
	sections []Section
	config   *Config
	lookup   func(string) (string, bool)
	lenient  bool
}

// NewSet returns the core's flag table over a Config with defaults. lookup reads the environment, as os.LookupEnv does;
// a variable that is set but empty counts as not set.
func NewSet(lookup func(string) (string, bool)) *Set {
	c := Default()
	c.sources = map[string]Source{}
	s := &Set{config: c, lookup: lookup}
	s.Add(Section{Origin: Contract, Flags: slices.Concat(
		contractFields(c), contractDevices(c), contractPage(c), contractWeb(c), contractOwners(c), contractDiagnosis(c), contractIdle())})
	s.Add(Section{Origin: Own, Flags: slices.Concat(
		ownSampling(c), ownCollectors(c), ownServing(c), ownOwners(c), ownFake(c)), Check: (*Config).validate, Notices: (*Config).ownMetricsNotice})
	return s
}

func in(g Group, flags ...Flag) []Flag {
	for i := range flags {
		flags[i].Group = g
	}
	return flags
}

// Add adds a section whose settings hold their defaults. Call it before parsing the command line.
func (s *Set) Add(part Section) {
	for _, f := range part.Flags {
		if f.Env == "" && part.Origin == Own {
			f.Env = "WARPGAUGE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		}
		f.ParentOnly = f.ParentOnly || part.ParentOnly
		f.Origin, f.initial, f.lookup, f.sources = part.Origin, f.Value.String(), s.lookup, s.config.sources
		s.flags = append(s.flags, &f)
	}
	s.sections = append(s.sections, part)
}

// SetDefault sets a flag that is not set yet, from a source that ranks below the command line. It ignores a
// flag that the table lacks because its extension is not built in.
func (s *Set) SetDefault(name, text string, from Source) error {
	f := s.find(name)
	if f == nil || f.sources[name] != FromDefault {
		return nil
	}
	return f.set(from.String()+": --"+name, text, from)
}

// AllowUnknown makes unknown flags a warning instead of an error.
func (s *Set) AllowUnknown() { s.lenient = true }

// UnknownAllowed reports whether unknown flags are only a warning.
func (s *Set) UnknownAllowed() bool { return s.lenient }

// Lookup reads the environment.
func (s *Set) Lookup(name string) (string, bool) { return s.lookup(name) }

// Settings returns the core's current settings, not yet checked.
func (s *Set) Settings() *Config { return s.config }

// Flags returns the table's rows in order.
func (s *Set) Flags() []*Flag { return slices.Clone(s.flags) }

// CLI returns the table as flags of a root command, persistent in its subcommands.
func (s *Set) CLI() []cli.Flag {
	out := make([]cli.Flag, len(s.flags))
	for i, f := range s.flags {
		out[i] = f
	}
	return out
}

// Config returns the Config after the command line was parsed. It reads the YAML configuration if one is
// named. It returns all problems at once.
func (s *Set) Config() (*Config, error) {
	if err := s.readFile(); err != nil {
		return nil, err
	}
	for _, part := range s.sections {
		if part.Defaults == nil {
			continue
		}
		if err := part.Defaults(s); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, part := range s.sections {
		if part.Check != nil {
			errs = append(errs, part.Check(s.config))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s.config, nil
}

func (s *Set) readFile() error {
	c := s.config
	if c.ConfigFile == "" {
		return nil
	}
	data, err := file.NewReader(field.MaxFileBytes).Read(context.Background(), c.ConfigFile)
	if err != nil {
		return fmt.Errorf("read configuration file: %w", err)
	}
	if c.YAML, err = parseYAML(data, c.ConfigFile, c.DialectNames()...); err != nil {
		return err
	}
	for name, text := range c.YAML.flags {
		if err := s.SetDefault(name, text, FromFile); err != nil {
			return err
		}
	}
	return nil
}

// Arguments returns the flags that were set by any source, as arguments for another process of this binary,
// without Flag.ParentOnly flags.
func (s *Set) Arguments() []string {
	var out []string
	for _, f := range s.flags {
		if s.config.Source(f.Name) != FromDefault && !f.ParentOnly {
			out = append(out, "--"+f.Name+"="+f.Value.String())
		}
	}
	return out
}

// Notice is a remark for the operator about a flag that was set.
type Notice struct {
	Flag   string
	Source Source
	Text   string
}

// Notices lists the flags that were set without effect, in table order.
func (s *Set) Notices() []Notice {
	var out []Notice
	for _, f := range s.flags {
		src := s.config.Source(f.Name)
		if src == FromDefault || f.Value.String() == f.initial {
			continue
		}
		if why := s.withoutEffect(f); why != "" {
			out = append(out, Notice{f.Name, src, "--" + f.Name + " has no effect" + why})
		}
	}
	for _, part := range s.sections {
		if part.Notices != nil {
			out = append(out, part.Notices(s.config)...)
		}
	}
	c, lists := s.config, "collectors" // the flag that names the list
	if c.ConfigMap != "" {
		lists = "configmap-data"
		if c.CollectorsGiven() {
			out = append(out, Notice{"collectors", c.Source("collectors"), "--collectors is not used: --configmap-data names the list"})
		}
	}
	if y := c.YAML; y != nil {
		for _, text := range y.ignored {
			out = append(out, Notice{flagConfigFile, FromFile, "no effect: " + text})
		}
		if (c.ConfigMap != "" || c.CollectorsGiven()) && (y.file != "" || len(y.fields) > 0) {
			out = append(out, Notice{flagConfigFile, FromFile, "metrics of the configuration file are not used: --" + lists + " names the list"})
		}
	}
	return out
}

// ofService matches the variables that Kubernetes creates for a Service, for example for one called dcgm-exporter.
var ofService = regexp.MustCompile(`_(SERVICE_(HOST|PORT)(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_.*)?)?)$`)

// ofUnit is the variable that the unit in deploy/systemd expands to arguments.
const ofUnit = "WARPGAUGE_FLAGS"

// UnknownVariables lists the variables of an environment (as os.Environ returns it) that begin like ours or
// dcgm-exporter's but belong to no flag.
func (s *Set) UnknownVariables(environ []string) []Notice {
	var known []string
	for _, f := range s.flags {
		known = append(known, f.Env)
	}
	var out []Notice
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		ours := strings.HasPrefix(name, "WARPGAUGE_") || strings.HasPrefix(name, "DCGM_EXPORTER_")
		if !ours || name == ofUnit || slices.Contains(known, name) || ofService.MatchString(name) {
			continue
		}
		text := "environment variable " + name + " is unknown and has no effect"
		if near, ok := field.Nearest(name, known); ok {
			text += "; did you mean " + near + "?"
		}
		out = append(out, Notice{Source: FromEnvironment, Text: text})
	}
	slices.SortFunc(out, func(a, b Notice) int { return strings.Compare(a.Text, b.Text) })
	return out
}

// withoutEffect returns why a flag that was set changes nothing.
func (s *Set) withoutEffect(f *Flag) string {
	if f.NoEffect != "" {
		return ": " + f.NoEffect
	}
	for need := f.Needs; need != ""; { // which may itself need another
		on := s.find(need)
		if on == nil || slices.Contains([]string{"", "false", "off"}, on.Value.String()) {
			return " without --" + need
		}
		need = on.Needs
	}
	return ""
}

func (s *Set) find(name string) *Flag {
	if i := slices.IndexFunc(s.flags, func(f *Flag) bool { return f.Name == name }); i >= 0 {
		return s.flags[i]
	}
	return nil
}

// Text returns the flag's help, with its default and its variable.
func (f *Flag) Text() string {
	text := f.Usage
	if d := cmp.Or(f.ShownDefault, f.initial); d != "" && !(f.Metavar == "" && d == "false") { // not for a switch that is off
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
