package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// readout holds nvidia-smi's texts for one GPU, by "csv:power.draw" and
// "xml:fb_memory_usage/total", of MIG instances by "mig:7:fb_memory_usage/total", of
// NVLinks by "link:3:Replay Errors".
type readout map[string]string

// parts are the instances or links that the readout has something of.
func (r readout) parts(of scope) []string {
	var out []string
	for name := range r {
		if rest, ok := strings.CutPrefix(name, of.prefix()); ok {
			number, _, _ := strings.Cut(rest, ":")
			if !slices.Contains(out, number) {
				out = append(out, number)
			}
		}
	}
	slices.SortFunc(out, func(a, b string) int { return byIndex(a) - byIndex(b) })
	return out
}

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

// smiError is nvidia-smi's failure with its output.
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

// element is any element of XML.
type element struct {
	XMLName  xml.Name
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

// flatten adds the texts of leaves below e by the names on the way to them. Of several of a name (processes) it keeps
// the first.
func (r readout) flatten(prefix string, e *element) {
	for i := range e.Children {
		c := &e.Children[i]
		name := prefix + c.XMLName.Local
		if text := strings.TrimSpace(c.Text); text != "" && len(c.Children) == 0 {
			r.addNew(name, text)
		}
		if c.XMLName.Local != migDevices {
			r.flatten(name+"/", c)
			continue
		}
		// Texts of a MIG device are its GPU instance's; what its compute instances share is the first's.
		for j := range c.Children {
			mig := readout{}
			mig.flatten("", &c.Children[j])
			for name, text := range mig {
				r.addNew("mig:"+mig["gpu_instance_id"]+":"+name, text)
			}
		}
	}
}

const migDevices = "mig_devices"

func (r readout) addNew(name, text string) {
	if _, known := r[name]; !known {
		r[name] = text
	}
}

// parseXML reads the <gpu> elements by UUID, each with the texts of the host.
func parseXML(text []byte) (map[string]readout, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict = false // it names a DTD that is not there
	var root, host element
	if err := d.Decode(&root); err != nil {
		return nil, fmt.Errorf("read nvidia-smi's XML: %w", err)
	}
	all := make(map[string]readout)
	for i := range root.Children {
		if root.Children[i].XMLName.Local != "gpu" {
			host.Children = append(host.Children, root.Children[i])
		}
	}
	for i := range root.Children {
		if root.Children[i].XMLName.Local == "gpu" {
			one := make(readout)
			one.flatten("xml:", &host)
			one.flatten("xml:", &root.Children[i])
			all[one["xml:uuid"]] = one
		}
	}
	return all, nil
}

// Lines of "nvidia-smi nvlink" and "nvidia-smi -L".
var (
	gpuLine  = regexp.MustCompile(`^GPU \d+: .*\(UUID: ([^)]+)\)`)
	linkLine = regexp.MustCompile(`^\s+Link (\d+): (?:([A-Za-z][A-Za-z0-9 -]*): )?(.+)$`)
	migLine  = regexp.MustCompile(`^\s+MIG (\S+)\s+Device\s+(\d+):`)
)

// parseLinks reads what "nvidia-smi nvlink" lists by link: "Link 0: 26.562 GB/s",
// "Link 0: <inactive>", "Link 0: Replay Errors: 0".
func parseLinks(text []byte) map[string]readout {
	all := make(map[string]readout)
	var one readout
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if m := gpuLine.FindStringSubmatch(line); m != nil {
			one = make(readout)
			all[m[1]] = one
		} else if m := linkLine.FindStringSubmatch(line); m != nil && one != nil {
			name, value := m[2], m[3]
			switch {
			case name != "":
			case strings.HasSuffix(value, "GB/s"):
				name, value = "state", "Active"
			default: // <inactive>
				name, value = "state", "Not Active"
			}
			one["link:"+m[1]+":"+name] = value
		}
	}
	return all
}

// parseProfiles reads the profiles of "nvidia-smi -L" by the index of the MIG device.
func parseProfiles(text []byte) map[string]map[string]string {
	all := make(map[string]map[string]string)
	var one map[string]string
	for line := range strings.Lines(string(text)) {
		if m := gpuLine.FindStringSubmatch(line); m != nil {
			one = make(map[string]string)
			all[m[1]] = one
		} else if m := migLine.FindStringSubmatch(line); m != nil && one != nil {
			profile := m[1]
			if _, rest, split := strings.Cut(profile, "c."); split {
				profile = rest // of a compute instance: 1c.3g.71gb
			}
			one[m[2]] = profile
		}
	}
	return all
}

// ask asks for everything that this nvidia-smi can say, one right after the other. The
// CSV must succeed; silent has the other failures, by question.
func (s *smi) ask(ctx context.Context) (all map[string]readout, silent map[string]error, err error) {
	if all, err = s.csv(ctx); err != nil {
		return nil, nil, err
	}
	silent = make(map[string]error)
	join := func(more map[string]readout) {
		for uuid, one := range all {
			maps.Copy(one, more[uuid])
		}
	}
	if more, err := s.xml(ctx); err != nil {
		silent["-q -x"] = err
	} else {
		join(more)
	}
	for _, args := range [][]string{{"nvlink", "-s"}, {"nvlink", "-e"}, {"nvlink", "-gt", "d"}} {
		out, err := s.run(ctx, args...)
		if err != nil {
			silent[strings.Join(args, " ")] = err
			continue
		}
		join(parseLinks(out))
	}
	out, err := s.run(ctx, "-L")
	if err != nil {
		silent["-L"] = err
		return all, silent, ctx.Err()
	}
	for uuid, profiles := range parseProfiles(out) {
		one := all[uuid]
		for _, gi := range one.parts(instance) {
			if p := profiles[one["mig:"+gi+":index"]]; p != "" {
				one["mig:"+gi+":profile"] = p
			}
		}
	}
	return all, silent, ctx.Err()
}
