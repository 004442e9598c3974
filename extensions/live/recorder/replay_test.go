package recorder

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/history"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// recordingOf returns a recording of one GPU over 10 s, with an event, a blank reading, and a gap
// without samples.
func recordingOf(t *testing.T) *Recording {
	list, _, err := field.Parse(strings.NewReader("DCGM_FI_DEV_POWER_USAGE, gauge, Power\nDCGM_FI_DEV_XID_ERRORS, gauge, XID\nDCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs\n"), field.ParseOptions{})
	must(t, err)
	start := time.Now().UTC()
	r := &Recording{Fields: []field.List{list}, Header: Header{
		Recording: apiv1.Recording{Name: "x.om.zst", Cause: "xid", Device: "GPU-a", From: start, Until: start.Add(10 * time.Second)},
		Hostname:  "node", Lists: []string{""},
		Devices: []Device{
			{Collector: "nvml", Interval: time.Second, Device: collector.Device{ID: "GPU-a", GPU: "0", Level: field.GPU}},
			{Collector: "nvml", Interval: time.Second, Device: collector.Device{ID: "GPU-b", GPU: "1"}}, // without series
		},
		Node:   apiv1.Devices{Devices: []apiv1.Device{{ID: "GPU-a", State: "lost", Reason: "gone", Users: []apiv1.User{{Namespace: "ns", Pod: "p", Container: "c"}}}}},
		Events: []apiv1.Event{{Kind: "xid", Time: start.Add(1500 * time.Millisecond), Device: "GPU-a", Text: "XID 79"}},
	}}
	series := func(id field.ID, buffered bool, pairs ...float64) {
		var samples []Sample
		for i := 0; i < len(pairs); i += 2 {
			samples = append(samples, Sample{start.UnixMilli() + int64(pairs[i]), pairs[i+1]})
		}
		r.Series, r.Samples = append(r.Series, history.Series{Device: "GPU-a", Field: id, Buffered: buffered}), append(r.Samples, samples)
	}
	series(155, false, 0, 100, 2000, 300.5, 3000, 400)
	series(150, false, 0, 50, 1000, 51, 2000, 52, 3000, 53) // not shown by the list
	series(155, true, 500, 99)
	series(field.XIDErrors, false, 2000, 79, 3000, 31)
	series(field.XIDEvent, false, 1500, 79, 3000, 31)
	series(60000, false, 0, 1) // from a later version
	return r
}

func unjudged(*view.View, []session.CollectorStatus, time.Time) *events.Snapshot {
	return &events.Snapshot{}
}

// TestReplay: page and API show the selected time.
func TestReplay(t *testing.T) {
	f := func(at time.Duration, state, power, xid string) {
		t.Helper()
		r := recordingOf(t)
		p, answers, err := NewReplay(r, "v1", unjudged, r.From.Add(at))
		must(t, err)
		page, d := string(p.Page(exposition.Text, false)), answers.Devices()
		if len(d.Devices) != 1 || d.Devices[0].State != state || d.Recording != "x.om.zst" || !d.Time.Equal(r.From.Add(at).Truncate(time.Millisecond)) || d.Devices[0].Users[0].Pod != "p" {
			t.Errorf("at %v: %+v", at, d)
		}
		for _, want := range []string{power, xid} {
			if missing := strings.TrimPrefix(want, "!"); strings.Contains(page, missing) == strings.HasPrefix(want, "!") {
				t.Errorf("at %v: want %q on\n%s", at, want, page)
			}
		}
	}
	const total = `DCGM_EXP_XID_ERRORS_TOTAL{gpu="0",UUID="",pci_bus_id="",device="",modelName="",hostname="node",xid="79",container="c",namespace="ns",pod="p"} `
	f(0, "up", `pod="p"} 100`, "!"+total+"1")
	f(1200*time.Millisecond, "up", "!DCGM_FI_DEV_POWER_USAGE{", "!"+total+"1") // a row with a blank
	f(2100*time.Millisecond, "up", `pod="p"} 300.5`, total+"1")
	f(3100*time.Millisecond, "up", `pod="p"} 400`, `err_code="31"`)
	f(10*time.Second, "lost", `pod="p"} 400`, total+"1") // --stale-after is longer
}

// TestReplaysHistoryEqualsTheRecording: the history has all series, also those that the page does not show.
func TestReplaysHistoryEqualsTheRecording(t *testing.T) {
	r := recordingOf(t)
	h := r.history()
	all := h.Series(history.Match{})
	if len(all) != len(r.Series) {
		t.Fatalf("%d series, want %d", len(all), len(r.Series))
	}
	for i, s := range all {
		var got []Sample
		for at, v := range h.Samples(s, math.MinInt64, math.MaxInt64) {
			got = append(got, Sample{at, v})
		}
		if diff := cmp.Diff(r.Samples[i], got); diff != "" {
			t.Errorf("series %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestAReplayIsBounded: a file of 100 devices whose series share no times would need a cell for each time and series.
func TestAReplayIsBounded(t *testing.T) {
	r := recordingOf(t)
	for i := range 10_000 {
		r.Series = append(r.Series, history.Series{Device: "GPU-a", Field: 150, Labels: []collector.Label{{Name: "n", Value: fmt.Sprint(i)}}})
		r.Samples = append(r.Samples, []Sample{{r.From.UnixMilli() + int64(i), 1}})
	}
	if _, _, err := NewReplay(r, "v1", unjudged, r.Until); err == nil || !strings.Contains(err.Error(), "too many samples") {
		t.Errorf("error %v", err)
	}
}

// replayed decodes a replay's answer to a path into out.
func replayed(t *testing.T, r *Recording, path string, out any) {
	t.Helper()
	r.From = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r.Until = r.From.Add(time.Minute)
	_, answers, err := NewReplay(r, "v1", unjudged, r.Until)
	must(t, err)
	w := httptest.NewRecorder()
	answers.ServeHTTP(w, httptest.NewRequest(http.MethodGet, api.Prefix+path, nil))
	if err := json.Unmarshal(w.Body.Bytes(), out); err != nil || w.Code != http.StatusOK {
		t.Errorf("%s: %d, %v: %s", path, w.Code, err, w.Body)
	}
}

// TestReplayWithoutDevices: an operator can record a node that has lost all GPUs.
func TestReplayWithoutDevices(t *testing.T) {
	for _, path := range []string{"devices", "fields", "health", "list", "events"} {
		var answer map[string]any
		replayed(t, &Recording{}, path, &answer)
	}
}

// TestReplayOfAReload: the fields of the lists before and after a reload are present.
func TestReplayOfAReload(t *testing.T) {
	before, _ := field.ByID(150)
	after, _ := field.ByID(155)
	list := func(d ...*field.Descriptor) (l field.List) {
		for _, d := range d {
			l.Fields = append(l.Fields, field.Field{Desc: d, Name: d.Name, Scale: 1})
		}
		return l
	}
	var got apiv1.List
	replayed(t, &Recording{Fields: []field.List{list(before), list(before, after)}}, "list", &got)
	if len(got.Fields) != 2 || got.Fields[1].Name != after.Name {
		t.Errorf("fields %v", got.Fields)
	}
}
