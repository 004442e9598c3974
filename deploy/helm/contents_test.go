package helm_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/exporter-toolkit/web"
	"sigs.k8s.io/yaml"
)

// TestRules: a PrometheusRule holds the rules of deploy/prometheus, whatever templates do
// to braces and dollars, and links to runbooks where it is told where they are.
func TestRules(t *testing.T) {
	files := map[string]string{
		"gpu-warpgauge-alerts":            "alerts.yml",
		"gpu-warpgauge-recording":         "recording.yml",
		"gpu-warpgauge-accelerator":       "openshift-accelerator.yml",
		"gpu-warpgauge-native-histograms": "recording-native.yml",
	}
	seen := 0
	for _, rule := range render(t, "", `prometheusRule={"enabled":true,"accelerator":true,"nativeHistograms":true,"runbookURL":"https://wiki.example/gpu"}`).others["PrometheusRule"] {
		seen++
		name, _ := rule["metadata"].(map[string]any)["name"].(string)
		text := string(read(t, filepath.Join("../prometheus/rules", files[name])))
		var want any
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "runbook: docs/runbooks.md#", "runbook_url: https://wiki.example/gpu#")), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, rule["spec"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if seen != len(files) {
		t.Errorf("%d PrometheusRules, want %d", seen, len(files))
	}
}

// TestDashboards: a ConfigMap for each, with the same JSON.
func TestDashboards(t *testing.T) {
	want, err := filepath.Glob("../../dashboards/*.json")
	if err != nil || len(want) == 0 {
		t.Fatalf("dashboards: %q, %v", want, err)
	}
	got := render(t, "", `dashboards={"enabled":true,"namespace":"grafana","annotations":{"grafana_folder":"GPUs"}}`).configMaps
	if len(got) != len(want) {
		t.Errorf("%d ConfigMaps for %d dashboards", len(got), len(want))
	}
	for _, path := range want {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		c := got["gpu-warpgauge-dashboard-"+name]
		if c == nil {
			t.Errorf("there is no ConfigMap for %s", name)
			continue
		}
		if c.Namespace != "grafana" || c.Labels["grafana_dashboard"] != "1" || c.Annotations["grafana_folder"] != "GPUs" {
			t.Errorf("%s: namespace %q, labels %v, annotations %v", name, c.Namespace, c.Labels, c.Annotations)
		}
		var a, b any
		if err := json.Unmarshal(read(t, path), &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(c.Data["warpgauge-"+name+".json"]), &b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCounters: a list in the values arrives byte for byte, for its vendor only.
func TestCounters(t *testing.T) {
	const list = "# mine\n\nDCGM_FI_DEV_GPU_TEMP, gauge, \"a, {{ b }} 'c'\"\n"
	quoted, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"nvidia.counters.csv", "customMetrics", "amd.counters.csv"} {
		vendor, _, _ := strings.Cut(strings.Replace(value, "customMetrics", "nvidia.", 1), ".")
		got := render(t, "", value+"="+string(quoted)).configMaps
		c := got["gpu-warpgauge-"+vendor+"-counters"]
		if len(got) != 1 || c == nil {
			t.Errorf("%s: ConfigMaps %v", value, got)
			continue
		}
		if strings.TrimRight(c.Data["counters.csv"], "\n") != strings.TrimRight(list, "\n") {
			t.Errorf("%s arrives as %q", value, c.Data["counters.csv"])
		}
	}
}

// TestWebConfig: a secret in the form of the exporter-toolkit, without plain passwords.
func TestWebConfig(t *testing.T) {
	secrets := render(t, "https", `basicAuth.users.plain="secret"`).secrets
	if len(secrets) != 1 {
		t.Fatalf("%d secrets", len(secrets))
	}
	text := secrets[0].StringData["web-config.yaml"]
	if !strings.Contains(text, `client_auth_type: "RequireAndVerifyClientCert"`) && !strings.Contains(text, "client_auth_type: RequireAndVerifyClientCert") || strings.Contains(text, `"secret"`) {
		t.Errorf("no certificate is asked for, or a password is plain:\n%s", text)
	}
	dir := certificate(t)
	path := filepath.Join(dir, "web-config.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "/etc/warpgauge/tls", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := web.Validate(path); err != nil {
		t.Errorf("the exporter-toolkit does not take it: %v\n%s", err, text)
	}
}

// certificate makes a directory like that of a mounted TLS secret, from the certificate
// of net/http/httptest.
func certificate(t *testing.T) (dir string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for name, b := range map[string][]byte{"tls.crt": crt, "ca.crt": crt, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
