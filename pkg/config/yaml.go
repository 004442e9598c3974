package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"warpgauge/pkg/field"
)

// YAML is a configuration file of dcgm-exporter 4.8.3 and later (--config-file), in version 1 or 2 of its
// format. Flags and variables beat it.
type YAML struct {
	name     string // of this file
	file     string // the counters CSV that it names; empty: none
	fields   []yamlField
	flags    map[string]string // values of flags, by name
	names    field.Names       // names of the list's fields; empty: not set
	dialects []string          // possible names
	groups   []yamlGroup
	ignored  []string // keys without effect here, and why
}

type yamlField struct {
	Name yamlText `yaml:"name"`
	Type string   `yaml:"prometheusType"`
	Help string   `yaml:"help"`
}

// yamlText is a text and its place.
type yamlText struct {
	text         string
	line, column int
}

func (t *yamlText) UnmarshalYAML(n *yaml.Node) error {
	t.line, t.column = n.Line, n.Column
	return n.Decode(&t.text)
}

// yamlGroup gives an interval to fields.
type yamlGroup struct {
	kind, name string
	every      time.Duration
	patterns   []string
}

// The two formats. All other keys are errors.
type (
	yamlMetrics struct {
		File   string      `yaml:"file"`
		Fields []yamlField `yaml:"fields"`
		Names  string      `yaml:"fieldNames"` // our own key, as --field-names
	}
	yamlVersion1 struct {
		Version    int         `yaml:"version"`
		Metrics    yamlMetrics `yaml:"metrics"`
		Collection struct {
			Interval    *yamlDuration `yaml:"interval"`
			WatchGroups []struct {
				Name     string        `yaml:"name"`
				Interval *yamlDuration `yaml:"interval"`
				Fields   []string      `yaml:"fields"`
			} `yaml:"watchGroups"`
		} `yaml:"collection"`
	}
	yamlWatch struct {
		MaxKeepAge     *yamlDuration `yaml:"maxKeepAge"`
		MaxKeepSamples *int          `yaml:"maxKeepSamples"`
	}
	yamlVersion2 struct {
		Version int `yaml:"version"`
		Metrics struct {
			yamlMetrics           `yaml:",inline"`
			EnableExporterMetrics *bool `yaml:"enableExporterMetrics"`
		} `yaml:"metrics"`
		Sources struct {
			DCGM struct {
				Watch            yamlWatch `yaml:"watch"`
				DetectBindUnbind struct {
					Enabled      bool          `yaml:"enabled"`
					PollInterval *yamlDuration `yaml:"pollInterval"`
				} `yaml:"detectBindUnbind"`
			} `yaml:"dcgm"`
		} `yaml:"sources"`
		Collections []struct {
			Name    string        `yaml:"name"`
			Every   *yamlDuration `yaml:"every"`
			Metrics struct {
				Include []string `yaml:"include"`
			} `yaml:"metrics"`
			Sources struct {
				DCGM struct {
					Watch yamlWatch `yaml:"watch"`
				} `yaml:"dcgm"`
			} `yaml:"sources"`
		} `yaml:"collections"`
		Server struct {
			MaxConcurrentScrapes *int `yaml:"maxConcurrentScrapes"`
		} `yaml:"server"`
	}
)

// yamlDuration is a text such as 30s; a bare number has no unit.
type yamlDuration time.Duration

func (d *yamlDuration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: invalid duration %q; write 500ms, 30s or 5m", n.Line, n.Value)
	}
	*d = yamlDuration(v)
	return nil
}

// parseYAML reads a configuration file. Its errors name the file, and the line of a wrong line.
func parseYAML(data []byte, name string, dialects ...string) (*YAML, error) {
	y := &YAML{name: name, dialects: dialects, flags: map[string]string{}}
	var head struct {
		Version yaml.Node `yaml:"version"`
	}
	err := yaml.Unmarshal(data, &head)
	switch {
	case err != nil:
	case head.Version.IsZero():
		err = errors.New("it has no version: write version: 2")
	case head.Version.Value == "1":
		var v yamlVersion1
		if err = decodeStrictly(data, &v); err == nil {
			err = y.version1(&v)
		}
	case head.Version.Value == "2":
		var v yamlVersion2
		if err = decodeStrictly(data, &v); err == nil {
			err = y.version2(&v)
		}
	default:
		err = fmt.Errorf("line %d: version %s is unknown: write 1 or 2", head.Version.Line, head.Version.Value)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration file %q: %s", name, plainYAML(err))
	}
	return y, nil
}

// decodeStrictly rejects unknown keys, repeated keys and a second document.
func decodeStrictly(data []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		return err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one document")
	}
	return nil
}

var (
	goType    = regexp.MustCompile(`field (\S+) not found in type \S+`)
	wrongType = regexp.MustCompile(`cannot unmarshal !!(\w+)(?: (` + "`.*?`" + `))? into (.*)`)
)

// plainYAML turns an error of the library into one line, without names of Go types.
func plainYAML(err error) string {
	text := goType.ReplaceAllString(err.Error(), "key $1 is unknown in this version")
	text = wrongType.ReplaceAllStringFunc(text, func(s string) string {
		m := wrongType.FindStringSubmatch(s)
		is := map[string]string{"seq": "a list", "map": "a mapping"}[m[1]]
		want, known := map[string]string{"int": "a whole number", "bool": "true or false", "string": "a text"}[m[3]]
		switch {
		case !known && strings.HasPrefix(m[3], "[]"):
			want = "a list"
		case !known:
			want = "keys with values"
		}
		return cmp.Or(strings.Trim(m[2], "`"), is) + " is in the place of " + want
	})
	text = strings.TrimPrefix(strings.TrimPrefix(text, "yaml: "), "unmarshal errors:\n")
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "; ")
}

func (y *YAML) version1(v *yamlVersion1) error {
	if err := y.metrics(&v.Metrics); err != nil {
		return err
	}
	if err := y.interval("collection.interval", v.Collection.Interval); err != nil {
		return err
	}
	for _, g := range v.Collection.WatchGroups {
		if err := y.group("watch group", g.Name, g.Interval, g.Fields); err != nil {
			return err
		}
	}
	return nil
}

func (y *YAML) version2(v *yamlVersion2) error {
	if err := y.metrics(&v.Metrics.yamlMetrics); err != nil {
		return err
	}
	if on := v.Metrics.EnableExporterMetrics; on != nil {
		y.flags["enable-exporter-metrics"] = strconv.FormatBool(*on)
	}
	if n := v.Server.MaxConcurrentScrapes; n != nil {
		y.flags["max-concurrent-scrapes"] = strconv.Itoa(*n)
	}
	keep := v.Sources.DCGM.Watch != yamlWatch{}
	for _, c := range v.Collections {
		keep = keep || c.Sources.DCGM.Watch != yamlWatch{}
		var err error
		if slices.Equal(c.Metrics.Include, []string{"*"}) { // all fields
			err = y.interval(fmt.Sprintf("every of collection %q", c.Name), c.Every)
		} else {
			err = y.group("collection", c.Name, c.Every, c.Metrics.Include)
		}
		if err != nil {
			return err
		}
	}
	if keep {
		y.ignored = append(y.ignored, "sources.dcgm.watch: "+noKeep)
	}
	if v.Sources.DCGM.DetectBindUnbind.Enabled {
		y.ignored = append(y.ignored, "sources.dcgm.detectBindUnbind: devices that come and go are always found, see --rescan-interval")
	}
	return nil
}

func (y *YAML) metrics(m *yamlMetrics) error {
	if m.File != "" && len(m.Fields) > 0 {
		return errors.New("metrics has both file and fields: leave one out")
	}
	for i, f := range m.Fields {
		if f.Name.text == "" || f.Type == "" {
			return fmt.Errorf("entry %d of metrics.fields lacks its name or prometheusType", i+1)
		}
	}
	y.file, y.fields = m.File, m.Fields
	if m.Names == "" {
		return nil
	}
	var err error
	if y.names, err = field.ParseNames(m.Names, y.dialects...); err != nil {
		return fmt.Errorf("metrics.fieldNames: %w", err)
	}
	return nil
}

// interval records the interval of all fields outside of groups.
func (y *YAML) interval(key string, d *yamlDuration) error {
	if d == nil {
		return nil
	}
	if _, twice := y.flags["collect-interval"]; twice {
		return fmt.Errorf("%s: another collection names all fields as well", key)
	}
	v := time.Duration(*d)
	if v <= 0 || v%time.Millisecond != 0 {
		return fmt.Errorf("%s is %v: write a positive number of milliseconds", key, v)
	}
	y.flags["collect-interval"] = strconv.FormatInt(v.Milliseconds(), 10)
	return nil
}

func (y *YAML) group(kind, name string, every *yamlDuration, patterns []string) error {
	switch {
	case name == "":
		return fmt.Errorf("a %s has no name", kind)
	case slices.ContainsFunc(y.groups, func(g yamlGroup) bool { return g.name == name }):
		return fmt.Errorf("%s %q is there twice", kind, name)
	case every == nil:
		return fmt.Errorf("%s %q has no interval", kind, name)
	case time.Duration(*every) <= 0:
		return fmt.Errorf("the interval of %s %q is %v: write a positive one", kind, name, time.Duration(*every))
	case len(patterns) == 0:
		return fmt.Errorf("%s %q names no fields", kind, name)
	}
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("%s %q: pattern %q: %w", kind, name, p, err)
		}
	}
	y.groups = append(y.groups, yamlGroup{kind, name, time.Duration(*every), patterns})
	return nil
}

// csv writes the inline fields as a counters CSV.
func (y *YAML) csv() []byte {
	var b bytes.Buffer
	quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	for _, f := range y.fields {
		b.WriteString(quote(f.Name.text) + "," + quote(f.Type) + "," + quote(f.Help) + "\n")
	}
	return b.Bytes()
}

// Place moves problems of the CSV that csv has written to the fields' positions in this file.
func (y *YAML) Place(name string, problems []field.Problem) {
	if y == nil || name != y.name {
		return
	}
	var at []yamlText // for each line of the CSV
	for _, f := range y.fields {
		for range strings.Count(f.Name.text+f.Type+f.Help, "\n") + 1 {
			at = append(at, f.Name)
		}
	}
	for i := range problems {
		if p := &problems[i]; p.Line > 0 && p.Line <= len(at) {
			p.Line, p.Column = at[p.Line-1].line, at[p.Line-1].column
		}
	}
}

// Apply gives the fields of a list the intervals of their groups. As in dcgm-exporter, a group without a
// field of the list, or a field in two groups, is an error. An interval in the CSV beats a group's.
func (y *YAML) Apply(list field.List) error {
	if y == nil {
		return nil
	}
	of := make([]*yamlGroup, len(list.Fields))
	for g := range y.groups {
		group := &y.groups[g]
		found := false
		for i := range list.Fields {
			name := list.Fields[i].Name
			if !slices.ContainsFunc(group.patterns, func(p string) bool { ok, _ := path.Match(p, name); return ok }) { // patterns were checked
				continue
			}
			if found = true; of[i] != nil && of[i] != group {
				return fmt.Errorf("configuration file %q: %s: both %s %q and %q name it", y.name, name, group.kind, of[i].name, group.name)
			}
			of[i] = group
		}
		if !found {
			return fmt.Errorf("configuration file %q: %s %q names no field of the list", y.name, group.kind, group.name)
		}
	}
	for i, group := range of {
		if f := &list.Fields[i]; group != nil && f.Interval == 0 {
			f.Interval = group.every
		}
	}
	return nil
}
