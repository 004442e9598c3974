package amd

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
)

// Settings holds the names and labels of AMD's configuration. The zero Settings are the defaults of AMD's exporter.
type Settings struct {
	Prefix    string   // of every metric name
	Fields    []string // names in AMD's configuration, such as GPU_CLOCK; nil: all
	Labels    []string // optional labels by their names in AMD's configuration, such as GPU_UUID; mandatory labels need no entry
	Custom    []Pair   // additional constant labels
	PodLabels []Pair   // label name and the key of the pod label with its value
}

// Pair is a name with its value.
type Pair struct{ Name, Value string }

// Names exports AMD's devices under the names of AMD's device-metrics-exporter v1.5.2
// (https://github.com/ROCm/device-metrics-exporter), where all metrics are gauges. It is an exposition.Dialect.
type Names struct {
	Settings
	metrics  []*Metric
	verdicts func() *events.Snapshot // nil: no verdicts
}

// NewNames returns the names for s, and a message for each part of s that cannot be applied. verdicts may be nil.
func NewNames(s Settings, verdicts func() *events.Snapshot) (*Names, []string) {
	s, why := s.check()
	n := &Names{Settings: s, verdicts: verdicts}
	for i := range Metrics() {
		m := &Metrics()[i]
		if m.Absent == "" && (len(s.Fields) == 0 || listed(s.Fields, m.Field)) {
			n.metrics = append(n.metrics, m)
		}
	}
	return n, why
}

// Dialect returns the field.Dialect of a list with these names.
func (n *Names) Dialect(inPlace bool) *field.Dialect {
	d := &field.Dialect{Vendor: field.VendorAMD, InPlace: inPlace, Names: n}
	for _, m := range n.metrics {
		for _, s := range m.Sources {
			for r := &s; r != nil; r = r.Each {
				if !slices.Contains(d.Readings, r.ID) {
					d.Readings = append(d.Readings, r.ID)
				}
			}
		}
	}
	for _, l := range labelTable {
		for _, id := range []field.ID{l.text, l.otherwise} {
			if id != 0 && n.has(&l) && !slices.Contains(d.Texts, id) {
				d.Texts = append(d.Texts, id)
			}
		}
	}
	return d
}

func listed(all []string, name string) bool {
	return slices.ContainsFunc(all, func(s string) bool { return strings.EqualFold(s, name) })
}

// has reports whether every series of a device has the label.
func (n *Names) has(l *label) bool { return l.always || l.absent == "" && listed(n.Labels, l.name) }

// labelNames returns the sorted names of the labels of every device series.
func (n *Names) labelNames() (out []string) {
	for i := range labelTable {
		if n.has(&labelTable[i]) {
			out = append(out, strings.ToLower(labelTable[i].name))
		}
	}
	for _, l := range slices.Concat(n.PodLabels, n.Custom) {
		out = append(out, l.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// custom returns the configured value of a custom label.
func (s *Settings) custom(name string) (string, bool) {
	for _, l := range s.Custom {
		if l.Name == name {
			return l.Value, true
		}
	}
	return "", false
}

// deviceText returns the value of a label that comes from a text of the device, and whether there is such a label.
func (n *Names) deviceText(name string, d *collector.Device) (string, bool) {
	i := slices.IndexFunc(labelTable, func(l label) bool { return l.text != 0 && strings.EqualFold(l.name, name) })
	if i < 0 || !n.has(&labelTable[i]) {
		return "", false
	}
	l := &labelTable[i]
	text, known := d.Text(l.text)
	if text == "" && l.otherwise != 0 {
		text, _ = d.Text(l.otherwise)
	}
	if l.mode && known {
		text = strings.ToLower(cmp.Or(text, "none"))
	}
	return text, true
}

// Limits of additional labels per kind, as in AMD's exporter, and of the length of repeated texts in bytes.
const (
	maxCustomLabels = 10
	maxPodLabels    = 20
	maxText         = 256
)

// legalName matches valid metric and label names, without the colon of metrics.
var legalName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// check returns s without the parts that cannot be applied, and a message for each of those.
func (s Settings) check() (_ Settings, why []string) {
	warn := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	if s.Prefix != "" && !legalName.MatchString(s.Prefix) || len(s.Prefix) > maxText {
		warn("prefix %v cannot begin the name of a metric: names have none", strconv.Quote(s.Prefix))
		s.Prefix = ""
	}
	asked := len(s.Fields) > 0
	s.Fields = keep(s.Fields, fieldProblem, warn)
	if asked && len(s.Fields) == 0 {
		warn("no field is left: all are served")
	}
	s.Labels = keep(s.Labels, optionalProblem, warn)
	s.PodLabels = s.keepLabels("label of a pod", s.PodLabels, maxPodLabels, warn)
	s.Custom = s.keepLabels("custom label", s.Custom, maxCustomLabels, warn)
	for _, l := range s.PodLabels {
		if _, taken := s.custom(l.Name); taken {
			warn("label %v: the custom label of that name is shown, not the pod's", strconv.Quote(l.Name))
		}
	}
	return s, why
}

func keep(all []string, problem func(string) string, warn func(string, ...any)) (kept []string) {
	for _, name := range all {
		if p := problem(name); p != "" {
			warn("%s: %s", strconv.Quote(name), p)
		} else if !listed(kept, name) {
			kept = append(kept, strings.ToUpper(name))
		}
	}
	return kept
}

func fieldProblem(name string) string {
	var known []string
	for i := range Metrics() {
		m := &Metrics()[i]
		known = append(known, m.Field)
		if prefix, all := strings.CutSuffix(m.Field, "*"); strings.EqualFold(m.Field, name) || all && strings.HasPrefix(strings.ToUpper(name), prefix) {
			return m.Absent
		}
	}
	if near, ok := field.Nearest(name, known); ok {
		return "AMD's exporter has no field of that name; did you mean " + near + "?"
	}
	return "AMD's exporter has no field of that name"
}

func optionalProblem(name string) string {
	for _, l := range labelTable {
		if strings.EqualFold(l.name, name) {
			return l.absent
		}
	}
	return "AMD's exporter has no label of that name"
}

func (s *Settings) keepLabels(kind string, all []Pair, limit int, warn func(string, ...any)) (kept []Pair) {
	for _, l := range all {
		l.Name = strings.ToLower(l.Name)
		p := s.labelProblem(l.Name)
		switch {
		case p != "":
		case slices.ContainsFunc(kept, func(k Pair) bool { return k.Name == l.Name }):
			p = "it is there twice"
		case len(l.Name) > maxText || len(l.Value) > maxText:
			p = fmt.Sprintf("it is longer than %d bytes", maxText)
		case len(kept) == limit:
			p = fmt.Sprintf("it is one more than the %d that are allowed", limit)
		default:
			kept = append(kept, l)
			continue
		}
		warn("%s %v: %s", kind, strconv.Quote(l.Name), p)
	}
	return kept
}

// labelProblem returns why a configuration cannot add a label with that name. As in AMD's exporter, a custom
// label cannot replace one that identifies a GPU.
func (s *Settings) labelProblem(name string) string {
	switch {
	case !legalName.MatchString(name):
		return "it is not a label name: use letters, digits and underscores, and no digit first"
	case strings.HasPrefix(name, "__"):
		return "names with two underscores first are Prometheus' own"
	case name == "le" || name == "quantile":
		return "Prometheus gives it another meaning"
	case name == "hostname":
		return "it says which node a series is of"
	case slices.ContainsFunc(labelTable, func(l label) bool { return l.gpu && strings.EqualFold(l.name, name) }):
		return "it says which GPU a series is of"
	}
	for i := range Metrics() {
		for _, source := range Metrics()[i].Sources {
			if source.Index.To == name || slices.ContainsFunc(source.Add, func(l Pair) bool { return l.Name == name }) {
				return "series of " + Metrics()[i].Name("") + " are distinguished by it"
			}
		}
	}
	return ""
}

// label is a label of AMD's exporter.
type label struct {
	name      string   // in AMD's configuration
	always    bool     // on every series, even if empty
	gpu       bool     // identifies a GPU: no custom label may have its name
	text      field.ID // reading with the value, or 0
	otherwise field.ID // reading to use if text is empty
	mode      bool     // in lower case; absent if empty
	absent    string   // why the label is not served
}

// labelTable lists all labels: MetricLabel and GPUMetricLabel of exporterconfig.proto, and
// gpuMandatoryLables of gpuagent_gpu_metrics.go.
var labelTable = []label{
	{name: "GPU_ID", always: true, gpu: true},
	{name: "GPU_PARTITION_ID", always: true, gpu: true},
	{name: "GPU_COMPUTE_PARTITION_TYPE", always: true, gpu: true, text: field.AMDComputePartition, mode: true},
	{name: "GPU_MEMORY_PARTITION_TYPE", always: true, gpu: true, text: field.AMDMemoryPartition, mode: true},
	{name: "DEPLOYMENT_MODE", always: true, gpu: true, text: field.AMDDeployment},
	{name: "SERIAL_NUMBER", always: true, text: idSerial},
	{name: "CARD_MODEL", always: true, text: field.AMDModelNumber, otherwise: idName},
	{name: "HOSTNAME", always: true},
	{name: "POD", always: true},
	{name: "NAMESPACE", always: true},
	{name: "CONTAINER", always: true},
	{name: "JOB_ID", always: true},
	{name: "JOB_USER", always: true},
	{name: "JOB_PARTITION", always: true},
	{name: "GPU_UUID", gpu: true, text: field.AMDUUID},
	{name: "CARD_SERIES", text: idName},
	{name: "CARD_VENDOR", text: field.AMDVendor},
	{name: "DRIVER_VERSION", text: idDriver},
	{name: "VBIOS_VERSION", text: idVBIOS},
	{name: "CLUSTER_NAME"},
	{name: "POD_UUID"},
	{name: "KFD_PROCESS_ID", gpu: true, absent: "each process would make new series; /api/v1/devices lists the processes of a GPU"},
}
