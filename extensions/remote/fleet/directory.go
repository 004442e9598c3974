package fleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

// FleetFile defines the cohorts and names their lists.
const FleetFile = "fleet.yaml"

// Bounds of a directory.
const (
	maxCohorts   = 64
	maxStages    = 16
	maxFleetFile = 1 << 20
	maxListBytes = 256 << 10
)

// Plan is the checked content of a directory. It must not be changed.
type Plan struct {
	Hash    string    // of all files
	Cohorts []*Cohort // highest priority first
}

// first returns the first cohort that fits, or nil.
func (p *Plan) first(fits func(*Cohort) bool) *Cohort {
	if i := slices.IndexFunc(p.Cohorts, fits); i >= 0 {
		return p.Cohorts[i]
	}
	return nil
}

// Cohort is a group of agents that should have the same list.
type Cohort struct {
	Name     string   `yaml:"name"`
	Priority int      `yaml:"priority"`
	Selector Selector `yaml:"selector"`
	File     string   `yaml:"list"`
	Policy   Policy   `yaml:"rollout"`
	List     *List    `yaml:"-"`
}

// List is a field list. It must not be changed.
type List struct {
	Hash    string `json:"hash"` // SHA-256 of the content, hex
	Name    string `json:"name"` // of the list's file
	Content []byte `json:"content"`
	YAML    bool   `json:"yaml,omitempty"`
}

// Selector matches agents by labels and attributes. Every entry must match. Values are patterns with * and ?.
type Selector map[string]string

func (s Selector) matches(labels map[string]string) bool {
	for key, pattern := range s {
		if value, ok := labels[key]; !ok || !like(pattern, value) {
			return false
		}
	}
	return true
}

// like reports whether value matches a valid pattern. A slash is an ordinary character.
func like(pattern, value string) bool {
	matched, _ := path.Match(strings.ReplaceAll(pattern, "/", "\x1f"), strings.ReplaceAll(value, "/", "\x1f"))
	return matched
}

func (s Selector) check() error {
	for key, pattern := range s {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%s: invalid pattern %q", key, pattern)
		}
	}
	return nil
}

// Policy defines how a new list reaches a cohort.
type Policy struct {
	Stages    []Stage          `yaml:"stages"`    // the last one includes all agents
	Timeout   time.Duration    `yaml:"timeout"`   // an agent that does not acknowledge within this time, or is silent that long, counts as refusing
	Tolerance Limit            `yaml:"tolerance"` // share of a stage's agents that may refuse or fail
	Gates     map[string]Limit `yaml:"gates"`
}

// Stage is a part of a cohort that gets a new list after the previous stages.
type Stage struct {
	Percent float64       `yaml:"percent"` // of the agents that are present when the stage begins
	Labels  Selector      `yaml:"labels"`  // instead of Percent
	Soak    time.Duration `yaml:"soak"`    // how long the whole stage must run the list before the next stage
}

// fleetFile is the content of FleetFile. Unknown keys are errors.
type fleetFile struct {
	Version int       `yaml:"version"`
	Rollout Policy    `yaml:"rollout"` // defaults for all cohorts
	Cohorts []*Cohort `yaml:"cohorts"`
}

// ParseYAML checks a YAML list and returns it as a counters CSV.
type ParseYAML func(content []byte, name string) (csv []byte, err error)

// ReadDirectory reads and checks a whole directory. One mistake rejects all of it; the error lists every mistake.
func ReadDirectory(directory string, parse ParseYAML) (*Plan, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("read directory: %w", err)
	}
	defer func() { _ = root.Close() }() // opened for reading only
	content, err := file.ReadIn(root, FleetFile, maxFleetFile)
	if err != nil {
		return nil, fmt.Errorf("read directory: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	var f fleetFile
	if err := decoder.Decode(&f); err != nil {
		return nil, fmt.Errorf("%s: %w", FleetFile, err)
	}
	switch {
	case !errors.Is(decoder.Decode(new(yaml.Node)), io.EOF):
		return nil, fmt.Errorf("%s: it has more than one document", FleetFile)
	case f.Version != 1:
		return nil, fmt.Errorf("%s: write version: 1", FleetFile)
	case len(f.Cohorts) == 0 || len(f.Cohorts) > maxCohorts:
		return nil, fmt.Errorf("%s: it has %d cohorts: write 1 to %d", FleetFile, len(f.Cohorts), maxCohorts)
	}
	sum := sha256.New()
	sum.Write(content)
	named := map[string]bool{}
	var bad error
	for _, c := range f.Cohorts {
		c = cmp.Or(c, &Cohort{}) // an empty entry is nil; complete refuses it
		err := c.complete(root, &f.Rollout, parse)
		if err == nil && named[c.Name] {
			err = errors.New("there is another cohort of that name")
		}
		if err != nil {
			bad = errors.Join(bad, fmt.Errorf("%s: cohort %q: %w", FleetFile, c.Name, err))
			continue
		}
		named[c.Name] = true
		sum.Write([]byte(c.List.Hash))
	}
	if bad != nil {
		return nil, bad
	}
	slices.SortStableFunc(f.Cohorts, func(a, b *Cohort) int { return cmp.Compare(b.Priority, a.Priority) })
	return &Plan{Hash: fmt.Sprintf("%x", sum.Sum(nil)), Cohorts: f.Cohorts}, nil
}

var cohortName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// complete checks a cohort, loads its list and applies the common settings.
func (c *Cohort) complete(root *os.Root, all *Policy, parse ParseYAML) error {
	if !cohortName.MatchString(c.Name) {
		return errors.New("a name has up to 63 lower case letters, digits and hyphens")
	}
	if err := c.Selector.check(); err != nil {
		return fmt.Errorf("selector: %w", err)
	}
	if err := c.Policy.complete(all); err != nil {
		return fmt.Errorf("rollout.%w", err)
	}
	content, err := file.ReadIn(root, c.File, maxListBytes)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	c.List = newList(c.File, content)
	if c.List.YAML {
		content, err = parse(content, c.File)
	}
	var list field.List
	if err == nil {
		list, _, err = field.Parse(bytes.NewReader(content), field.ParseOptions{File: c.File})
	}
	if err == nil && len(list.Fields) == 0 {
		err = errors.New("it has no field")
	}
	if err != nil {
		return fmt.Errorf("list %q: %w", c.File, err)
	}
	return nil
}

func newList(name string, content []byte) *List {
	ext := path.Ext(name)
	return &List{Hash: checksum(content), Name: name, Content: content, YAML: ext == ".yaml" || ext == ".yml"}
}

// Default values of a policy.
const (
	defaultTimeout   = 5 * time.Minute
	defaultTolerance = 0.01
	defaultSoak      = 10 * time.Minute
	minTimeout       = time.Second
)

// complete checks a cohort's policy and fills in the file's common policy, then the defaults.
func (p *Policy) complete(all *Policy) error {
	p.Timeout = cmp.Or(p.Timeout, all.Timeout, defaultTimeout)
	if p.Timeout < minTimeout {
		return fmt.Errorf("timeout is %v: write at least %v", p.Timeout, minTimeout)
	}
	p.Tolerance = cmp.Or(p.Tolerance, all.Tolerance, Limit{Value: defaultTolerance, Relative: true})
	if !p.Tolerance.Relative || p.Tolerance.Value > 1 {
		return errors.New("tolerance: write a share such as 1%")
	}
	gates := defaultLimits()
	known := len(gates)
	maps.Copy(gates, all.Gates)
	maps.Copy(gates, p.Gates)
	if len(gates) > known {
		return fmt.Errorf("gates: they are %s", strings.Join(slices.Sorted(maps.Keys(defaultLimits())), ", "))
	}
	p.Gates = gates
	if len(p.Stages) == 0 {
		p.Stages = all.Stages
	}
	if len(p.Stages) == 0 {
		p.Stages = []Stage{{Percent: 1, Soak: defaultSoak}, {Percent: 10, Soak: defaultSoak}, {Percent: 100, Soak: defaultSoak}}
	}
	return checkStages(p.Stages)
}

func checkStages(stages []Stage) error {
	if len(stages) > maxStages {
		return fmt.Errorf("stages: there are %d, more than %d", len(stages), maxStages)
	}
	last := 0.0
	for i, s := range stages {
		err := s.Labels.check()
		switch {
		case err != nil:
		case (s.Percent != 0) == (len(s.Labels) != 0):
			err = errors.New("write percent or labels")
		case !(s.Percent >= 0 && s.Percent <= 100):
			err = fmt.Errorf("percent is %v: write more than 0 and at most 100", s.Percent)
		case s.Percent != 0 && s.Percent <= last:
			err = fmt.Errorf("percent must be more than the %v before", last)
		case s.Soak < 0:
			err = fmt.Errorf("soak is %v", s.Soak)
		}
		if err != nil {
			return fmt.Errorf("stages: stage %d: %w", i+1, err)
		}
		last = max(last, s.Percent)
	}
	if stages[len(stages)-1].Percent != 100 {
		return errors.New("stages: the last stage must have percent: 100")
	}
	return nil
}

// Watch reads the directory at each interval. It passes on errors, and plans of two equal readings: none in the middle of a write.
func Watch(ctx context.Context, interval time.Duration, read func() (*Plan, error), take func(*Plan, error)) {
	last := ""
	every(ctx, interval, func() {
		p, err := read()
		if err != nil {
			p = &Plan{}
		}
		if err != nil || p.Hash == last {
			take(p, err)
		}
		last = p.Hash
	})
}
