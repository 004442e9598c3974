package config

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

// The content of the examples in the README of dcgm-exporter's chart 4.8.4.
const (
	yaml1 = `version: 1
metrics:
  fields:
    - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: GPU temperature (in C).}
    - {name: DCGM_FI_DEV_POWER_USAGE, prometheusType: gauge, help: 'Power draw, "in W".'}
    - {name: DCGM_FI_DEV_SM_CLOCK, prometheusType: gauge, help: SM clock}
collection:
  interval: 30s
  watchGroups:
    - {name: fast, interval: 500ms, fields: [DCGM_FI_DEV_GPU_*, DCGM_FI_DEV_POWER_USAGE]}
`
	yaml2 = `version: 2
metrics:
  file: /etc/dcgm-exporter/default-counters.csv
  enableExporterMetrics: false
sources:
  dcgm:
    watch: {maxKeepAge: 10m, maxKeepSamples: 0}
    detectBindUnbind: {enabled: true, pollInterval: 1s}
collections:
  - {name: scrape, every: 30s, metrics: {include: ["*"]}}
  - name: fast-thermals
    every: 5s
    sources: {dcgm: {watch: {maxKeepAge: 0s, maxKeepSamples: 2}}}
    metrics: {include: [DCGM_FI_DEV_GPU_TEMP, DCGM_FI_DEV_POWER_USAGE]}
  - {name: slow, every: 5m, metrics: {include: ["DCGM_FI_DEV_SM_*"]}}
server:
  maxConcurrentScrapes: 16
`
)

const threeFields = "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_POWER_USAGE, gauge, p, interval=100ms\nDCGM_FI_DEV_SM_CLOCK, gauge, c\n"

func parseList(t *testing.T, csv string) field.List {
	t.Helper()
	list, problems, err := field.Parse(strings.NewReader(csv), field.ParseOptions{})
	testkit.FatalIf(t, err != nil || len(problems) > 0, "%v %v", err, problems)
	return list
}

func intervals(list field.List) (out []time.Duration) {
	for _, f := range list.Fields {
		out = append(out, f.Interval)
	}
	return out
}

func TestYAML(t *testing.T) {
	one, err := parseYAML([]byte(yaml1), "one.yaml")
	must(t, err)
	list := parseList(t, string(one.csv()))
	testkit.Equal(t, "help", `Power draw, "in W".`, list.Fields[1].Help)
	must(t, one.Apply(list))
	testkit.Equal(t, "intervals of version 1", []time.Duration{500 * time.Millisecond, 500 * time.Millisecond, 0}, intervals(list))
	testkit.Equal(t, "flags of version 1", map[string]string{"collect-interval": "30000"}, one.flags)

	two := testkit.Get(parseYAML([]byte(yaml2), "two.yaml"))(t)
	testkit.ErrorIf(t, two.file != "/etc/dcgm-exporter/default-counters.csv" || len(two.ignored) != 2, "file %q, without effect: %q", two.file, two.ignored)
	want := map[string]string{"collect-interval": "30000", "max-concurrent-scrapes": "16", "enable-exporter-metrics": "false"}
	testkit.Equal(t, "flags of version 2", want, two.flags)
	list = parseList(t, threeFields)
	must(t, two.Apply(list))
	testkit.Equal(t, "intervals of version 2, of which the CSV's own stay", []time.Duration{5 * time.Second, 100 * time.Millisecond, 5 * time.Minute}, intervals(list))

	must(t, (*YAML)(nil).Apply(list))
}

func TestYAMLErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "no version",
		"metrics: {file: x}":     "no version",
		"version: 3":             "version 3 is unknown",
		"version: two":           "line 1: version two is unknown",
		"version: 1.5":           "version 1.5 is unknown",
		"- version":              "line 1: a list is in the place of keys with values",
		"version: 1\nmetrics: 3": "line 2: 3 is in the place of keys with values",
		"version: 2\nserver: {maxConcurrentScrapes: many}":                                "line 2: many is in the place of a whole number",
		"version: 2\nmetrics: {enableExporterMetrics: 7}":                                 "line 2: 7 is in the place of true or false",
		"version: 2\nmetrics: {fields: x}":                                                "line 2: x is in the place of a list",
		"version: 2\nversion: 2":                                                          "line 2",
		"version: 2\n---\nversion: 2":                                                     "more than one document",
		"version: 2\nmetrics: {files: x}":                                                 "line 2: key files is unknown in this version",
		"version: 1\ncollections: []":                                                     "key collections is unknown",
		"version: 2\ncollection: {}":                                                      "key collection is unknown",
		"version: 1\nserver: {}":                                                          "key server is unknown",
		"version: 2\nmetrics: {file: x, file: y}":                                         "line 2",
		"version: 2\nmetrics: {file: x, fields: [{name: A, prometheusType: gauge}]}":      "both file and fields",
		"version: 2\nmetrics: {fieldNames: newer}":                                        `metrics.fieldNames: bad names "newer"`,
		"version: 2\nmetrics: {fields: [{name: A}]}":                                      "entry 1 of metrics.fields",
		"version: 1\ncollection: {interval: 30}":                                          `invalid duration "30"`,
		"version: 1\ncollection: {interval: 0s}":                                          "positive",
		"version: 1\ncollection: {interval: -1s}":                                         "positive",
		"version: 1\ncollection: {watchGroups: [{interval: 1s, fields: [A]}]}":            "has no name",
		"version: 1\ncollection: {watchGroups: [{name: a, fields: [A]}]}":                 `"a" has no interval`,
		"version: 1\ncollection: {watchGroups: [{name: a, interval: 0s, fields: [A]}]}":   "write a positive one",
		"version: 1\ncollection: {watchGroups: [{name: a, interval: 1s}]}":                `"a" names no fields`,
		"version: 1\ncollection: {watchGroups: [{name: a, interval: 1s, fields: ['[']}]}": "syntax error in pattern",
		"version: 1\ncollection: {watchGroups: [{name: a, interval: 1s, fields: [A]}, {name: a, interval: 1s, fields: [B]}]}":         "there twice",
		"version: 2\ncollections: [{name: a, every: 1s, metrics: {include: ['*']}}, {name: b, every: 2s, metrics: {include: ['*']}}]": "another collection",
	} {
		_, err := parseYAML([]byte(text), "c.yaml")
		if err == nil || !strings.Contains(err.Error(), `configuration file "c.yaml": `) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "yamlVersion") || strings.Contains(err.Error(), "!!") || strings.Contains(err.Error(), "struct") {
			t.Errorf("%q: error %v, want one line with the file and %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"version: 1\ncollection: {watchGroups: [{name: a, interval: 1s, fields: [DCGM_FI_DEV_NO*]}]}":                                                      `watch group "a" names no field`,
		"version: 2\ncollections: [{name: a, every: 1s, metrics: {include: ['*TEMP']}}, {name: b, every: 1s, metrics: {include: [DCGM_FI_DEV_GPU_TEMP]}}]": `DCGM_FI_DEV_GPU_TEMP: both collection "a" and "b"`,
	} {
		y := testkit.Get(parseYAML([]byte(text), "c.yaml"))(t)
		testkit.Has(t, fmt.Sprintf("the error of %q", text), fmt.Sprint(y.Apply(parseList(t, threeFields))), want, `configuration file "c.yaml": `)
	}
}

// Problems of inline fields point to the fields, not to the CSV made from them.
func TestYAMLPlace(t *testing.T) {
	y, err := parseYAML([]byte(`# a comment
version: 2
metrics:
  fields:
    - name: DCGM_FI_DEV_GPU_TEMP
      prometheusType: gauge
      help: "a\nb"
    - prometheusType: gauge
      name: DCGM_FI_DEV_NONE
    - {name: DCGM_FI_DEV_SM_CLOCK, prometheusType: gouge}
`), "c.yaml")
	must(t, err)
	_, problems, err := field.Parse(strings.NewReader(string(y.csv())), field.ParseOptions{File: "c.yaml"})
	testkit.Equal(t, "a bad type is an error", true, err != nil)
	y.Place("another.csv", problems)
	y.Place("c.yaml", problems)
	var got []string
	for _, p := range problems {
		place, _, _ := strings.Cut(p.Error(), " ")
		got = append(got, place)
	}
	testkit.Equal(t, fmt.Sprintf("places of %v", problems), []string{"c.yaml:9:13:", "c.yaml:10:14:"}, got)
}

// Flags beat variables, which beat the file, which beats the defaults.
func TestYAMLPrecedence(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	write(t, path, yaml2)
	config := func(env environment, args ...string) (*Set, error) {
		s, err := parse(t, env, args...)
		must(t, err)
		_, err = s.Config()
		return s, err
	}
	s := testkit.Get(config(environment{"DCGM_EXPORTER_CONFIG_FILE": path,
		"DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES": "7"}, "--collect-interval=100"))(t)
	c := s.config
	if c.Interval != 100*time.Millisecond || c.Web.MaxConcurrentScrapes != 7 || c.OwnMetrics() != MetricsNone || c.Source("enable-exporter-metrics") != FromFile {
		t.Errorf("interval %v, %d scrapes, own metrics %v from %v", c.Interval, c.Web.MaxConcurrentScrapes, c.OwnMetrics(), c.Source("enable-exporter-metrics"))
	}
	var notices []string
	for _, n := range s.Notices() {
		notices = append(notices, n.Text)
	}
	if text := strings.Join(notices, "; "); len(notices) != 2 || !strings.Contains(text, "sources.dcgm.watch: ") || !strings.Contains(text, "--rescan-interval") {
		t.Errorf("notices are %q, want the keys without effect", notices)
	}
	args := s.Arguments()
	slices.Sort(args)
	testkit.Equal(t, "arguments for another process", []string{"--collect-interval=100", "--enable-exporter-metrics=false", "--max-concurrent-scrapes=7"}, args)

	_, err := config(nil, "--config-file="+path+"x")
	testkit.ErrorIf(t, err == nil || !strings.Contains(err.Error(), path+"x"), "a file that is not there: %v", err)
	write(t, path, "version: 2\nserver: {maxConcurrentScrapes: -1}\n")
	_, err = config(nil, "--config-file="+path)
	testkit.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "--max-concurrent-scrapes"), "a value that no flag may have: %v", err)
}

// The list comes from the first given source: a flag or a variable, the configuration file, the defaults.
func TestYAMLNamesTheList(t *testing.T) {
	dir := t.TempDir()
	csv, other, path := filepath.Join(dir, "a.csv"), filepath.Join(dir, "b.csv"), filepath.Join(dir, "c.yaml")
	write(t, csv, "a")
	write(t, other, "b")
	read := func(s *Set, err error) *Content {
		t.Helper()
		must(t, err)
		s.config.DefaultFiles = []string{other}
		in := testkit.Get(s.config.Counters("", func(_ context.Context, namespace, name string) ([]byte, error) {
			return []byte(namespace + " " + name), nil
		}).Read(t.Context(), []byte("built in")))(t)
		return in
	}
	want := func(in *Content, name, content string) {
		t.Helper()
		testkit.Equal(t, "name and content", [2]string{name, content}, [2]string{in.Name, string(in.CSV)})
	}
	write(t, path, "version: 2\nmetrics: {file: "+csv+"}\n")
	want(read(parse(t, nil, "--config-file="+path)), csv, "a")
	want(read(parse(t, nil, "--config-file="+path, "-f", other)), other, "b")
	want(read(parse(t, nil, "--config-file="+path, "-m", "ns:map")), "ConfigMap ns:map", "ns map")
	want(read(parse(t, nil, "-f", csv, "-m", "ns:map")), "ConfigMap ns:map", "ns map")
	want(read(parse(t, nil, "-m", "none")), other, "b")
	write(t, path, "version: 2\nmetrics: {fields: [{name: A, prometheusType: gauge}]}\n")
	want(read(parse(t, nil, "--config-file="+path)), path, "\"A\",\"gauge\",\"\"\n")
	write(t, path, "version: 2\n")
	want(read(parse(t, nil, "--config-file="+path)), other, "b")

	s, err := parse(t, nil, "--config-file="+path, "-f", csv)
	must(t, err)
	c := s.config.Counters("", nil)
	first := testkit.Get(c.Read(t.Context(), nil))(t)
	testkit.Equal(t, "files read", []string{csv, path}, c.Paths())
	write(t, path, "version: 2\n# another\n")
	second := testkit.Get(c.Read(t.Context(), nil))(t)
	testkit.ErrorIf(t, first.Equal(second) || !second.Equal(second), "another configuration file is not another content")
	write(t, path, "version: 4\n")
	if _, err := c.Read(t.Context(), nil); err == nil {
		t.Error("a bad configuration file is no error at a reload")
	}
	text, ok := c.Seen(path)
	testkit.ErrorIf(t, !ok || string(text) != "version: 4\n", "seen %q, %v; want what was read, good or bad", text, ok)
}

// A list that another option beats causes a notice.
func TestListNotUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	write(t, path, "version: 2\nmetrics: {file: a.csv}\n")
	for args, want := range map[string]string{
		"":                             "",
		"-f b.csv":                     "",
		"-m ns:map":                    "",
		"-m none -f b.csv":             "",
		"-m ns:map -f b.csv":           "--collectors is not used: --configmap-data",
		"--config-file=" + path:        "",
		"-f b --config-file=" + path:   "file are not used: --collectors",
		"-m n:m --config-file=" + path: "file are not used: --configmap-data",
	} {
		s, err := parse(t, nil, strings.Fields(args)...)
		must(t, err)
		testkit.Get(s.Config())(t)
		got := s.Notices()
		testkit.ErrorIf(t, want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0].Text, want)), "%q: notices %q, want one of %q", args, got, want)
	}
}

// A flag or variable beats the current file, which beats the default.
func TestYAMLNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	f := func(want field.Names, text string, env environment, args ...string) {
		t.Helper()
		write(t, path, "version: 2\n")
		s, err := parse(t, env, append(args, "--config-file="+path)...)
		must(t, err)
		c := testkit.Get(s.Config())(t)
		write(t, path, text)
		in := testkit.Get(c.Counters("", nil).Read(t.Context(), nil))(t)
		testkit.Equal(t, fmt.Sprintf("%q with %v %q: names", text, env, args), want, c.Names(in))
	}
	const file = "version: 2\nmetrics: {fieldNames: both}\n"
	f(field.NamesAsWritten, "version: 1\n", nil)
	f(field.NamesBoth, file, nil)
	f(field.NamesBoth, "version: 1\nmetrics: {fieldNames: both}\n", nil)
	f(field.NamesNew, file, environment{"WARPGAUGE_FIELD_NAMES": "new"})
	f(field.NamesAsWritten, file, environment{"WARPGAUGE_FIELD_NAMES": "new"}, "--field-names=as-written")
	f("new,other", "version: 2\nmetrics: {fieldNames: 'new,other'}\n", nil)
	f("old,other", file, nil, "--field-names=old,other")
	_, err := parse(t, nil, "--field-names=4.9")
	testkit.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "as-written, old, new, both"), "another mode: error %v", err)
}
