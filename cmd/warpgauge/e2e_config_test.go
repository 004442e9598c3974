package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"warpgauge/internal/testkit/eventually"
)

// TestE2EConfigFile runs the real binary with a configuration file of dcgm-exporter, in a
// child process too, which must not read it.
func TestE2EConfigFile(t *testing.T) {
	t.Parallel()
	exe := build(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	const fields = `version: 2
metrics:
  enableExporterMetrics: %v
  fields:
    - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: Temperature}
    - {name: %s, prometheusType: gauge, help: Another}
collections:
  - {name: scrape, every: 100ms, metrics: {include: ["*"]}}
  - {name: slow, every: 1h, metrics: {include: ["%s"]}}
`
	write(t, path, fmt.Sprintf(fields, true, "DCGM_FI_DEV_FB_USED", "*_FB_*"))
	e := serve(t, exe, "--config-file="+path, "--isolation=process")
	has := func(name string) func() error {
		return func() error {
			p := e.scrape(t, acceptText)
			if len(p.values("DCGM_FI_DEV_GPU_TEMP")) != 8 || len(p.values(name)) != 8 {
				return errors.New("not 8 values of both fields")
			}
			return p.want(1, "warpgauge_collector_up", "collector", "fake")
		}
	}
	eventually.OK(t, "the fields of the file", has("DCGM_FI_DEV_FB_USED"))

	write(t, path, fmt.Sprintf(fields, true, "DCGM_FI_DEV_FB_FREE", "*_NOTHING_*"))
	eventually.OK(t, "a line about a group that names nothing", func() error {
		if !strings.Contains(e.Output(), `collection \"slow\" names no field of the list`) {
			return errors.New("none yet")
		}
		return has("DCGM_FI_DEV_FB_USED")() // the list in service stays
	})
	write(t, path, fmt.Sprintf(fields, true, "DCGM_FI_DEV_FB_FREE", "*_FB_*"))
	eventually.OK(t, "the other field, without a restart", has("DCGM_FI_DEV_FB_FREE"))

	// A child gets the list with the names that are wanted.
	named := strings.Replace(fields, "metrics:\n", "metrics:\n  fieldNames: both\n", 1)
	write(t, path, fmt.Sprintf(named, true, "DCGM_FI_DEV_FB_FREE", "*_FB_*"))
	eventually.OK(t, "the names of both generations", has("DCGM_FI_DEV_GPU_TEMP_CELSIUS"))
	eventually.OK(t, "the other unit", has("DCGM_FI_DEV_FB_FREE_BYTES"))

	// An option that chooses the list is never ignored.
	for want, args := range map[string][]string{
		"key metric is unknown": {"--config-file=" + file(t, "bad.yaml", "version: 2\nmetric: {}\n")},
		"no such file":          {"--config-file=" + path + ".not"},
		"read ConfigMap a:b":    {"-m", "a:b"},
	} {
		if code, out := runToEnd(t, exe, append(args, "--enable-fake", "--address=127.0.0.1:0")...); code != 1 || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d, want 1 and %q in:\n%s", args, code, want, out)
		}
	}
}

// TestE2EConfigMap reads the list through an API server, which knows one ConfigMap.
func TestE2EConfigMap(t *testing.T) {
	exe := build(t)
	t.Setenv("KUBECONFIG", file(t, "kubeconfig", kubeconfigOf(configMapServer(t, "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature\n"))))
	code, out := runToEnd(t, exe, "once", "--enable-only=fake", "-m", "gpus:fields")
	if code != 0 || strings.Count(out, "\nDCGM_FI_DEV_GPU_TEMP{") != 8 || strings.Contains(out, "DCGM_FI_DEV_FB_USED") {
		t.Errorf("exit code %d, output:\n%.2000s", code, out)
	}
	if code, out := runToEnd(t, exe, "once", "--enable-fake", "-m", "gpus:others"); code != 1 || !strings.Contains(out, "configmaps is forbidden") {
		t.Errorf("a ConfigMap that may not be read: exit code %d, want 1 and why in:\n%s", code, out)
	}
}

// configMapServer is an API server that lets a caller get one ConfigMap, gpus:fields.
func configMapServer(t *testing.T, csv string) (address string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/api/v1/namespaces/gpus/configmaps/fields" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"configmaps is forbidden"}`)
			return
		}
		fmt.Fprintf(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"fields","namespace":"gpus"},"data":{"metrics":%q}}`, csv)
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// kubeconfigOf leads to an API server.
func kubeconfigOf(address string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x"}}],"clusters":[{"name":"x","cluster":{"server":%q}}]}`, address)
}
