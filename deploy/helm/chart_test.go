package helm_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
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

// TestManifests decodes the plain manifests as the other tests decode the chart.
func TestManifests(t *testing.T) {
	if v, err := strictly("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {port: []}\n"); err == nil {
		t.Fatalf("a misspelt field passes: %v", v)
	}
	all, err := filepath.Glob("../*/warpgauge*.yaml")
	if err != nil || len(all) < 5 {
		t.Fatalf("plain manifests: %d, %v", len(all), err)
	}
	for _, path := range all {
		decode(t, read(t, path))
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
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Fatal(err)
	}
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
		if diff := cmp.Diff(text, string(read(t, filepath.Join("..", name)))); diff != "" {
			t.Errorf("deploy/%s is out of date; run make generate manifests (-want +got):\n%s", name, diff)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestValuesAreDescribed: each value has a comment in the form that helm-docs and Artifact Hub read, and an entry in
// the schema.
func TestValuesAreDescribed(t *testing.T) {
	var values yaml.Node
	if err := yaml.Unmarshal(read(t, "warpgauge/values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(read(t, "warpgauge/values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
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

// TestValuesAreRefused: Helm refuses a misspelt or impossible value at once and names it.
func TestValuesAreRefused(t *testing.T) {
	f := func(want string, sets ...string) {
		t.Helper()
		out, err := template(t, "", sets...)
		if err == nil {
			t.Errorf("%q is accepted", sets)
		} else if !strings.Contains(string(out), want) {
			t.Errorf("%q: %s does not say %q", sets, out, want)
		}
	}
	f("enabld", `serviceMonitor.enabld=true`)
	f("/logLevel", `logLevel="loud"`)
	f("/image/variant", `image.variant="cuda"`)
	f("/amd/port", `amd.port=0`)
	f("/nvidia/resourceClaims/0", `nvidia.resourceClaims=[{"name":"gpus","claim":"mine"}]`)
	f("/collectInterval", `collectInterval=1`)
	f("/nvidia/counters/preset", `nvidia.counters.preset="full"`)
	f("tlsServerConfig.existingSecret", `tlsServerConfig.enabled=true`)
	f("remote.url: empty", `remote.mode="apply"`)
	f("/remote/mode", `remote.mode="always"`)
	f("sends tokens over TLS only", `remote={"mode":"apply","url":"http://lists.example/gpu.csv","tokenSecret":{"name":"t"}}`)
	f("fleet.tokenSecret.name: empty", `fleet.enabled=true`)
	f("fleet.directory: empty", `fleet={"enabled":true,"tokenSecret":{"name":"t"}}`)
	f("needs fleet.tlsSecret", `fleet.clientCA=true`)
	f("/health/rules/0", `health.rules=["hot"]`)
	f("needs service.enable", `serviceMonitor.enabled=true`, `service.enable=false`)
}
