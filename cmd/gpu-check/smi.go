package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// readout is what nvidia-smi says of one GPU: texts by "csv:power.draw" and
// "xml:fb_memory_usage/total".
type readout map[string]string

// smi is the program nvidia-smi.
type smi struct {
	path    string
	queries []string // properties that it knows
}

// identity are properties that a GPU is found by.
var identity = []string{"uuid", "name", "pci.bus_id", "driver_version", "mig.mode.current"}

// newSMI asks which of the properties this version knows: it refuses a query that
// has one it does not.
func newSMI(ctx context.Context, path string, properties []string) (*smi, error) {
	s := &smi{path: path, queries: slices.Concat(identity, properties)}
	for len(s.queries) > 0 {
		_, err := s.csv(ctx)
		name := unknownProperty(err)
		if name == "" {
			return s, err
		}
		i := slices.Index(s.queries, name)
		if i < 0 {
			return nil, err
		}
		s.queries = slices.Delete(s.queries, i, i+1)
	}
	return nil, fmt.Errorf("%s knows none of the properties", path)
}

var invalidField = regexp.MustCompile(`Field "([^"]+)" is not a valid field to query`)

func unknownProperty(err error) string {
	var failed *smiError
	if !errors.As(err, &failed) {
		return ""
	}
	if m := invalidField.FindStringSubmatch(failed.output); m != nil {
		return m[1]
	}
	return ""
}

// smiError is nvidia-smi's failure with what it printed.
type smiError struct {
	err    error
	output string
}

func (e *smiError) Error() string {
	return fmt.Sprintf("nvidia-smi: %v: %s", e.err, strings.TrimSpace(e.output))
}
func (e *smiError) Unwrap() error { return e.err }

func (s *smi) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.path, args...) //nolint:gosec // the user names it
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, &smiError{err, out.String() + complaint.String()} // it complains on stdout
	}
	return out.Bytes(), nil
}

// csv asks for the properties of all GPUs, by UUID.
func (s *smi) csv(ctx context.Context) (map[string]readout, error) {
	out, err := s.run(ctx, "--query-gpu="+strings.Join(s.queries, ","), "--format=csv,noheader")
	if err != nil {
		return nil, err
	}
	return parseCSV(out, s.queries)
}

func parseCSV(text []byte, properties []string) (map[string]readout, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.TrimLeadingSpace, r.LazyQuotes, r.FieldsPerRecord = true, true, len(properties)
	all := make(map[string]readout)
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read nvidia-smi's CSV: %w", err)
		}
		one := make(readout, len(record))
		for i, p := range properties {
			one["csv:"+p] = record[i]
		}
		all[one["csv:uuid"]] = one
	}
}

// xml asks for everything, by UUID.
func (s *smi) xml(ctx context.Context) (map[string]readout, error) {
	out, err := s.run(ctx, "-q", "-x")
	if err != nil {
		return nil, err
	}
	return parseXML(out)
}

// parseXML flattens <gpu> elements: the texts of leaves by the names on the way to
// them. Of several of a name (processes, instances) it keeps the first.
func parseXML(text []byte) (map[string]readout, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict = false // it names a DTD that is not there
	all, host := make(map[string]readout), make(readout)
	var path []string
	var one readout
	var leaf strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read nvidia-smi's XML: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if path = append(path, t.Name.Local); len(path) == 2 && t.Name.Local == "gpu" {
				one = make(readout)
			}
			leaf.Reset()
		case xml.CharData:
			leaf.Write(t)
		case xml.EndElement:
			put(host, one, path, strings.TrimSpace(leaf.String()))
			leaf.Reset()
			if len(path) == 2 && t.Name.Local == "gpu" {
				for k, v := range host {
					one[k] = v
				}
				all[one["xml:uuid"]] = one
				one = nil
			}
			if len(path) > 0 {
				path = path[:len(path)-1]
			}
		}
	}
}

// put files a leaf: below gpu it is the GPU's, else the host's.
func put(host, gpu readout, path []string, text string) {
	const inGPU = 2
	if text == "" || len(path) < inGPU {
		return
	}
	to, from := host, 1
	if gpu != nil {
		to, from = gpu, inGPU
	}
	name := "xml:" + strings.Join(path[from:], "/")
	if _, known := to[name]; !known {
		to[name] = text
	}
}

// both asks for CSV and XML one right after the other and joins them.
func (s *smi) both(ctx context.Context) (map[string]readout, error) {
	all, err := s.csv(ctx)
	if err != nil {
		return nil, err
	}
	more, err := s.xml(ctx)
	if err != nil {
		return nil, err
	}
	for uuid, one := range all {
		for k, v := range more[uuid] {
			one[k] = v
		}
	}
	return all, nil
}
