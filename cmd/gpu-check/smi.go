package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// readout holds nvidia-smi's texts for one GPU, by "csv:power.draw" and "xml:fb_memory_usage/total".
type readout map[string]string

// smi runs nvidia-smi.
type smi struct {
	path    string
	queries []string // properties to query
}

func (s *smi) run(ctx context.Context, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, s.path, args...).CombinedOutput() //nolint:gosec // the user's program
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w: %s", err, bytes.TrimSpace(out)) // it reports errors on stdout
	}
	return out, nil
}

// ask returns all readouts of this nvidia-smi, by UUID.
func (s *smi) ask(ctx context.Context) (map[string]readout, error) {
	out, err := s.csv(ctx)
	if err != nil {
		return nil, err
	}
	all, err := parseCSV(out, s.queries)
	if err != nil {
		return nil, err
	}
	if out, err = s.run(ctx, "-q", "-x"); err != nil {
		say("compared with nvidia-smi's query only: %v", err)
		return all, ctx.Err()
	}
	more, err := parseXML(out)
	for uuid, one := range all {
		maps.Copy(one, more[uuid])
	}
	return all, err
}

var invalidField = regexp.MustCompile(`Field "([^"]+)" is not a valid field to query`)

// csv queries the properties. nvidia-smi refuses a query with an unknown property, which csv then drops for good.
func (s *smi) csv(ctx context.Context) ([]byte, error) {
	for {
		out, err := s.run(ctx, "--query-gpu="+strings.Join(s.queries, ","), "--format=csv,noheader")
		if err == nil {
			return out, nil
		}
		m := invalidField.FindStringSubmatch(err.Error())
		if m == nil || !slices.Contains(s.queries, m[1]) {
			return nil, err
		}
		s.queries = slices.DeleteFunc(s.queries, func(q string) bool { return q == m[1] })
	}
}

func parseCSV(text []byte, properties []string) (map[string]readout, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.TrimLeadingSpace, r.LazyQuotes, r.FieldsPerRecord = true, true, len(properties)
	records, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read nvidia-smi's CSV: %w", err)
	}
	all := make(map[string]readout)
	for _, record := range records {
		one := make(readout, len(record))
		for i, p := range properties {
			one["csv:"+p] = record[i]
		}
		all[one["csv:uuid"]] = one
	}
	return all, nil
}

// element is any element of XML.
type element struct {
	XMLName  xml.Name
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

// flatten adds the texts of the leaves below e, by the path of names. If several have the same path (processes), the
// first counts.
func (r readout) flatten(prefix string, e *element) {
	for i := range e.Children {
		c := &e.Children[i]
		name := prefix + c.XMLName.Local
		text := strings.TrimSpace(c.Text)
		switch {
		case len(c.Children) > 0:
			r.flatten(name+"/", c)
		case text != "" && r[name] == "":
			r[name] = text
		}
	}
}

// parseXML parses the <gpu> elements, by UUID.
func parseXML(text []byte) (map[string]readout, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict = false // the document names a missing DTD
	var root element
	if err := d.Decode(&root); err != nil {
		return nil, fmt.Errorf("read nvidia-smi's XML: %w", err)
	}
	all := make(map[string]readout)
	for i := range root.Children {
		if root.Children[i].XMLName.Local == "gpu" {
			one := make(readout)
			one.flatten("xml:", &root.Children[i])
			all[one["xml:uuid"]] = one
		}
	}
	return all, nil
}

// words maps nvidia-smi's words to numbers.
var words = map[string]float64{
	"enabled": 1, "disabled": 0, "active": 1, "not active": 0, "yes": 1, "no": 0,
	"default": 0, "prohibited": 1, "exclusive_process": 2, "exclusive process": 2, // DCGM's compute modes
	"reset": 1, "gpu reset": 1, "reboot": 2, "node reboot": 2, "drain p2p": 3, "drain and reset": 4, // recovery actions
	"none": 0, "pass-through": 1, "passthrough": 1, "vgpu": 2, "host vgpu": 3, "host vsga": 4, // virtualisation modes
}

// numberOf parses "70.12 W", "0x0000000000000004", "Enabled", "P0" or "640 bank(s)". It returns false for other
// texts, such as "N/A" and "[Not Supported]".
func numberOf(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	if v, ok := words[strings.ToLower(text)]; ok {
		return v, true
	}
	first, _, _ := strings.Cut(text, " ")
	if hex, ok := strings.CutPrefix(first, "0x"); ok {
		v, err := strconv.ParseUint(hex, 16, 64)
		return float64(v), err == nil
	}
	first = strings.TrimSuffix(strings.TrimPrefix(first, "P"), "x") // a state or a width
	v, err := strconv.ParseFloat(first, 64)
	return v, err == nil
}

// absent reports whether nvidia-smi shows a missing value.
func absent(text string) bool {
	switch strings.Trim(strings.ToLower(strings.TrimSpace(text)), "[]") {
	case "", "n/a", "not supported", "not available", "unknown error", "insufficient permissions", "requested functionality has been deprecated":
		return true
	}
	return false
}
