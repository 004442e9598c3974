package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/zap"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/config"
)

// answeringNode is what HTTP serves of a simulated node in a synctest bubble, which runs until the test ends.
func answeringNode(t *testing.T, args ...string) http.Handler {
	t.Helper()
	a, cfg := wanted(t, simulated(append(args, "--kernel-log=off")...)...)
	files := a.NewFiles(cfg, "", nil)
	parsed := files.Parse(&config.Content{CSV: []byte("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_XID_ERRORS, gauge, x\nDCGM_EXP_XID_ERRORS_TOTAL, counter, x\n"), Name: "test.csv"})
	must(t, parsed.Err)
	p, err := a.NewPipeline(cfg, parsed.Fields, zap.NewNop())
	must(t, err)
	p.ServeLists(parsed, files)
	must(t, p.Extend())
	p.AddPages()
	stages := append(p.Stages(), p.Extended...)
	done := make(chan error, len(stages))
	for _, s := range stages {
		go func() { done <- s.Run(t.Context()) }()
	}
	t.Cleanup(func() {
		for range stages {
			<-done
		}
	})
	return p.NewServer().Handler()
}

func answerOf[T any](t *testing.T, h http.Handler, path string) *T {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, api.Prefix+path, nil))
	out := new(T)
	if err := json.Unmarshal(w.Body.Bytes(), out); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s answers %d, %v: %s", path, w.Code, err, w.Body)
	}
	return out
}

// TestSimulatedNodesFitTheDescription checks what the API answers of every simulated node
// against its OpenAPI file.
func TestSimulatedNodesFitTheDescription(t *testing.T) {
	for _, profile := range []string{"dgx-h100", "dgx-a100-mig", "gb200", "mi300x", "rtx4090"} {
		t.Run(profile, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers := answeringNode(t, "--fake-profile="+profile, "--isolation=none")
				time.Sleep(5 * time.Second)
				c := jsonschema.NewCompiler()
				c.AssertFormat()
				must(t, c.AddResource("api", *answerOf[any](t, answers, "openapi.json")))
				id := answerOf[apiv1.Devices](t, answers, "devices").Devices[0].ID
				for path, of := range map[string]string{
					"devices": "Devices", "fields": "Fields", "health": "Health", "list": "List", "events": "Events",
					"samples?field=DCGM_FI_DEV_GPU_TEMP&device=" + url.QueryEscape(id): "Samples",
				} {
					s, err := c.Compile("api#/components/schemas/" + of)
					must(t, err)
					if err := s.Validate(*answerOf[any](t, answers, path)); err != nil {
						t.Errorf("%s: %v", path, err)
					}
				}
				if h := answerOf[apiv1.Health](t, answers, "health"); h.State != "ok" || !h.Ready {
					t.Errorf("health is %s, ready %v: %+v", h.State, h.Ready, h)
				}
			})
		})
	}
}
