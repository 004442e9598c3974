package fake

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// parser walks a YAML tree and collects all problems, each with its place.
// (Decoding into structs stops at the first problem of a kind and speaks of Go
// types, which the author of a spec does not know.)
type parser struct{ problems []error }

// maxProblems is how many problems are worth reading.
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

// mapping calls the setter of each key, once each, and wants the required ones.
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

// text returns a scalar. Aliases are not followed: nothing in a spec is worth
// one, and they can make a small file large.
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
