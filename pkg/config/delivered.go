package config

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"warpgauge/pkg/field"
)

// ParseDelivered reads a list that a server has delivered: a counters CSV, or a YAML configuration with the
// list and its intervals only. bad names all other keys.
func ParseDelivered(data []byte, name string, isYAML bool, dialects ...string) (c *Content, bad []field.Problem, err error) {
	if !isYAML {
		return &Content{CSV: data, Name: name}, nil, nil
	}
	y, err := parseYAML(data, name, dialects...)
	if err != nil {
		return nil, nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, nil, err
	}
	for _, path := range [][]string{
		{"metrics", "file"}, {"metrics", "enableExporterMetrics"}, {"server"}, {"sources"}, {"collections", "sources"},
	} {
		for _, line := range linesOf(&root, path) {
			bad = append(bad, field.Problem{File: name, Line: line, Severity: field.Error, Message: strings.Join(path, ".") + ": a delivered list can set fields and intervals only"})
		}
	}
	return &Content{CSV: y.csv(), Name: name, YAML: y, yaml: data}, bad, nil
}

// linesOf returns the lines of a key, in each entry of lists on the way.
func linesOf(n *yaml.Node, path []string) (out []int) {
	switch n.Kind {
	case yaml.AliasNode:
		return linesOf(n.Alias, path)
	case yaml.DocumentNode, yaml.SequenceNode:
		for _, entry := range n.Content {
			out = append(out, linesOf(entry, path)...)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			switch key := n.Content[i]; {
			case key.Value == "<<": // a merge
				out = append(out, linesOf(n.Content[i+1], path)...)
			case key.Value != path[0]:
			case len(path) == 1:
				out = append(out, key.Line)
			default:
				out = append(out, linesOf(n.Content[i+1], path[1:])...)
			}
		}
	}
	return out
}

// ApplyInterval sets the interval of fields without one in a delivered list. Such fields would use
// --collect-interval, which the exporter takes from a file only at start.
func (y *YAML) ApplyInterval(list field.List) {
	if y == nil {
		return
	}
	ms, err := strconv.ParseInt(y.flags["collect-interval"], 10, 64)
	if err != nil {
		return // there is none
	}
	for i := range list.Fields {
		f := &list.Fields[i]
		if f.Interval == 0 && f.Type != field.Label && (f.Desc.Cost == field.EachTick || f.Desc.Event) {
			f.Interval = time.Duration(ms) * time.Millisecond
		}
	}
}
