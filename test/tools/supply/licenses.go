package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// licenseText returns the modules of all programs, with each licence text once.
func licenseText(programs []program) []byte {
	modules := union(programs)
	var out bytes.Buffer
	names := make([]string, len(programs))
	for i, p := range programs {
		names[i] = p.file
	}
	fmt.Fprintf(&out, "What is linked into %s, and under which licences. The numbers are those of the texts below.\n\n", strings.Join(names, ", "))
	type shared struct{ body, of string }
	var texts []shared
	for _, m := range modules {
		fmt.Fprintf(&out, "%s %s: %s", m.path, m.version, cmp.Or(strings.Join(m.licenses(), ", "), "see there"))
		var numbers []int
		for _, t := range m.texts {
			of := m.path + " " + t.name
			i := slices.IndexFunc(texts, func(s shared) bool { return s.body == t.body })
			if i < 0 {
				i = len(texts)
				texts = append(texts, shared{body: t.body})
			}
			texts[i].of += "    " + of + "\n"
			if !slices.Contains(numbers, i+1) {
				numbers = append(numbers, i+1)
			}
		}
		fmt.Fprintln(&out, "", numbers)
	}
	rule := strings.Repeat("=", 80)
	for i, t := range texts {
		fmt.Fprintf(&out, "\n%s\n[%d]\n%s%s\n\n%s\n", rule, i+1, t.of, rule, t.body)
	}
	return out.Bytes()
}

// union returns the modules of all programs, sorted. Programs from one tree share module versions, but may link
// different packages of a module, with different texts.
func union(programs []program) (out []module) {
	for _, p := range programs {
		for _, m := range p.modules {
			i := slices.IndexFunc(out, func(o module) bool { return o.path == m.path && o.version == m.version })
			if i < 0 {
				out = append(out, module{path: m.path, version: m.version, texts: slices.Clone(m.texts)})
				continue
			}
			for _, t := range m.texts {
				if !slices.ContainsFunc(out[i].texts, func(o text) bool { return o.name == t.name }) {
					out[i].texts = append(out[i].texts, t)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b module) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.version, b.version))
	})
	return out
}
