package config

import "slices"

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
)

// groups is the order of the help text.
var groups = [...]Group{
	GroupFields, GroupSampling, GroupCollectors, GroupPage,
	GroupWeb, GroupOwners, GroupLogging, GroupFake,
}

// Origin says whose flag it is.
type Origin string

const (
	Contract Origin = "dcgm-exporter" // name, variable and meaning are dcgm-exporter's
	Own      Origin = "warpgauge"
)

// Source says where a value came from.
type Source uint8

const (
	FromDefault Source = iota
	FromEnvironment
	FromCommandLine
)

func (s Source) String() string {
	return [...]string{"default", "environment", "command line"}[s]
}

// Flag is one row of the flag table.
type Flag struct {
	Name    string   // without dashes
	Aliases []string // without dashes
	Env     string   // environment variable
	Group   Group
	Origin  Origin
	Metavar string // what stands for the value in the help; empty for a switch
	Usage   string // one sentence or two, without the default
	// NoEffect says why setting the flag changes nothing. Empty: it works.
	NoEffect string
	// Needs names a switch without which the flag changes nothing. Empty: none.
	Needs string
	// Differs says where a flag of dcgm-exporter's deliberately differs.
	Differs string
	// ShownDefault replaces the default in help and documentation.
	ShownDefault string

	value value
}

// Set is the flag table over one Config.
type Set struct {
	flags  []*cliFlag
	config *Config
}

// NewSet makes the flag table over a Config with defaults. lookup reads the
// environment, as os.LookupEnv does; a variable that is set but empty counts as
// not set.
func NewSet(lookup func(string) (string, bool)) *Set {
	s := &Set{config: Default()}
	s.config.sources = map[string]Source{}
	for _, f := range append(contractFlags(s.config), ownFlags(s.config)...) {
		s.flags = append(s.flags, &cliFlag{Flag: f, initial: f.value.String(), lookup: lookup, sources: s.config.sources})
	}
	return s
}

// Config returns the Config after the command line was parsed. It returns every
// problem at once.
func (s *Set) Config() (*Config, error) {
	if err := s.config.Validate(); err != nil {
		return nil, err
	}
	return s.config, nil
}

// Arguments returns the flags that were set on the command line, as another
// process of this binary takes them. What the environment says it inherits.
func (s *Set) Arguments() []string {
	var out []string
	for _, f := range s.flags {
		if s.config.Source(f.Name) == FromCommandLine {
			out = append(out, "--"+f.Name+"="+f.value.String())
		}
	}
	return out
}

// Notice is something that a person should know about a flag which was set.
type Notice struct {
	Flag   string
	Source Source
	Text   string
}

// Notices lists the flags that were set and have no effect, in table order.
func (s *Set) Notices() []Notice {
	var out []Notice
	for _, f := range s.flags {
		src := s.config.Source(f.Name)
		if src == FromDefault || f.value.String() == f.initial {
			continue
		}
		if why := s.idle(f); why != "" {
			out = append(out, Notice{f.Name, src, "--" + f.Name + " has no effect" + why})
		}
	}
	return out
}

// idle says why a flag that was set changes nothing.
func (s *Set) idle(f *cliFlag) string {
	if f.NoEffect != "" {
		return ": " + f.NoEffect
	}
	for need := f.Needs; need != ""; { // which may need another
		on := s.find(need)
		if on.value.String() != "true" {
			return " without --" + need
		}
		need = on.Needs
	}
	return ""
}

// find returns the flag of that name, which there is.
func (s *Set) find(name string) *cliFlag {
	return s.flags[slices.IndexFunc(s.flags, func(f *cliFlag) bool { return f.Name == name })]
}
