package helm_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/exporter-toolkit/web"
	"sigs.k8s.io/yaml"

	"warpgauge/internal/testkit"
)

var must = testkit.Must

// TestContents: PrometheusRules hold the rules of deploy/prometheus, with braces and dollars intact, and link to the
// configured runbooks; ConfigMaps hold the dashboards; a list in the values arrives byte for byte.
func TestContents(t *testing.T) {
	const list = "# mine\n\nDCGM_FI_DEV_GPU_TEMP, gauge, \"a, {{ b }} 'c'\"\n"
	quoted, err := json.Marshal(list)
	must(t, err)
	same := func(name string, want, got []byte) {
		t.Helper()
		var a, b any
		for text, to := range map[*[]byte]*any{&want: &a, &got: &b} {
			if err := yaml.Unmarshal(*text, to); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if diff := cmp.Diff(a, b); diff != "" || a == nil {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	o := render(t, "", `prometheusRule={"enabled":true,"accelerator":true,"nativeHistograms":true,"runbookURL":"https://wiki.example/gpu"}`,
		`dashboards={"enabled":true,"namespace":"grafana","annotations":{"grafana_folder":"GPUs"}}`, "amd.counters.csv="+string(quoted))
	files := map[string]string{
		"gpu-warpgauge-alerts":            "alerts.yml",
		"gpu-warpgauge-recording":         "recording.yml",
		"gpu-warpgauge-accelerator":       "openshift-accelerator.yml",
		"gpu-warpgauge-native-histograms": "recording-native.yml",
	}
	for _, rule := range o.others["PrometheusRule"] {
		name, _ := rule["metadata"].(map[string]any)["name"].(string)
		text := read(t, filepath.Join("../prometheus/rules", files[name]))
		spec := testkit.Get(yaml.Marshal(rule["spec"]))(t)
		same(name, regexp.MustCompile(`runbook(_url)?: .*docs/runbooks\.md#`).ReplaceAll(text, []byte("runbook_url: https://wiki.example/gpu#")), spec)
		delete(files, name)
	}
	testkit.Equal(t, "files without a PrometheusRule", 0, len(files))
	boards, err := filepath.Glob("../../dashboards/*.json")
	if err != nil || len(boards) == 0 || len(o.configMaps) != len(boards)+1 {
		t.Fatalf("%d ConfigMaps for a list and the dashboards %q, %v", len(o.configMaps), boards, err)
	}
	for _, path := range boards {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		c := o.configMaps["gpu-warpgauge-dashboard-"+name]
		if c == nil || c.Namespace != "grafana" || c.Labels["grafana_dashboard"] != "1" || c.Annotations["grafana_folder"] != "GPUs" {
			t.Fatalf("%s: %+v", name, c)
		}
		same(name, read(t, path), []byte(c.Data["warpgauge-"+name+".json"]))
	}
	if c := o.configMaps["gpu-warpgauge-amd-counters"]; c == nil || strings.TrimRight(c.Data["counters.csv"], "\n") != strings.TrimRight(list, "\n") {
		t.Errorf("the list arrives as %+v", c)
	}
	for _, value := range []string{"nvidia.counters.csv", "customMetrics"} {
		if got := render(t, "", value+"="+string(quoted)).configMaps; len(got) != 1 || got["gpu-warpgauge-nvidia-counters"] == nil {
			t.Errorf("%s: ConfigMaps %v", value, got)
		}
	}
}

// TestWebConfig: the secret has the form of the exporter-toolkit, and no plain passwords.
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
	must(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "/etc/warpgauge/tls", dir)), 0o600))
	if err := web.Validate(path); err != nil {
		t.Errorf("the exporter-toolkit does not take it: %v\n%s", err, text)
	}
}

// certificate makes a directory like a mounted TLS secret, from the certificate of net/http/httptest.
func certificate(t *testing.T) (dir string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	key := testkit.Get(x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey))(t)
	dir = t.TempDir()
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for name, b := range map[string][]byte{"tls.crt": crt, "ca.crt": crt, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})} {
		must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	return dir
}
