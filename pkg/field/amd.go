package field

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// AMD says how AMD's devices are shown under the names of AMD's device-metrics-exporter,
// whose metrics are all gauges (https://github.com/ROCm/device-metrics-exporter, v1.5.2).
// The zero AMD shows what that exporter shows without a configuration.
type AMD struct {
	Prefix    string      // of each metric's name
	Fields    []string    // as its configuration names them, GPU_CLOCK; nil: all
	Labels    []string    // optional labels as its configuration names them, GPU_UUID; those that are always there need not be listed
	Custom    []NameValue // further labels with their values
	PodLabels []NameValue // name of a label, and the key of the pod's label that is its value
	InPlace   bool        // AMD's devices have no other names

	shown []*AMDName // of Fields, see WithAMD
	ids   map[ID]bool
}

// NameValue is a name and what belongs to it.
type NameValue struct{ Name, Value string }

// WithAMD returns the list with the names of AMD's exporter for AMD's devices: without what
// cannot be served, and why of each.
func (l List) WithAMD(a AMD) (List, []string) {
	a, why := a.check()
	a.shown, a.ids = nil, map[ID]bool{}
	for i := range AMDNames() {
		n := &AMDNames()[i]
		if n.Absent == "" && (len(a.Fields) == 0 || listed(a.Fields, n.Field)) {
			a.shown = append(a.shown, n)
			for _, s := range n.Of {
				a.ids[s.ID] = true
			}
		}
	}
	l.AMD = &a
	return l, why
}

func listed(all []string, name string) bool {
	return slices.ContainsFunc(all, func(s string) bool { return strings.EqualFold(s, name) })
}

// Names returns what is shown, in the order of AMD's documentation.
func (a *AMD) Names() []*AMDName {
	if a == nil {
		return nil
	}
	return a.shown
}

// Shows reports whether a reading is shown under one of AMD's names.
func (a *AMD) Shows(id ID) bool { return a != nil && a.ids[id] }

// Counts reports whether a reading that is shown under one of AMD's names, as a gauge, only
// goes up.
func (a *AMD) Counts(id ID) bool {
	d, ok := ByID(id)
	if !ok || !a.Shows(id) {
		return false
	}
	use, _ := d.Use()
	return use == Counter
}

// readings are what the names need, each once.
func (a *AMD) readings() (out []Reading) {
	for _, n := range a.Names() {
		for _, s := range n.Of {
			if d, ok := ByID(s.ID); ok && !slices.ContainsFunc(out, func(r Reading) bool { return r.Desc == d }) {
				out = append(out, Reading{Desc: d, Default: true})
			}
		}
	}
	return out
}

// LabelNames returns the names of the labels that every series of a device has, sorted.
func (a *AMD) LabelNames() (out []string) {
	for _, l := range amdLabels {
		if l.always || listed(a.Labels, l.name) && l.absent == "" {
			out = append(out, strings.ToLower(l.name))
		}
	}
	for _, l := range slices.Concat(a.PodLabels, a.Custom) {
		out = append(out, l.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// CustomValue returns the value that the configuration gives to a label.
func (a *AMD) CustomValue(name string) (string, bool) {
	for _, l := range a.Custom {
		if l.Name == name {
			return l.Value, true
		}
	}
	return "", false
}

// Card returns those labels that a device's texts tell, by reading.
func (a *AMD) Card(texts map[ID]string) (out []NameValue) {
	if a == nil {
		return nil
	}
	for _, l := range amdLabels {
		if l.text == 0 || !l.always && !listed(a.Labels, l.name) {
			continue
		}
		text := texts[l.text]
		if text == "" && l.otherwise != 0 {
			text = texts[l.otherwise]
		}
		if l.mode {
			text = strings.ToLower(cmp.Or(text, "none"))
		}
		out = append(out, NameValue{strings.ToLower(l.name), text})
	}
	return out
}

// Most labels of each kind that a configuration can add, as in AMD's exporter, and how long
// what each series repeats can be.
const (
	mostCustomLabels = 10
	mostPodLabels    = 20
	longestText      = 256
)

// legalName is the form of names of metrics and labels, without the colon of metrics.
var legalName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// check returns an AMD without what cannot be served, and says why of each.
func (a AMD) check() (_ AMD, why []string) {
	say := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	if a.Prefix != "" && !legalName.MatchString(a.Prefix) || len(a.Prefix) > longestText {
		say("prefix %v cannot begin the name of a metric: names have none", quoted(a.Prefix))
		a.Prefix = ""
	}
	asked := len(a.Fields) > 0
	a.Fields = keep(a.Fields, fieldProblem, say)
	if asked && len(a.Fields) == 0 {
		say("no field is left: all are served")
	}
	a.Labels = keep(a.Labels, optionalProblem, say)
	a.PodLabels = a.keepLabels("label of a pod", a.PodLabels, mostPodLabels, say)
	a.Custom = a.keepLabels("custom label", a.Custom, mostCustomLabels, say)
	for _, l := range a.PodLabels {
		if _, taken := a.CustomValue(l.Name); taken {
			say("label %v: the custom label of that name is shown, not the pod's", quoted(l.Name))
		}
	}
	return a, why
}

func keep(all []string, problem func(string) string, say func(string, ...any)) (kept []string) {
	for _, name := range all {
		if p := problem(name); p != "" {
			say("%s: %s", quoted(name), p)
		} else if !listed(kept, name) {
			kept = append(kept, strings.ToUpper(name))
		}
	}
	return kept
}

func fieldProblem(name string) string {
	var known []string
	for i := range AMDNames() {
		n := &AMDNames()[i]
		known = append(known, n.Field)
		if prefix, all := strings.CutSuffix(n.Field, "*"); strings.EqualFold(n.Field, name) || all && strings.HasPrefix(strings.ToUpper(name), prefix) {
			return n.Absent
		}
	}
	if near, ok := Nearest(name, known); ok {
		return "AMD's exporter has no field of that name; did you mean " + near + "?"
	}
	return "AMD's exporter has no field of that name"
}

func optionalProblem(name string) string {
	for _, l := range amdLabels {
		if strings.EqualFold(l.name, name) {
			return l.absent
		}
	}
	return "AMD's exporter has no label of that name"
}

func (a *AMD) keepLabels(kind string, all []NameValue, most int, say func(string, ...any)) (kept []NameValue) {
	for _, l := range all {
		l.Name = strings.ToLower(l.Name)
		p := a.labelProblem(l.Name)
		switch {
		case p != "":
		case slices.ContainsFunc(kept, func(k NameValue) bool { return k.Name == l.Name }):
			p = "it is there twice"
		case len(l.Name) > longestText || len(l.Value) > longestText:
			p = fmt.Sprintf("it is longer than %d bytes", longestText)
		case len(kept) == most:
			p = fmt.Sprintf("it is one more than the %d that are allowed", most)
		default:
			kept = append(kept, l)
			continue
		}
		say("%s %v: %s", kind, quoted(l.Name), p)
	}
	return kept
}

// labelProblem says why a configuration cannot add a label of that name. AMD's exporter
// forbids those of its labels that identify a GPU.
func (a *AMD) labelProblem(name string) string {
	switch {
	case !legalName.MatchString(name):
		return "it is no name of a label: letters, digits and underscores, and no digit first"
	case strings.HasPrefix(name, "__"):
		return "names with two underscores first are Prometheus' own"
	case name == "le" || name == "quantile":
		return "Prometheus gives it another meaning"
	case slices.ContainsFunc(amdLabels, func(l amdLabel) bool { return l.gpu && strings.EqualFold(l.name, name) }):
		return "it says which GPU a series is of"
	}
	for i := range AMDNames() {
		for _, s := range AMDNames()[i].Of {
			if s.Index.To == name || slices.ContainsFunc(s.Add, func(l NameValue) bool { return l.Name == name }) {
				return "series of " + AMDNames()[i].Metric("") + " are distinguished by it"
			}
		}
	}
	return ""
}

// amdLabel is a label of AMD's exporter.
type amdLabel struct {
	name      string // as its configuration has it
	always    bool   // on every series, be it empty
	gpu       bool   // no custom label can have its name
	text      ID     // the reading that has it; 0: it is known otherwise
	otherwise ID     // if that is empty
	mode      bool   // in small letters, and none if there is none
	absent    string // why it is not served
}

// amdLabels are all labels: MetricLabel and GPUMetricLabel of exporterconfig.proto, and
// gpuMandatoryLables of gpuagent_gpu_metrics.go.
var amdLabels = []amdLabel{
	{name: "GPU_ID", always: true, gpu: true},
	{name: "GPU_PARTITION_ID", always: true, gpu: true},
	{name: "GPU_COMPUTE_PARTITION_TYPE", always: true, gpu: true, text: AMDComputePartition, mode: true},
	{name: "GPU_MEMORY_PARTITION_TYPE", always: true, gpu: true, text: AMDMemoryPartition, mode: true},
	{name: "DEPLOYMENT_MODE", always: true, gpu: true, text: AMDDeployment},
	{name: "SERIAL_NUMBER", always: true, text: dcgmSerial},
	{name: "CARD_MODEL", always: true, text: AMDModelNumber, otherwise: dcgmName},
	{name: "HOSTNAME", always: true},
	{name: "POD", always: true},
	{name: "NAMESPACE", always: true},
	{name: "CONTAINER", always: true},
	{name: "JOB_ID", always: true},
	{name: "JOB_USER", always: true},
	{name: "JOB_PARTITION", always: true},
	{name: "GPU_UUID", gpu: true, text: AMDUUID},
	{name: "CARD_SERIES", text: dcgmName},
	{name: "CARD_VENDOR", text: AMDVendor},
	{name: "DRIVER_VERSION", text: dcgmDriver},
	{name: "VBIOS_VERSION", text: dcgmVBIOS},
	{name: "CLUSTER_NAME"},
	{name: "POD_UUID"},
	{name: "KFD_PROCESS_ID", gpu: true, absent: "each process would make new series; /api/v1/devices lists the processes of a GPU"},
}
