package fleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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

// FleetFile is the file of the directory that names cohorts and their lists.
const FleetFile = "fleet.yaml"

// Bounds of a directory.
const (
	maxCohorts   = 64
	maxStages    = 16
	maxFleetFile = 1 << 20
	maxListBytes = 256 << 10
)

// Plan is a directory that was read and found good. It must not be changed.
type Plan struct {
	Hash    string    // of all that was read
	Cohorts []*Cohort // the highest priority first
}

// Cohort is a group of agents that should have the same list.
type Cohort struct {
	Name     string
	Priority int
	Selector Selector
	List     *List
	Policy   Policy
	Warnings []string // about the list
}

// List is a field list. It must not be changed.
type List struct {
	Hash    string `json:"hash"` // SHA-256 of the content, hex
	Name    string `json:"name"` // of its file
	Content []byte `json:"content"`
	YAML    bool   `json:"yaml,omitempty"`
}

// Selector chooses agents. All of it must match; an empty one matches every agent. Values
// are patterns with * and ?.
type Selector struct {
	Labels     map[string]string `yaml:"labels"`     // --node-label of the agents
	Attributes map[string]string `yaml:"attributes"` // such as host.name; of an array, one value
}

func (s *Selector) matches(labels map[string]string, attributes map[string][]string) bool {
	for key, pattern := range s.Labels {
		if value, ok := labels[key]; !ok || !like(pattern, value) {
			return false
		}
	}
	for key, pattern := range s.Attributes {
		if !slices.ContainsFunc(attributes[key], func(value string) bool { return like(pattern, value) }) {
			return false
		}
	}
	return true
}

// like says whether a value is as the pattern says, which was checked when it was read. A slash is a letter
// like others.
func like(pattern, value string) bool {
	matched, _ := path.Match(strings.ReplaceAll(pattern, "/", "\x1f"), strings.ReplaceAll(value, "/", "\x1f"))
	return matched
}

func (s *Selector) check() error {
	for _, patterns := range []map[string]string{s.Labels, s.Attributes} {
		for key, pattern := range patterns {
			if _, err := path.Match(pattern, ""); err != nil {
				return fmt.Errorf("selector: %s: %q is no pattern", key, pattern)
			}
		}
	}
	return nil
}

// Policy says how a new list gets to a cohort.
type Policy struct {
	Manual    bool          // a rollout waits for an operator's command
	Stages    []Stage       // the last has all agents
	Timeout   time.Duration // after which an agent that has not acknowledged, or is silent, counts as refusing
	Tolerance float64       // share of a stage's agents that may refuse or fail, from 0 to 1
	Gates     Limits
}

// Stage is a part of a cohort that gets a new list, in addition to the stages before.
type Stage struct {
	Percent float64           // of the cohort's agents that are there when the stage begins
	Labels  map[string]string // in place of Percent: agents with these node labels
	Soak    time.Duration     // how long all of it must run the list before the next stage
}

// The file's own types. Keys that are not in them are errors.
type (
	fleetFile struct {
		Version int          `yaml:"version"`
		Rollout yamlPolicy   `yaml:"rollout"` // what cohorts do not say themselves
		Cohorts []yamlCohort `yaml:"cohorts"`
	}
	yamlCohort struct {
		Name     string     `yaml:"name"`
		Priority int        `yaml:"priority"`
		Selector Selector   `yaml:"selector"`
		List     string     `yaml:"list"`
		SHA256   string     `yaml:"sha256"`
		Rollout  yamlPolicy `yaml:"rollout"`
	}
	yamlPolicy struct {
		Start     string            `yaml:"start"`
		Stages    []yamlStage       `yaml:"stages"`
		Timeout   time.Duration     `yaml:"timeout"`
		Tolerance string            `yaml:"tolerance"`
		Gates     map[string]string `yaml:"gates"`
	}
	yamlStage struct {
		Percent float64           `yaml:"percent"`
		Labels  map[string]string `yaml:"labels"`
		Soak    time.Duration     `yaml:"soak"`
	}
)

// ParseList reads a list and returns what is remarkable about it, or why it is none.
type ParseList func(content []byte, name string) (warnings []string, err error)

// ParseCSV is ParseList for counters CSVs.
func ParseCSV(content []byte, name string) (warnings []string, err error) {
	list, problems, err := field.Parse(bytes.NewReader(content), field.ParseOptions{File: name})
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", name, err)
	}
	if len(list.Fields) == 0 {
		return nil, fmt.Errorf("list %q: it has no field", name)
	}
	const most = 20
	for _, p := range problems[:min(len(problems), most)] {
		warnings = append(warnings, p.Error())
	}
	return warnings, nil
}

// ReadDirectory reads and checks a whole directory. One mistake spoils all of it; the error names
// each. ParseYAML checks lists in YAML.
func ReadDirectory(directory string, parseYAML ParseList) (*Plan, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("read directory: %w", err)
	}
	defer func() { _ = root.Close() }() // only read
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
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: it has more than one document", FleetFile)
	}
	switch {
	case f.Version != 1:
		return nil, fmt.Errorf("%s: write version: 1", FleetFile)
	case len(f.Cohorts) == 0:
		return nil, fmt.Errorf("%s: it has no cohorts", FleetFile)
	case len(f.Cohorts) > maxCohorts:
		return nil, fmt.Errorf("%s: it has %d cohorts, more than %d", FleetFile, len(f.Cohorts), maxCohorts)
	}
	sum := sha256.New()
	sum.Write(content)
	p, named := &Plan{}, map[string]bool{}
	var bad error
	for i := range f.Cohorts {
		c, err := readCohort(root, &f.Cohorts[i], &f.Rollout, parseYAML)
		if err == nil && named[c.Name] {
			err = errors.New("there is another cohort of that name")
		}
		if err != nil {
			bad = errors.Join(bad, fmt.Errorf("%s: cohort %q: %w", FleetFile, f.Cohorts[i].Name, err))
			continue
		}
		named[c.Name] = true
		sum.Write([]byte(c.List.Hash))
		p.Cohorts = append(p.Cohorts, c)
	}
	if bad != nil {
		return nil, bad
	}
	p.Hash = hex.EncodeToString(sum.Sum(nil))
	slices.SortStableFunc(p.Cohorts, func(a, b *Cohort) int { return cmp.Compare(b.Priority, a.Priority) })
	return p, nil
}

var cohortName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func readCohort(root *os.Root, y *yamlCohort, defaults *yamlPolicy, parseYAML ParseList) (*Cohort, error) {
	if !cohortName.MatchString(y.Name) {
		return nil, errors.New("a name has up to 63 lower case letters, digits and hyphens")
	}
	if err := y.Selector.check(); err != nil {
		return nil, err
	}
	policy, err := newPolicy(&y.Rollout, defaults)
	if err != nil {
		return nil, err
	}
	content, err := file.ReadIn(root, y.List, maxListBytes)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	l := newList(y.List, content)
	if y.SHA256 != "" && !strings.EqualFold(y.SHA256, l.Hash) {
		return nil, fmt.Errorf("list %q: its SHA-256 is %s, not the one that is written", y.List, l.Hash)
	}
	parse := ParseList(ParseCSV)
	if l.YAML {
		parse = parseYAML
	}
	warnings, err := parse(content, y.List)
	if err != nil {
		return nil, err
	}
	return &Cohort{Name: y.Name, Priority: y.Priority, Selector: y.Selector, List: l, Policy: policy, Warnings: warnings}, nil
}

func newList(name string, content []byte) *List {
	sum := sha256.Sum256(content)
	ext := path.Ext(name)
	return &List{Hash: hex.EncodeToString(sum[:]), Name: name, Content: content, YAML: ext == ".yaml" || ext == ".yml"}
}

// Defaults of a policy.
const (
	defaultTimeout   = 5 * time.Minute
	defaultTolerance = 0.01
	minTimeout       = time.Second
)

func defaultStages() []yamlStage {
	const soak = 10 * time.Minute
	return []yamlStage{{Percent: 1, Soak: soak}, {Percent: 10, Soak: soak}, {Percent: 100, Soak: soak}}
}

// newPolicy joins what a cohort says with what the file says for all.
func newPolicy(own, all *yamlPolicy) (p Policy, err error) {
	switch start := cmp.Or(own.Start, all.Start, "auto"); start {
	case "auto":
	case "manual":
		p.Manual = true
	default:
		return p, fmt.Errorf("rollout.start is %q: write auto or manual", start)
	}
	p.Timeout = cmp.Or(own.Timeout, all.Timeout, defaultTimeout)
	if p.Timeout < minTimeout {
		return p, fmt.Errorf("rollout.timeout is %v: write at least %v", p.Timeout, minTimeout)
	}
	p.Tolerance = defaultTolerance
	if text := cmp.Or(own.Tolerance, all.Tolerance); text != "" {
		l, err := parseLimit(text)
		if err != nil || l.Off || !l.Relative || l.Value > 1 {
			return p, fmt.Errorf("rollout.tolerance is %q: write a share such as 1%%", text)
		}
		p.Tolerance = l.Value
	}
	if p.Gates, err = newLimits(all.Gates, own.Gates); err != nil {
		return p, err
	}
	stages := own.Stages
	if len(stages) == 0 {
		stages = all.Stages
	}
	if len(stages) == 0 {
		stages = defaultStages()
	}
	p.Stages, err = newStages(stages)
	return p, err
}

func newStages(in []yamlStage) (out []Stage, err error) {
	if len(in) > maxStages {
		return nil, fmt.Errorf("rollout.stages: there are %d, more than %d", len(in), maxStages)
	}
	last := 0.0
	for i, s := range in {
		switch {
		case (s.Percent != 0) == (len(s.Labels) != 0):
			return nil, fmt.Errorf("rollout.stages: stage %d: write percent or labels", i+1)
		case s.Percent < 0 || s.Percent > 100:
			return nil, fmt.Errorf("rollout.stages: stage %d: percent is %v: write more than 0 and at most 100", i+1, s.Percent)
		case s.Percent != 0 && s.Percent <= last:
			return nil, fmt.Errorf("rollout.stages: stage %d: percent must be more than the %v before", i+1, last)
		case s.Soak < 0:
			return nil, fmt.Errorf("rollout.stages: stage %d: soak is %v", i+1, s.Soak)
		}
		if err := (&Selector{Labels: s.Labels}).check(); err != nil {
			return nil, fmt.Errorf("rollout.stages: stage %d: %w", i+1, err)
		}
		last = max(last, s.Percent)
		out = append(out, Stage(s))
	}
	if out[len(out)-1].Percent != 100 {
		return nil, errors.New("rollout.stages: the last stage must have percent: 100")
	}
	return out, nil
}

// Watch reads the directory at each interval and hands over a plan when two readings in a row had the same
// one, so that a directory that is being written is not taken. What is wrong with it is handed
// over as well; the plan before stays in use.
func Watch(ctx context.Context, every time.Duration, read func() (*Plan, error), take func(*Plan, error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := ""
	for {
		p, err := read()
		switch {
		case err != nil:
			last = ""
			take(nil, err)
		case p.Hash == last:
			take(p, nil)
		default:
			last = p.Hash
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
