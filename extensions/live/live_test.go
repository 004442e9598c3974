package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/fake"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/exporter/exportertest"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
)

var must = testkit.Must

// newNode returns a simulated node with a script for package fake.
func newNode(t *testing.T, e *Extension, script string, args ...string) *exporter.Pipeline {
	t.Helper()
	spec, err := fake.ParseSpec(strings.NewReader(script))
	must(t, err)
	o := fake.Options{Spec: spec}
	v := exporter.Vendor{Name: fake.Name, Simulated: true}
	v.Open = testkit.Get(fake.Factory(o))(t)
	if e.ViewsProcesses() {
		v.Processes = testkit.Get(fake.ProcessesFactory(o))(t)
	}
	node := exportertest.Node{
		Vendors: []exporter.Vendor{v}, Extensions: []exporter.Extension{e}, Args: append([]string{"--enable-only=fake"}, args...),
		CSV: "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_XID_ERRORS, gauge, x\nDCGM_EXP_XID_ERRORS_TOTAL, counter, x\n",
	}
	p := node.Pipeline(t)
	must(t, p.Extend())
	p.AddPages()
	return p
}

// answeringNode returns the API of a simulated node in a synctest bubble. The node runs until the test ends.
func answeringNode(t *testing.T, script string) (http.Handler, *exporter.Pipeline) {
	t.Helper()
	p := newNode(t, New(), script, "--isolation=none")
	testkit.Start(t, func(ctx context.Context) error {
		return exporter.RunStages(ctx, zap.NewNop(), append(p.Stages(), p.Extended...)...)
	})
	return p.NewServer().Handler(), p
}

func answerOf[T any](t *testing.T, h http.Handler, path string) *T {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, api.Prefix+path, nil))
	out := new(T)
	err := json.Unmarshal(w.Body.Bytes(), out)
	testkit.FatalIf(t, err != nil || w.Code != http.StatusOK, "%s answers %d, %v: %s", path, w.Code, err, w.Body)
	return out
}

// TestProcessesAreReadForViewers: processes are read only while a client requests them, and for a
// minute after.
func TestProcessesAreReadForViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers, p := answeringNode(t, "processes: [{device: 2, pid: 2, memory: 5}]\n")
		time.Sleep(3 * time.Second)
		testkit.Equal(t, "sources of processes without a viewer", 0, len(p.Engine.Processes().Load().Sources))
		answerOf[apiv1.Devices](t, answers, "devices")
		time.Sleep(3 * time.Second)
		for _, d := range answerOf[apiv1.Devices](t, answers, "devices").Devices {
			testkit.Equal(t, "processes of GPU "+d.GPU, map[bool]int{true: 1}[d.GPU == "2"], len(d.Processes))
		}
		time.Sleep(viewTimeout + 3*time.Second)
		testkit.Equal(t, "sources of processes after the last viewer", 0, len(p.Engine.Processes().Load().Sources))
	})
}

// TestTheAPIShowsAnXID: an XID appears as an event, on the page and in the counters.
func TestTheAPIShowsAnXID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers, _ := answeringNode(t, "faults: [{device: 1, kind: xid, xid: 79, at: 5s}]\n")
		time.Sleep(20 * time.Second)
		events := answerOf[apiv1.Events](t, answers, "events").Events
		i := 0
		for _, e := range events {
			if e.Kind == "xid" && e.GPU == "1" && e.Code != nil && *e.Code == 79 && e.Bad {
				i++
			}
		}
		testkit.Equal(t, fmt.Sprintf("events of the XID in %+v", events), 1, i)
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
		testkit.Equal(t, "the XID is among the counted ones", true, counted)
		list := answerOf[apiv1.List](t, answers, "list")
		testkit.ErrorIf(t, list.Source != "test.csv" || len(list.Hash) != 64 || len(list.Fields) != 3, "the list is %+v", list)
	})
}

func TestWebPage(t *testing.T) {
	f := func(page string, api, processes bool) {
		t.Helper()
		p := newNode(t, &Extension{Settings{Page: page}}, "", "--web-page="+page)
		s := p.NewServer()
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/devices", nil))
		testkit.Equal(t, "--web-page="+page+": /api/v1/devices answers", api, w.Code == http.StatusOK)
		testkit.Equal(t, "--web-page="+page+": processes can be read", processes, p.Engine.Processes() != nil)
		w = httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		testkit.ErrorIf(t, w.Code != http.StatusOK || bytes.Contains(w.Body.Bytes(), []byte("api/v1")) != api, "--web-page=%s: / answers %d:\n%s", page, w.Code, w.Body)
	}
	f("full", true, true)
	f("anonymous", true, false)
	f("off", false, false)
}
