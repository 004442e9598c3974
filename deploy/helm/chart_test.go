package helm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"warpgauge/internal/testkit"
)

func TestLint(t *testing.T) {
	for _, v := range variants(t) {
		args := []string{"lint", "--strict", "--quiet", "warpgauge"}
		if v != "" {
			args = append(args, "--values", "values/"+v+".yaml")
		}
		if out, err := exec.Command(helm(t), args...).CombinedOutput(); err != nil {
			t.Errorf("helm lint %q: %v\n%s", v, err, out)
		}
	}
}

// TestUnittest runs the suites of warpgauge/tests, which check the chart in the format that chart authors know.
func TestUnittest(t *testing.T) {
	program := tool(t, "helm-unittest", "github.com/helm-unittest/helm-unittest")
	if out, err := exec.Command(program, "--strict", "warpgauge").CombinedOutput(); err != nil {
		t.Errorf("helm-unittest: %v\n%s", err, out)
	}
}

// TestServer sends the chart to a real API server, which validates more than any schema. The server must have the CRDs
// of the Prometheus operator.
func TestServer(t *testing.T) {
	config := os.Getenv("WARPGAUGE_CHART_KUBECONFIG")
	if config == "" {
		t.Skip("WARPGAUGE_CHART_KUBECONFIG names no cluster")
	}
	kubectl := testkit.Get(exec.LookPath("kubectl"))(t)
	for _, v := range variants(t) {
		if v == "openshift" {
			continue // has its own kind
		}
		rendered, err := template(t, v)
		if err != nil {
			t.Fatalf("render %q: %v\n%s", v, err, rendered)
		}
		cmd := exec.Command(kubectl, "--kubeconfig", config, "--namespace", "default", "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(string(rendered), "namespace: monitoring", "namespace: default"))
		switch out, err := cmd.CombinedOutput(); {
		case err != nil && strings.Contains(string(out), "requires the `resource.kubernetes.io/admin-access: true` label"):
			t.Logf("%q was not tried to the end: the namespace default lacks the label resource.kubernetes.io/admin-access=true", v)
		case err != nil:
			t.Errorf("%q: %v\n%s", v, err, out)
		}
	}
}

// TestGenerated: the chart's copies of other folders, its README and the plain manifests match their sources.
func TestGenerated(t *testing.T) {
	if v, err := strictly("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {port: []}\n"); err == nil {
		t.Fatalf("a misspelt field passes the decoder of all tests: %v", v)
	}
	dir := t.TempDir()
	cmd := exec.Command("go", "run", "./generate", "-o", filepath.Join(dir, "helm"), "-helm", helm(t), "-manifests", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("generate: %v\n%s", err, out)
	}
	want := files(t, dir)
	if len(want) < 12 {
		t.Fatalf("generate wrote %d files", len(want))
	}
	for name, text := range want {
		testkit.Equal(t, fmt.Sprintf("deploy/%s is out of date; run make generate manifests", name), text, string(read(t, filepath.Join("..", name))))
	}
	for _, folder := range []string{"helm/warpgauge/files", "kubernetes", "openshift"} {
		for name := range files(t, filepath.Join("..", folder)) {
			if _, ok := want[filepath.Join(folder, name)]; !ok && filepath.Ext(name) != ".md" {
				t.Errorf("deploy/%s/%s comes from nowhere", folder, name)
			}
		}
	}
}

// files returns the texts of all files below a directory by relative path.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		out[name] = string(read(t, path))
		return err
	})
	must(t, err)
	return out
}

// TestValuesAreDescribed: each value has a comment in the form that helm-docs and Artifact Hub read, and an entry in
// the schema.
func TestValuesAreDescribed(t *testing.T) {
	var values yaml.Node
	must(t, yaml.Unmarshal(read(t, "warpgauge/values.yaml"), &values))
	var schema map[string]any
	must(t, json.Unmarshal(read(t, "warpgauge/values.schema.json"), &schema))
	var walk func(above string, mapping *yaml.Node, schema map[string]any)
	walk = func(above string, mapping *yaml.Node, schema map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		for i := 0; i+1 < len(mapping.Content); i += 2 {
			key, value := mapping.Content[i], mapping.Content[i+1]
			of, known := properties[key.Value].(map[string]any)
			if !known {
				t.Errorf("%s%s is not in the schema", above, key.Value)
			}
			switch described := strings.Contains("\n"+key.HeadComment, "\n# -- "); {
			case described:
			case value.Kind == yaml.MappingNode && len(value.Content) > 0:
				walk(above+key.Value+".", value, of)
			default:
				t.Errorf("%s%s has no description", above, key.Value)
			}
		}
	}
	walk("", values.Content[0], schema)
}

// TestRefused: Helm refuses a misspelt, impossible or unsupported value at once. The message names value and remedy.
func TestRefused(t *testing.T) {
	digest := `"sha256:` + strings.Repeat("ab", 32) + `"`
	for _, c := range []struct{ sets, want []string }{
		{[]string{`serviceMonitor.enabld=true`}, []string{"enabld"}},
		{[]string{`logLevel="loud"`}, []string{"/logLevel"}},
		{[]string{`image.variant="cuda"`}, []string{"/image/variant"}},
		{[]string{`amd.port=0`}, []string{"/amd/port"}},
		{[]string{`nvidia.resourceClaims=[{"name":"gpus","claim":"mine"}]`}, []string{"/nvidia/resourceClaims/0"}},
		{[]string{`collectInterval=1`}, []string{"/collectInterval"}},
		{[]string{`nvidia.counters.preset="full"`}, []string{"/nvidia/counters/preset"}},
		{[]string{`tlsServerConfig.enabled=true`}, []string{`tlsServerConfig\.existingSecret`}},
		{[]string{`remote.mode="apply"`}, []string{`remote\.url: empty`}},
		{[]string{`remote.mode="always"`}, []string{"/remote/mode"}},
		{[]string{`remote={"mode":"apply","url":"http://lists.example/gpu.csv","tokenSecret":{"name":"t"}}`}, []string{"sends tokens over TLS only"}},
		{[]string{`fleet.enabled=true`}, []string{`fleet\.tokenSecret\.name: empty`}},
		{[]string{`fleet={"enabled":true,"tokenSecret":{"name":"t"}}`}, []string{`fleet\.directory: empty`}},
		{[]string{`fleet={"enabled":true,"clientCA":true}`}, []string{`fleet\.tlsSecret: empty`}},
		{[]string{`health.rules=["hot"]`}, []string{"/health/rules/0"}},
		{[]string{`serviceMonitor.enabled=true`, `service.enable=false`}, []string{`needs service\.enable`}},
		{
			[]string{
				`image={"repository":"nvcr.io/nvidia/k8s/dcgm-exporter","tag":"4.5.3-4.8.2-ubuntu22.04"}`, `customMetrics="DCGM_FI_DEV_GPU_TEMP, gauge, T."`,
				`arguments=["-f","/etc/dcgm-exporter/default-counters.csv","-m","fields"]`,
				`tlsServerConfig={"enabled":true,"autoGenerated":true}`, `config={"enabled":true,"mountPath":"/a/b.yaml"}`,
				`extraEnv=[{"name":"DCGM_EXPORTER_KUBERNETES","value":"false"},{"name":"DCGM_EXPORTER_COLLECTORS","value":"/a.csv"}]`,
				`serviceMonitor={"enabled":true,"interval":"5s"}`,
			},
			[]string{
				"^- image.repository:.*name warpgauge's image", "^- image.tag:.*leave it out", "^- arguments: -f names a file.*drop it", "^- arguments: -m fields is not NAMESPACE:NAME",
				"^- tlsServerConfig.existingSecret:.*make a Secret", "^- config.mountPath:.*leave mountPath out", "^- config.data: empty.*without config.enabled",
				"^- extraEnv:.*--kubernetes.*beats DCGM_EXPORTER_KUBERNETES; set kubernetes.enabled", "^- extraEnv:.*set nvidia.counters or customMetrics",
				"^- serviceMonitor.scrapeTimeout: 10s is longer than serviceMonitor.interval, 5s",
			},
		},
		{[]string{`config={"enabled":true,"create":false}`, `tlsServerConfig={"key":"k"}`}, []string{"^- config.name: empty", "^- tlsServerConfig.key, cert, ca:.*existingSecret"}},
		{[]string{`config={"enabled":true,"data":{"version":2,"metrics":{"fields":[{"name":"a"}]}}}`, `customMetrics="b"`}, []string{"^- config.data: metrics.fields.*keep one"}},
		{[]string{`config={"enabled":true,"data":"a: ["}`}, []string{"^- config.data: .*yaml"}},
		{[]string{`nvidia.enabled=false`, `amd.enabled=false`}, []string{"^- nvidia.enabled, amd.enabled: .*set one of them"}},
		{
			[]string{`arguments=["-m","gpus:fields"]`, `customMetrics="DCGM_FI_DEV_GPU_TEMP, gauge, T."`, `amd.counters.csv="a"`, `image={"variant":"dcgm","digest":` + digest + `}`},
			[]string{"^- arguments: -m names a list, and nvidia.counters or customMetrics is another.*keep one", "^- arguments: -m names a list, and amd.counters is another", "^- image.variant: image.digest names one image.*name the digest of the one with DCGM"},
		},
	} {
		out, err := template(t, "", c.sets...)
		if err == nil {
			t.Errorf("%q is accepted", c.sets)
		}
		for _, want := range c.want {
			if !regexp.MustCompile("(?m)" + want).Match(out) {
				t.Errorf("%q: nothing is %q in:\n%s", c.sets, want, out)
			}
		}
	}
}
