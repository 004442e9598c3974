package main

import (
	"bytes"
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
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
)

// answeringNode is the API of a simulated node in a synctest bubble, which runs until the test ends.
func answeringNode(t *testing.T, args ...string) (*api.API, *pipeline) {
	t.Helper()
	cfg := wanted(t, simulated(args...)...)
	all, err := withProcesses(cfg, zap.NewNop(), cfg.Web.Page == config.PageFull)
	must(t, err)
	files := newFiles(&app{}, cfg, "", nil)
	in := &config.Content{CSV: []byte("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_XID_ERRORS, gauge, x\nDCGM_EXP_XID_ERRORS_TOTAL, counter, x\n"), Name: "test.csv"}
	parsed := files.Parse(in)
	must(t, parsed.Err)
	a := &app{flags: config.NewSet(noEnvironment)}
	p, err := newPipeline(a, cfg, all, parsed.Fields, zap.NewNop())
	must(t, err)
	p.addPages()
	answers := newAPI(a.build.Version, cfg, all, p, newDesk(parsed, p, files, zap.NewNop()), zap.NewNop())
	done := make(chan error, 4)
	stages := p.stages()
	for _, s := range stages {
		go func() { done <- s.run(t.Context()) }()
	}
	t.Cleanup(func() {
		for range stages {
			<-done
		}
	})
	return answers, p
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

// TestProcessesAreReadForViewers: nothing reads them until a client asks, and not any more a minute
// after the last one has.
func TestProcessesAreReadForViewers(t *testing.T) {
	spec := tempFile(t, "spec.yaml", "processes: [{device: 2, pid: 2, memory: 5}]\n")
	synctest.Test(t, func(t *testing.T) {
		answers, p := answeringNode(t, "--fake-spec="+spec, "--isolation=none")
		time.Sleep(3 * time.Second)
		if n := len(p.engine.Processes().Load().Sources); n > 0 {
			t.Errorf("%d sources of processes without a viewer", n)
		}
		answerOf[apiv1.Devices](t, answers, "devices")
		time.Sleep(3 * time.Second)
		for _, d := range answerOf[apiv1.Devices](t, answers, "devices").Devices {
			if got := len(d.Processes); got != map[bool]int{true: 1}[d.GPU == "2"] {
				t.Errorf("GPU %s has %d processes", d.GPU, got)
			}
		}
		time.Sleep(viewTimeout + 3*time.Second)
		if n := len(p.engine.Processes().Load().Sources); n > 0 {
			t.Errorf("%d sources of processes after the last viewer", n)
		}
	})
}

// TestTheAPIShowsAnXID: an XID is an event, on the page, and counted.
func TestTheAPIShowsAnXID(t *testing.T) {
	spec := tempFile(t, "spec.yaml", "faults: [{device: 1, kind: xid, xid: 79, at: 5s}]\n")
	synctest.Test(t, func(t *testing.T) {
		answers, _ := answeringNode(t, "--fake-spec="+spec, "--isolation=none")
		time.Sleep(20 * time.Second)
		events := answerOf[apiv1.Events](t, answers, "events").Events
		i := 0
		for _, e := range events {
			if e.Kind == api.KindXID && e.GPU == "1" && e.Code != nil && *e.Code == 79 && e.Bad {
				i++
			}
		}
		if i != 1 {
			t.Errorf("%d events of the XID: %+v", i, events)
		}
		id := ""
		for _, d := range answerOf[apiv1.Devices](t, answers, "devices").Devices {
			if d.GPU == "1" && d.Kind == "gpu" {
				id = d.ID
			}
		}
		counted := false
		for _, f := range answerOf[apiv1.Fields](t, answers, "fields?device="+id+"&field=DCGM_EXP_XID_ERRORS_TOTAL").Devices[0].Fields {
			counted = counted || f.Labels["xid"] == "79" && f.Value != nil && *f.Value == 1
		}
		if !counted {
			t.Error("the XID is not among the counted ones")
		}
		list := answerOf[apiv1.List](t, answers, "list")
		if list.Source != "test.csv" || len(list.Hash) != 64 || len(list.Fields) != 3 {
			t.Errorf("the list is %+v", list)
		}
	})
}

func TestWebPage(t *testing.T) {
	f := func(page string, api, processes bool) {
		t.Helper()
		cfg := wanted(t, simulated("--web-page="+page)...)
		all, err := withProcesses(cfg, zap.NewNop(), cfg.Web.Page == config.PageFull)
		must(t, err)
		a := &app{flags: config.NewSet(noEnvironment)}
		p, err := newPipeline(a, cfg, all, field.List{}, zap.NewNop())
		must(t, err)
		p.addPages()
		s := a.newServer(cfg, all, p, newDesk(&lists.Parsed{Content: &config.Content{}}, p, nil, zap.NewNop()), zap.NewNop())
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/devices", nil))
		if (w.Code == http.StatusOK) != api {
			t.Errorf("--web-page=%s: /api/v1/devices answers %d", page, w.Code)
		}
		if (p.engine.Processes() != nil) != processes {
			t.Errorf("--web-page=%s: processes can be read: %v", page, p.engine.Processes() != nil)
		}
		w = httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != http.StatusOK || bytes.Contains(w.Body.Bytes(), []byte("api/v1")) != api {
			t.Errorf("--web-page=%s: / answers %d:\n%s", page, w.Code, w.Body)
		}
	}
	f("full", true, true)
	f("anonymous", true, false)
	f("off", false, false)
}

// TestSimulatedNodesFitTheDescription checks what the API answers of every simulated node
// against its OpenAPI file.
func TestSimulatedNodesFitTheDescription(t *testing.T) {
	for _, profile := range []string{"dgx-h100", "dgx-a100-mig", "gb200", "mi300x", "rtx4090"} {
		t.Run(profile, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers, _ := answeringNode(t, "--fake-profile="+profile, "--isolation=none")
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
