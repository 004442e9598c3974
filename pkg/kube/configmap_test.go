package kube

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"warpgauge/pkg/kube/kubetest/apitest"
)

// TestReadConfigMap: each refusal says what to do, and a right that is granted later is found by the next attempt.
func TestReadConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Pipe(t, "node-1")
		c := NewAPIServer(APIOptions{})
		c.config = s.Config
		f := func(want string, answer func(w http.ResponseWriter)) {
			t.Helper()
			s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/gpus/configmaps/fields" {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				answer(w)
				return true
			})
			csv, err := c.readConfigMap(t.Context(), "gpus", "fields")
			text := string(csv)
			if err != nil {
				text = err.Error()
			}
			if !strings.Contains(text, want) {
				t.Errorf("%q lacks %q", text, want)
			}
		}
		f(`read ConfigMap gpus:fields: grant the verb get on it to this service account by a Role in namespace "gpus"`, func(w http.ResponseWriter) {
			apitest.Refuse(w, http.StatusForbidden, "Forbidden", "configmaps is forbidden")
		})
		f("there is none", func(w http.ResponseWriter) { apitest.Refuse(w, http.StatusNotFound, "NotFound", "not found") })
		f("later", func(w http.ResponseWriter) {
			apitest.Refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable", "later")
		})
		m := object{"kind": "ConfigMap", "apiVersion": "v1", "metadata": object{"name": "fields", "namespace": "gpus"}}
		f(`no key "metrics"`, func(w http.ResponseWriter) { apitest.Reply(w, http.StatusOK, m) })
		m["data"] = object{"metrics": "DCGM_FI_DEV_GPU_TEMP, gauge, T.\n"}
		f("DCGM_FI_DEV_GPU_TEMP, gauge", func(w http.ResponseWriter) { apitest.Reply(w, http.StatusOK, m) })
	})
}
