package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// longestDefault is how much of a default fits the table.
const longestDefault = 60

// valuesTable makes Markdown of the values whose comment begins with "-- ".
func valuesTable(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("parse %q: %w", path, err)
	}
	var out bytes.Buffer
	out.WriteString("| Value | Default | |\n|---|---|---|\n")
	if err := rows(&out, "", doc.Content[0]); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// rows writes a row for each described key of a mapping, and looks below the others.
func rows(out *bytes.Buffer, above string, mapping *yaml.Node) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := above + key.Value
		text, described := description(key.HeadComment)
		switch {
		case described:
			d, err := defaultText(value)
			if err != nil {
				return fmt.Errorf("value %q: %w", name, err)
			}
			fmt.Fprintf(out, "| `%s` | %s | %s |\n", name, d, strings.ReplaceAll(text, "|", `\|`))
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			if err := rows(out, name+".", value); err != nil {
				return err
			}
		default:
			return fmt.Errorf("value %q has no description", name)
		}
	}
	return nil
}

func description(comment string) (string, bool) {
	for line := range strings.Lines(comment) {
		if text, ok := strings.CutPrefix(line, "# -- "); ok {
			return strings.TrimSpace(text), true
		}
	}
	return "", false
}

func defaultText(n *yaml.Node) (string, error) {
	var v any
	if err := n.Decode(&v); err != nil {
		return "", err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	switch {
	case len(b) > longestDefault:
		return "see values.yaml", nil
	case string(b) == `""`:
		return "", nil
	}
	return "`" + string(b) + "`", nil
}
