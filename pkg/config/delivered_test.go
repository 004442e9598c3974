package config

import (
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

const deliveredYAML = `version: 2
metrics:
  fields:
    - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: t}
    - {name: DCGM_FI_DEV_POWER_USAGE, prometheusType: gauge, help: p}
    - {name: DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, prometheusType: counter, help: e}
collections:
  - {name: all, every: 10s, metrics: {include: ["*"]}}
  - {name: power, every: 500ms, metrics: {include: [DCGM_FI_DEV_POWER*]}}
`

func TestParseDelivered(t *testing.T) {
	c, bad, err := ParseDelivered([]byte(deliveredYAML), "x", true)
	if err != nil || len(bad) > 0 {
		t.Fatal(err, bad)
	}
	list := parseList(t, string(c.CSV))
	must(t, c.YAML.Apply(list))
	c.YAML.ApplyInterval(list)
	testkit.Equal(t, "intervals, with none of a slow field", []time.Duration{10 * time.Second, 500 * time.Millisecond, 0}, intervals(list))
	c, _, err = ParseDelivered([]byte("anything"), "x", false)
	testkit.ErrorIf(t, err != nil || string(c.CSV) != "anything" || c.YAML != nil, "a CSV: %+v, %v", c, err)
	for text, lines := range map[string][]int{
		"version: 2\nmetrics:\n  file: /etc/shadow\n":                                                                      {3},
		deliveredYAML + "server:\n  maxConcurrentScrapes: 1000\n":                                                          {10},
		deliveredYAML + "sources:\n  dcgm:\n    detectBindUnbind: {enabled: true}\n":                                       {10},
		strings.Replace(deliveredYAML, "metrics:\n", "metrics:\n  enableExporterMetrics: true\n", 1):                       {3},
		strings.Replace(deliveredYAML, "every: 500ms,", "every: 500ms, sources: {dcgm: {watch: {maxKeepSamples: 2}}},", 1): {9},
		"version: 1\nmetrics: &m\n  file: /etc/shadow\n":                                                                   {3},
		"version: 2\nmetrics:\n  <<: {file: /etc/shadow}\n":                                                                {3},
	} {
		_, bad, err := ParseDelivered([]byte(text), "x", true)
		var got []int
		for _, p := range bad {
			got = append(got, p.Line)
		}
		testkit.ErrorIf(t, err != nil || len(got) != len(lines) || got[0] != lines[0], "%q: lines %v, %v; want %v", text, got, err, lines)
	}
	for _, text := range []string{"", "version: 3\n", "version: 2\naddress: :9400\n", "version: 2\nmetrics: {fields: [}", deliveredYAML + "---\nversion: 2\n"} {
		_, _, err := ParseDelivered([]byte(text), "x", true)
		testkit.ErrorIf(t, err == nil, "%q is accepted", text)
	}
}

func FuzzParseDelivered(f *testing.F) {
	f.Add([]byte(deliveredYAML))
	f.Add([]byte(yaml1))
	f.Add([]byte(yaml2))
	f.Add([]byte("version: 2\nmetrics: &m\n  <<: *m\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, bad, err := ParseDelivered(text, "x", true)
		if err != nil {
			return
		}
		testkit.ErrorIf(t, c.YAML.file != "" && len(bad) == 0, "%q: the file %q is not refused", text, c.YAML.file)
		for name, value := range c.YAML.flags {
			f := NewSet(environment{}.Lookup).find(name)
			testkit.ErrorIf(t, f.Value.Set(value) != nil && name != "max-concurrent-scrapes", "%s does not take %q", name, value)
		}
		list, problems, err := field.Parse(strings.NewReader(string(c.CSV)), field.ParseOptions{})
		if err == nil && c.YAML.Apply(list) == nil {
			c.YAML.ApplyInterval(list)
		}
		c.YAML.Place("x", problems)
	})
}
