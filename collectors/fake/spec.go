package fake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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

// Load gives GPUs a shape. The last Load of a GPU counts.
type Load struct {
	GPUs  []Span
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

// ParseSpec reads a spec. Errors name line and column; all of them are reported
// at once. An empty file is an empty Spec.
func ParseSpec(r io.Reader) (*Spec, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSpec+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxSpec:
		return nil, fmt.Errorf("larger than %d bytes", maxSpec)
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return &Spec{}, nil
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: want one YAML document", more.Line)
	}
	p := &parser{}
	s := p.spec(doc.Content[0])
	if err := p.err(); err != nil {
		return nil, err
	}
	return s, nil
}

func (p *parser) spec(n *yaml.Node) *Spec {
	s := &Spec{}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" { // only comments
		return s
	}
	p.mapping(n, "the spec", map[string]func(*yaml.Node){
		"profile": func(n *yaml.Node) {
			s.Profile = p.text(n)
			if _, err := findProfile(s.Profile); err != nil {
				p.problem(n, "%v", err)
			}
		},
		"devices": func(n *yaml.Node) { s.Devices = p.integer(n, 1, maxDevices) },
		"seed":    func(n *yaml.Node) { s.Seed = uint64(p.integer(n, 0, 1<<53)) },
		"loads": func(n *yaml.Node) {
			p.sequence(n, "loads", func(n *yaml.Node) { s.Loads = append(s.Loads, p.load(n)) })
		},
		"processes": func(n *yaml.Node) {
			p.sequence(n, "processes", func(n *yaml.Node) { s.Processes = append(s.Processes, p.process(n)) })
		},
		"faults": func(n *yaml.Node) {
			p.sequence(n, "faults", func(n *yaml.Node) { s.Faults = append(s.Faults, p.fault(n)) })
		},
	})
	return s
}

func (p *parser) load(n *yaml.Node) Load {
	var l Load
	p.mapping(n, "a load", map[string]func(*yaml.Node){
		"device": func(n *yaml.Node) { l.GPUs = p.spans(n) },
		"shape": func(n *yaml.Node) {
			l.Shape = Shape(p.text(n))
			if !slices.Contains(Shapes(), string(l.Shape)) {
				p.problem(n, "unknown shape %q: there are %s", l.Shape, strings.Join(Shapes(), ", "))
			}
		},
	}, "device", "shape")
	return l
}

// fault parses one fault. Its kind says which keys it has.
func (p *parser) fault(n *yaml.Node) Fault {
	f := Fault{line: n.Line}
	before := len(p.problems)
	kind := p.kind(n)
	if faultKeys[kind] == "" {
		return f
	}
	f.Kind = kind
	setters := map[string]func(*yaml.Node){
		"kind":    func(*yaml.Node) {},
		"at":      func(n *yaml.Node) { f.At = p.duration(n) },
		"for":     func(n *yaml.Node) { f.For = p.duration(n) },
		"while":   func(n *yaml.Node) { f.While = p.text(n) },
		"device":  func(n *yaml.Node) { f.GPUs = p.spans(n) },
		"switch":  func(n *yaml.Node) { f.Switches = p.spans(n) },
		"delay":   func(n *yaml.Node) { f.Delay = p.duration(n) },
		"field":   func(n *yaml.Node) { f.Field = p.field(n) },
		"value":   func(n *yaml.Node) { f.Value = p.number(n) },
		"label":   func(n *yaml.Node) { f.Label = p.label(n) },
		"xid":     func(n *yaml.Node) { f.XID = p.integer(n, 1, 999) },
		"devices": func(n *yaml.Node) { f.Count = p.integer(n, 0, maxDevices) },
		"watch":   func(n *yaml.Node) { f.Watch = p.text(n) },
		"state":   func(n *yaml.Node) { f.Fail = p.choice(n, "warn", "fail") == "fail" },
		"code":    func(n *yaml.Node) { f.Code = p.text(n) },
		"message": func(n *yaml.Node) { f.Message = p.text(n) },
		"once":    func(n *yaml.Node) { f.Once = p.choice(n, "true", "false") == "true" },
		"status":  func(n *yaml.Node) { f.Status = p.integer(n, 0, 255) },
		"rate":    func(n *yaml.Node) { f.Rate = p.integer(n, 1, maxLeakMiB) },
	}
	allowed := []string{"kind", "at", "while"}
	var required []string
	for _, key := range strings.Fields(faultKeys[kind]) {
		key, must := strings.CutSuffix(key, "!")
		if must {
			required = append(required, key)
		}
		allowed = append(allowed, key)
	}
	maps.DeleteFunc(setters, func(key string, _ func(*yaml.Node)) bool { return !slices.Contains(allowed, key) })
	p.mapping(n, fmt.Sprintf("a fault of kind %s", kind), setters, required...)
	if len(p.problems) == before {
		if err := f.validate(); err != nil {
			p.problem(n, "%v", err)
		}
	}
	return f
}

// kind finds a fault's kind before its other keys, which depend on it.
func (p *parser) kind(n *yaml.Node) FaultKind {
	if n.Kind != yaml.MappingNode {
		p.problem(n, "want a fault such as {at: 10s, device: 3, kind: hang}")
		return ""
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "kind" {
			return FaultKind(p.choice(n.Content[i+1], faultKinds()...))
		}
	}
	p.problem(n, "a fault needs a kind: %s", strings.Join(faultKinds(), ", "))
	return ""
}

func (p *parser) field(n *yaml.Node) *field.Descriptor {
	d, _, ok := field.ByName(p.text(n))
	if !ok {
		p.problem(n, "unknown field %q", n.Value)
	}
	return d
}

// label parses name=value.
func (p *parser) label(n *yaml.Node) collector.Label {
	name, value, ok := strings.Cut(p.text(n), "=")
	if !ok || name == "" {
		p.problem(n, "want a label such as state=pending, not %q", n.Value)
	}
	return collector.Label{Name: name, Value: value}
}

// spans parses 3, 0-3, all, or a list of such.
func (p *parser) spans(n *yaml.Node) []Span {
	if n.Kind == yaml.SequenceNode {
		var out []Span
		for _, item := range n.Content {
			if item.Kind == yaml.SequenceNode {
				p.problem(item, "want a device, not a list in a list")
				return nil
			}
			out = append(out, p.spans(item)...)
		}
		if len(out) == 0 {
			p.problem(n, "want at least one device")
		}
		return out
	}
	text := p.text(n)
	if text == "all" {
		return All()
	}
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.Atoi(strings.TrimSpace(first))
	b, errB := strconv.Atoi(strings.TrimSpace(last))
	if errA != nil || errB != nil || a < 0 || b < a || b >= maxDevices {
		p.problem(n, "want a device such as 3, 0-3 or all, below %d; not %q", maxDevices, text)
		return nil
	}
	return []Span{{a, b}}
}

// parser walks a YAML tree and collects all problems with their lines. (Decoding into structs stops at the first
// problem of a kind and reports Go types, which the author of a spec does not know.)
type parser struct{ problems []error }

// maxProblems bounds the reported problems.
const maxProblems = 20

func (p *parser) problem(n *yaml.Node, format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("line %d, column %d: %s", n.Line, n.Column, fmt.Sprintf(format, args...)))
}

func (p *parser) err() error {
	if more := len(p.problems) - maxProblems; more > 0 {
		return errors.Join(append(p.problems[:maxProblems:maxProblems], fmt.Errorf("and %d more", more))...)
	}
	return errors.Join(p.problems...)
}

// mapping calls the setter of each key, at most once each, and checks that required keys are present.
func (p *parser) mapping(n *yaml.Node, what string, setters map[string]func(*yaml.Node), required ...string) {
	if n.Kind != yaml.MappingNode {
		p.problem(n, "%s: want a mapping of %s", what, names(setters))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		set, ok := setters[key.Value]
		switch {
		case !ok:
			p.problem(key, "unknown key %q: %s has %s", key.Value, what, names(setters))
		case seen[key.Value]:
			p.problem(key, "key %q occurs twice", key.Value)
		default:
			seen[key.Value] = true
			set(value)
		}
	}
	for _, key := range required {
		if !seen[key] {
			p.problem(n, "%s needs the key %q", what, key)
		}
	}
}

func names(setters map[string]func(*yaml.Node)) string {
	return strings.Join(slices.Sorted(maps.Keys(setters)), ", ")
}

func (p *parser) sequence(n *yaml.Node, what string, item func(*yaml.Node)) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" { // a key with nothing under it
		return
	}
	if n.Kind != yaml.SequenceNode {
		p.problem(n, "%s: want a list", what)
		return
	}
	for _, c := range n.Content {
		item(c)
	}
}

// text returns a scalar. Aliases are refused: a spec does not need them, and they can make a small file large.
func (p *parser) text(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		p.problem(n, "want a value")
		return ""
	}
	return n.Value
}

func (p *parser) choice(n *yaml.Node, of ...string) string {
	text := p.text(n)
	if !slices.Contains(of, text) {
		p.problem(n, "want one of %s, not %q", strings.Join(of, ", "), text)
	}
	return text
}

func (p *parser) integer(n *yaml.Node, low, high int) int {
	text := p.text(n)
	v, err := strconv.Atoi(text)
	if err != nil || v < low || v > high {
		p.problem(n, "want a whole number from %d to %d, not %q", low, high, text)
		return low
	}
	return v
}

func (p *parser) number(n *yaml.Node) float64 {
	var v float64
	if err := n.Decode(&v); err != nil || math.IsNaN(v) {
		p.problem(n, "want a number, not %q (for no value, use kind: blank)", n.Value)
		return 0
	}
	return v
}

func (p *parser) duration(n *yaml.Node) time.Duration {
	text := p.text(n)
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		p.problem(n, "want a duration such as 10s or 1m30s, not %q", text)
		return 0
	}
	return d
}
