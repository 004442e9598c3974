package helm_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"warpgauge/internal/testkit"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/yaml"
)

// their is a value of dcgm-exporter's chart.
type their struct {
	path string
	// def is dcgm-exporter's default as JSON; empty for a value that its values.yaml only mentions in a comment.
	def string
	// value is a setting to try, as JSON. shows is a text that the release contains with it and not without. If shows
	// is empty, the value changes nothing here, and docs/migration.md explains why.
	value, shows string
}

// theirs returns the values of dcgm-exporter's chart.
func theirs(t *testing.T) (out []their) {
	t.Helper()
	for line := range strings.Lines(string(read(t, "testdata/their-values.tsv"))) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); !strings.HasPrefix(line, "#") {
			out = append(out, their{f[0], f[1], f[2], f[3]})
		}
	}
	if len(out) != 86 {
		t.Fatalf("%d cases", len(out))
	}
	return out
}

// sets returns the arguments of template that set values by path.
func sets(values map[string]string) (out []string) {
	for path, value := range values {
		out = append(out, path+"="+value)
	}
	slices.Sort(out)
	return out
}

// TestMigrationFromTheirChart sets every value of dcgm-exporter's chart in one file and checks the rendered release.
func TestMigrationFromTheirChart(t *testing.T) {
	before, err := template(t, "")
	if err != nil {
		t.Fatalf("%v\n%s", err, before)
	}
	values := map[string]string{}
	for _, v := range theirs(t) {
		values[v.path] = v.value
	}
	after, err := template(t, "", sets(values)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, after)
	}
	for _, v := range theirs(t) {
		if v.shows != "" && (strings.Contains(string(before), v.shows) || !strings.Contains(string(after), v.shows)) {
			t.Errorf("%s=%s: %q is in the release without it, or not in the one with it", v.path, v.value, v.shows)
		}
	}
	o := decode(t, after)
	args := slices.Clone(container(t, o.daemonSets["nvidia"]).Args)
	at := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--config-file=") })
	path := filepath.Join(t.TempDir(), "list.yaml")
	must(t, os.WriteFile(path, []byte(o.configMaps["their-config"].Data["list.yaml"]), 0o600))
	args[at] = "--config-file=" + path
	if _, err := parse(t, args); err != nil {
		t.Errorf("the flags that come of it: %v", err)
	}
	if args := container(t, o.daemonSets["amd"]).Args; slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--config-file") }) {
		t.Errorf("AMD's pods get a configuration of DCGM's fields: %q", args)
	}
}

// TestTheirDefaults: given dcgm-exporter's whole values.yaml, the chart reports all unsupported values at once.
func TestTheirDefaults(t *testing.T) {
	values := map[string]string{}
	for _, v := range theirs(t) {
		if v.def != "" {
			values[v.path] = v.def
		}
	}
	var file struct{ ServiceMonitor map[string]any }
	must(t, yaml.Unmarshal(read(t, "values/dcgm-exporter.yaml"), &file))
	delete(file.ServiceMonitor, "job") // the name of their Service, not a value
	for name, v := range file.ServiceMonitor {
		if b, err := json.Marshal(v); err != nil || string(b) != values["serviceMonitor."+name] {
			t.Errorf("values/dcgm-exporter.yaml has serviceMonitor.%s=%s, their default is %s", name, b, values["serviceMonitor."+name])
		}
	}
	out, err := template(t, "", sets(values)...)
	if err == nil {
		t.Fatal("their values.yaml is accepted, though it names their image and their ConfigMap")
	}
	var refused []string
	for _, m := range regexp.MustCompile(`(?m)^- ([A-Za-z.]+):`).FindAllSubmatch(out, -1) {
		refused = append(refused, string(m[1]))
	}
	if want := []string{"image.repository", "image.tag", "extraConfigMapVolumes"}; !slices.Equal(refused, want) {
		t.Errorf("refused %q, want %q:\n%s", refused, want, out)
	}
}

// TestNodes: the user's nodeSelector and affinity replace the chart's terms for NVIDIA, as in dcgm-exporter's chart,
// and keep AMD's pods off NVIDIA's nodes. In every case the pod leaves a node that the GPU Operator has paused. Two of
// its programs set these label values: the driver manager (https://github.com/NVIDIA/k8s-driver-manager,
// cmd/driver-manager/main.go, maybeSetPaused) and the MIG manager (https://github.com/NVIDIA/mig-parted, Stop).
func TestNodes(t *testing.T) {
	gpu, amd := `nvidia.com/gpu.present`, `amd.com/gpu.device-id`
	theirTerm := `{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"nvidia-gpu","operator":"Exists"}]}]}}}`
	rendered := map[string]*objects{}
	for _, c := range []struct {
		sets    []string
		vendor  string
		labels  map[string]string
		runs    bool
		because string
	}{
		{nil, "nvidia", map[string]string{gpu: "true"}, true, "it is labelled"},
		// https://learn.microsoft.com/azure/aks/use-labels and https://karpenter.sh/docs/concepts/scheduling/#well-known-labels
		{nil, "nvidia", map[string]string{"kubernetes.azure.com/accelerator": "nvidia"}, true, "AKS says so"},
		{nil, "nvidia", map[string]string{"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}, true, "Karpenter says so"},
		{nil, "nvidia", map[string]string{"karpenter.k8s.aws/instance-gpu-manufacturer": "amd"}, false, "its GPUs are AMD's"},
		{nil, "nvidia", map[string]string{"pool": "gpu"}, false, "nothing says that it has GPUs"},
		{nil, "nvidia", map[string]string{gpu: "true", "nvidia.com/gpu.deploy.client": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "false"}, true, "only the operator's exporter is off"},
		{nil, "nvidia", map[string]string{gpu: "true", "nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-driver-upgrade"}, false, "the driver is replaced"},
		{nil, "nvidia", map[string]string{gpu: "true", "nvidia.com/gpu.deploy.client": "paused-for-mig-change"}, false, "MIG is changed"},
		{nil, "nvidia", map[string]string{gpu: "true", "nvidia.com/gpu.deploy.dcgm-exporter-dra": "paused-for-driver-upgrade"}, false, "the driver is replaced under claims"},
		{[]string{`nvidia.leaveWhenPaused=false`}, "nvidia", map[string]string{gpu: "true", "nvidia.com/gpu.deploy.client": "paused-for-mig-change"}, true, "the user wants it"},
		{[]string{`nodeSelector={"pool":"gpu"}`}, "nvidia", map[string]string{"pool": "gpu"}, true, "the user says so"},
		{[]string{`nodeSelector={"pool":"gpu"}`}, "nvidia", map[string]string{gpu: "true"}, false, "the user says others"},
		{[]string{`nodeSelector={"pool":"gpu"}`}, "nvidia", map[string]string{"pool": "gpu", "nvidia.com/gpu.deploy.client": "paused-for-driver-upgrade"}, false, "the driver is replaced"},
		{[]string{`nodeSelector={"pool":"gpu"}`}, "amd", map[string]string{"pool": "gpu"}, false, "nothing says that its GPUs are AMD's"},
		{[]string{`nodeSelector={"pool":"gpu"}`}, "amd", map[string]string{"pool": "gpu", amd: "74a1"}, true, "both match"},
		{[]string{`nodeSelector={"pool":"gpu"}`, `nvidia.enabled=false`}, "amd", map[string]string{"pool": "gpu"}, true, "there is one vendor, and the user says so"},
		{[]string{`affinity=` + theirTerm}, "nvidia", map[string]string{"nvidia-gpu": ""}, true, "the user says so"},
		{[]string{`affinity=` + theirTerm}, "nvidia", map[string]string{gpu: "true"}, false, "the user says others"},
		{[]string{`affinity=` + theirTerm}, "nvidia", map[string]string{"nvidia-gpu": "", "nvidia.com/gpu.deploy.client": "paused-for-driver-upgrade"}, false, "the driver is replaced"},
		{[]string{`affinity=` + theirTerm}, "amd", map[string]string{"nvidia-gpu": ""}, false, "nothing says that its GPUs are AMD's"},
		{[]string{`affinity=` + theirTerm}, "amd", map[string]string{amd: "74a1"}, true, "it is labelled"},
		{[]string{`nvidia.nodeSelectorTerms=[]`}, "nvidia", map[string]string{}, true, "every node is meant"},
	} {
		key := strings.Join(c.sets, " ")
		if rendered[key] == nil {
			rendered[key] = render(t, "", c.sets...)
		}
		spec := rendered[key].daemonSets[c.vendor].Spec.Template.Spec
		if runs := runsOn(t, spec, c.labels); runs != c.runs {
			t.Errorf("%q, %s: a pod on a node with %v: %v, want %v, as %s", c.sets, c.vendor, c.labels, runs, c.runs, c.because)
		}
	}
}

// runsOn reports whether the DaemonSet controller places the pod on a node with these labels.
func runsOn(t *testing.T, spec corev1.PodSpec, node labels.Set) bool {
	t.Helper()
	if !labels.SelectorFromSet(spec.NodeSelector).Matches(node) {
		return false
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return len(term.MatchExpressions) > 0 && !slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			r := testkit.Get(labels.NewRequirement(e.Key, selection.Operator(strings.ToLower(string(e.Operator))), e.Values))(t)
			return !r.Matches(node)
		})
	})
}
