package fake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

// Spec is a script for a simulated node: its hardware, its load, and its faults with their times. README.md lists the
// keys of its YAML form.
type Spec struct {
	Profile   string // empty means Options.Profile
	Devices   int    // 0 means Options.Devices
	Seed      uint64 // 0 means Options.Seed
	Loads     []Load
	Processes []Process
	Faults    []Fault
}

// Load gives GPUs a shape. The last Load that names a GPU counts.
type Load struct {
	GPUs  Spans `yaml:"device"`
	Shape Shape
}

// maxSpec bounds a spec file, in bytes.
const maxSpec = 1 << 20

// LoadSpec reads a spec file.
func LoadSpec(path string) (*Spec, error) {
	text, err := file.NewReader(maxSpec).Read(context.Background(), path)
	if err != nil {
		return nil, fmt.Errorf("read fake spec: %w", err)
	}
	s, err := ParseSpec(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read fake spec %q: %w", path, err)
	}
	return s, nil
}

// ParseSpec reads a spec. Errors name their lines. An empty file yields an empty Spec.
func ParseSpec(r io.Reader) (*Spec, error) {
	dec := yaml.NewDecoder(r)
	dec.KnownFields(true)
	s := &Spec{}
	if err := dec.Decode(s); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one YAML document")
	}
	_, err := findProfile(s.Profile)
	return s, err
}

// problem returns an error with a node's line. The decoder collects such errors and reports all at once.
func problem(n *yaml.Node, format string, args ...any) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: ", n.Line) + fmt.Sprintf(format, args...)}}
}

// decode decodes a mapping with keys out of keys and checks the result. Keys with "!" are required.
func decode(n *yaml.Node, into any, what, keys string, check func() error) error {
	if n.Kind != yaml.MappingNode {
		return problem(n, "%s: want a mapping", what)
	}
	missing := map[string]bool{}
	for _, k := range strings.Fields(keys) {
		key, required := strings.CutSuffix(k, "!")
		missing[key] = required
	}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if _, known := missing[key.Value]; !known {
			return problem(key, "unknown key %q: %s has %s", key.Value, what, strings.ReplaceAll(keys, "!", ""))
		}
		missing[key.Value] = false
	}
	for key, is := range missing {
		if is {
			return problem(n, "%s needs the key %q", what, key)
		}
	}
	if err := n.Decode(into); err != nil {
		return err
	}
	if err := check(); err != nil {
		return problem(n, "%v", err)
	}
	return nil
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (l *Load) UnmarshalYAML(n *yaml.Node) error {
	type plain Load
	return decode(n, (*plain)(l), "a load", "device! shape!", func() error {
		if !slices.Contains(Shapes(), string(l.Shape)) {
			return fmt.Errorf("unknown shape %q: there are %s", l.Shape, strings.Join(Shapes(), ", "))
		}
		return nil
	})
}

// UnmarshalYAML implements yaml.Unmarshaler. The kind of fault decides which keys are allowed.
func (f *Fault) UnmarshalYAML(n *yaml.Node) error {
	type plain Fault
	in := struct {
		*plain `yaml:",inline"`
		Name   string `yaml:"field"`
		Label  string
		State  string
	}{plain: (*plain)(f)}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "kind" {
			f.Kind = FaultKind(n.Content[i+1].Value)
		}
	}
	if n.Kind == yaml.MappingNode && faultKeys[f.Kind] == "" {
		return problem(n, "%v", f.validate())
	}
	f.line = n.Line
	return decode(n, &in, fmt.Sprintf("a fault of kind %s", f.Kind), "kind at while "+faultKeys[f.Kind], func() error {
		var known, labelled bool
		if f.Field, _, known = field.ByName(in.Name); in.Name != "" && !known {
			return fmt.Errorf("unknown field %q", in.Name)
		}
		if f.Label.Name, f.Label.Value, labelled = strings.Cut(in.Label, "="); in.Label != "" && !labelled {
			return fmt.Errorf("want a label such as state=pending, not %q", in.Label)
		}
		if f.Fail = in.State == "fail"; f.Kind == Health && !f.Fail && in.State != "warn" {
			return fmt.Errorf("want the state warn or fail, not %q", in.State)
		}
		return f.validate()
	})
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *Process) UnmarshalYAML(n *yaml.Node) error {
	type plain Process
	*p = Process{Memory: math.NaN(), Busy: math.NaN()}
	return decode(n, (*plain)(p), "a process", "device! pid! memory busy at for while", func() error {
		switch {
		case p.PID < 1 || p.PID > maxPID:
			return fmt.Errorf("PIDs are 1 to %d, not %d", maxPID, p.PID)
		case p.Busy < 0 || p.Busy > 100:
			return fmt.Errorf("want a percentage, not %v", p.Busy)
		}
		return (&Fault{At: p.At, For: p.For, While: p.While}).validateTimes()
	})
}

// Span is a range of indices, both ends inclusive.
type Span struct{ First, Last int }

// Spans are indices of devices.
type Spans []Span

// All returns the span of all devices.
func All() Spans { return Spans{{0, maxDevices - 1}} }

func (s Spans) contain(i int) bool {
	return slices.ContainsFunc(s, func(s Span) bool { return s.First <= i && i <= s.Last })
}

// UnmarshalYAML parses 3, 0-3, all, or a list of these.
func (s *Spans) UnmarshalYAML(n *yaml.Node) error {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	for _, item := range items {
		if item.Value == "all" {
			*s = append(*s, All()...)
			continue
		}
		first, last, isRange := strings.Cut(item.Value, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || a < 0 || b < a || b >= maxDevices {
			return problem(item, "want a device such as 3, 0-3 or all, below %d; not %q", maxDevices, item.Value)
		}
		*s = append(*s, Span{a, b})
	}
	return nil
}

// labels returns labels from alternating names and values.
func labels(pairs ...string) (out []collector.Label) {
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, collector.Label{Name: pair[0], Value: pair[1]})
	}
	return out
}
