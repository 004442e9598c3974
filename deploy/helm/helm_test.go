// Package helm_test renders the chart with the real Helm, for every file of values/ and more. It checks the results against
// the types of Kubernetes and of the Prometheus operator, and against the permissions that each feature may need.
package helm_test

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
)

// tool returns the path of a program: the one built by make tools-chart in the version that test/tools/chart/go.mod
// names, else the installed one.
func tool(t *testing.T, name, module string) string {
	t.Helper()
	mod := read(t, "../../test/tools/chart/go.mod")
	m := regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(mod)
	if m == nil {
		t.Fatalf("go.mod of test/tools/chart does not name %s", module)
	}
	path := testkit.Get(filepath.Abs(filepath.Join("../../.tools", name+"-"+string(m[1]), name)))(t)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	programtest.Missing(t, name, "make tools-chart builds it")
	return ""
}

func helm(t *testing.T) string {
	t.Helper()
	return tool(t, "helm", "helm.sh/helm/v3")
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b := testkit.Get(os.ReadFile(path))(t)
	return b
}

// variants returns the names of the files in values/, and "" for the defaults.
func variants(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("values/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("files of values: %d, %v", len(files), err)
	}
	out := []string{""}
	for _, f := range files {
		out = append(out, strings.TrimSuffix(filepath.Base(f), ".yaml"))
	}
	return out
}

// template runs helm template as a user would: release gpu, namespace monitoring. WARPGAUGE_CHART is a packaged chart
// in place of the tree's.
func template(t *testing.T, variant string, sets ...string) ([]byte, error) {
	t.Helper()
	args := []string{"template", "gpu", cmp.Or(os.Getenv("WARPGAUGE_CHART"), "warpgauge"), "--namespace", "monitoring"}
	if variant != "" {
		args = append(args, "--values", "values/"+variant+".yaml")
	}
	for _, s := range sets {
		args = append(args, "--set-json", s)
	}
	key := strings.Join(args, "\x00")
	if r, ok := renderings[key]; ok {
		return bytes.Clone(r.out), r.err
	}
	cmd := exec.Command(helm(t), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		out = stderr.Bytes()
	}
	renderings[key] = rendering{out, err}
	return bytes.Clone(out), err
}

// renderings caches the results of Helm, because most tests render the same variants. No test of this package is parallel.
var renderings = map[string]rendering{}

type rendering struct {
	out []byte
	err error
}

// objects is a rendered chart by kind, decoded strictly: a field unknown to Kubernetes is an error.
type objects struct {
	kinds       []string // KIND or KIND/COMPONENT, sorted
	daemonSets  map[string]*appsv1.DaemonSet
	deployments []*appsv1.Deployment
	secrets     []*corev1.Secret
	configMaps  map[string]*corev1.ConfigMap
	roles       []*rbacv1.Role // includes ClusterRoles
	others      map[string][]map[string]any
}

func render(t *testing.T, variant string, sets ...string) *objects {
	t.Helper()
	out, err := template(t, variant, sets...)
	if err != nil {
		t.Fatalf("render %q with %q: %v\n%s", variant, sets, err, out)
	}
	return decode(t, out)
}

var separator = regexp.MustCompile(`(?m)^---$`)

func decode(t *testing.T, out []byte) *objects {
	t.Helper()
	o := &objects{daemonSets: map[string]*appsv1.DaemonSet{}, configMaps: map[string]*corev1.ConfigMap{}, others: map[string][]map[string]any{}}
	for _, doc := range separator.Split(string(out), -1) {
		var head map[string]any
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatalf("parse: %v\n%s", err, doc)
		}
		kind, _ := head["kind"].(string)
		if kind == "" {
			continue
		}
		v, err := strictly(doc)
		if err != nil && kind != "SecurityContextConstraints" { // no importable module has this type
			t.Fatalf("decode: %v\n%s", err, doc)
		}
		if kind == "Pod" { // the pod of helm test
			continue
		}
		o.kinds = append(o.kinds, kind)
		switch v := v.(type) {
		case *appsv1.DaemonSet:
			o.daemonSets[v.Labels["app.kubernetes.io/component"]] = v
		case *appsv1.Deployment:
			o.deployments = append(o.deployments, v)
		case *corev1.Secret:
			o.secrets = append(o.secrets, v)
		case *corev1.ConfigMap:
			o.configMaps[v.Name] = v
		case *rbacv1.ClusterRole:
			o.roles = append(o.roles, &rbacv1.Role{TypeMeta: v.TypeMeta, ObjectMeta: v.ObjectMeta, Rules: v.Rules})
		case *rbacv1.Role:
			o.roles = append(o.roles, v)
		default:
			o.others[kind] = append(o.others[kind], head)
		}
	}
	slices.Sort(o.kinds)
	return o
}

var decoder = func() runtime.Decoder {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, monitoring.AddToScheme} {
		if err := add(known); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
}()

// strictly decodes an object of Kubernetes or of the Prometheus operator.
func strictly(doc string) (runtime.Object, error) {
	v, _, err := decoder.Decode([]byte(doc), nil, nil)
	return v, err
}

// container returns the one container of a DaemonSet.
func container(t *testing.T, d *appsv1.DaemonSet) *corev1.Container {
	t.Helper()
	if n := len(d.Spec.Template.Spec.Containers); n != 1 {
		t.Fatalf("%s has %d containers", d.Name, n)
	}
	return &d.Spec.Template.Spec.Containers[0]
}
