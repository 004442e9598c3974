package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/history"
	"warpgauge/extensions/live/recorder"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
)

// recordingOf is a recording of one GPU and what became of it in 10 s: an event, a blank,
// and a gap in which it was not sampled.
func recordingOf(t *testing.T) *recorder.Recording {
	list, _, err := field.Parse(strings.NewReader("DCGM_FI_DEV_POWER_USAGE, gauge, Power\nDCGM_FI_DEV_XID_ERRORS, gauge, XID\nDCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs\n"), field.ParseOptions{})
	must(t, err)
	start := time.Now().UTC()
	r := &recorder.Recording{Fields: []field.List{list}, Header: recorder.Header{
		Recording: apiv1.Recording{Name: "x.jsonl.zst", Cause: "xid", Device: "GPU-a", From: start, Until: start.Add(10 * time.Second)},
		Hostname:  "node", Lists: []string{""},
		Devices: []recorder.Device{
			{Collector: "nvml", Interval: time.Second, Device: collector.Device{ID: "GPU-a", GPU: "0", Level: field.GPU}},
			{Collector: "nvml", Interval: time.Second, Device: collector.Device{ID: "GPU-b", GPU: "1"}}, // without series
		},
		Node:   apiv1.Devices{Devices: []apiv1.Device{{ID: "GPU-a", State: "lost", Reason: "gone", Users: []apiv1.User{{Namespace: "ns", Pod: "p", Container: "c"}}}}},
		Events: []apiv1.Event{{Kind: "xid", Time: start.Add(1500 * time.Millisecond), Device: "GPU-a", Text: "XID 79"}},
	}}
	series := func(id field.ID, buffered bool, pairs ...float64) {
		s := recorder.Series{Series: history.Series{Device: "GPU-a", Field: id, Buffered: buffered}}
		for i := 0; i < len(pairs); i += 2 {
			s.Times, s.Values = append(s.Times, start.UnixMilli()+int64(pairs[i])), append(s.Values, pairs[i+1])
		}
		r.Series = append(r.Series, s)
	}
	blank := math.NaN()
	series(155, false, 0, 100, 1000, blank, 2000, 300.5, 3000, 400)
	series(155, true, 500, 99)
	series(field.XIDErrors, false, 2000, 79, 3000, 31)
	series(field.XIDEvent, false, 1500, 79, 3000, 31)
	series(60000, false, 0, 1) // of a later version
	return r
}

func TestTracks(t *testing.T) {
	r := recordingOf(t)
	tracks := tracksOf(r)
	if len(tracks) != 1 || len(tracks[0].source.Columns) != 3 {
		t.Fatalf("%d tracks: %+v", len(tracks), tracks)
	}
	var got []string
	for i, at := range tracks[0].times {
		got = append(got, fmt.Sprint(at-r.From.UnixMilli(), tracks[0].cells[i]))
	}
	want := []string{"0 [100 NaN NaN]", "1000 [NaN NaN NaN]", "2000 [300.5 79 79]", "3000 [400 31 31]"}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

func TestReplayAdvancesAndBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recordingOf(t)
		p := newReplay(r, "v1")
		p.seek(1200 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.run(ctx) }()
		f := func(after time.Duration, state, power, xid string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			page := string(p.Page(exposition.Text, false))
			d := p.api.Devices()
			if len(d.Devices) != 1 || d.Devices[0].State != state || d.Recording != "x.jsonl.zst" || !d.Time.Equal(p.now().UTC().Truncate(time.Millisecond)) {
				t.Errorf("at %v: %+v", p.now().Sub(r.From), d)
			}
			if d.Devices[0].Users[0].Pod != "p" {
				t.Errorf("users: %v", d.Devices[0].Users)
			}
			for _, want := range []string{power, xid} {
				if missing := strings.TrimPrefix(want, "!"); strings.Contains(page, missing) == strings.HasPrefix(want, "!") {
					t.Errorf("at %v: want %q on\n%s", p.now().Sub(r.From), want, page)
				}
			}
		}
		const total = `DCGM_EXP_XID_ERRORS_TOTAL{gpu="0",UUID="",pci_bus_id="",device="",modelName="",hostname="node",xid="79",container="c",namespace="ns",pod="p"} `
		f(0, "up", "!DCGM_FI_DEV_POWER_USAGE{", "!"+total+"1")
		f(900*time.Millisecond, "up", `pod="p"} 300.5`, total+"1")
		f(time.Second, "up", `pod="p"} 400`, `err_code="31"`)
		f(6*time.Second, "lost", `pod="p"} 400`, total+"1") // --stale-after is longer
		f(2*time.Second, "lost", "warpgauge_replay_time_seconds", "")
		if got := p.now(); !got.Equal(r.Until) {
			t.Errorf("the time at the end is %v", got)
		}
		f(1500*time.Millisecond, "up", `pod="p"} 100`, "!"+total+"1")
		set := func(method, query string, code int, want string) {
			t.Helper()
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest(method, replayPath+query, nil))
			if w.Code != code || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s %s: %d %s", method, query, w.Code, w.Body)
			}
		}
		set("POST", "?at=2500ms", 200, `{"from":"2000-01-01T00:00:00Z","until":"2000-01-01T00:00:10Z","time":"2000-01-01T00:00:02.5Z"}`)
		f(0, "up", `pod="p"} 300.5`, total+"1")
		f(time.Second, "up", `pod="p"} 400`, `err_code="31"`)
		set("GET", "", 200, `"time":"2000-01-01T00:00:03.5Z"`)
		set("POST", "?at=10s", 400, "less than 10s")
		set("POST", "", 400, "less than 10s")
		cancel()
		must(t, <-ended)
	})
}

func TestReplaysHistoryEqualsTheRecording(t *testing.T) {
	r := recordingOf(t)
	h := newHistory(r)
	all := h.Series(history.Match{})
	if len(all) != len(r.Series) {
		t.Fatalf("%d series, want %d", len(all), len(r.Series))
	}
	for i, s := range all {
		n := 0
		for at, v := range h.Samples(s, math.MinInt64, math.MaxInt64) {
			if want := r.Series[i]; want.Times[n] != at || math.Float64bits(want.Values[n]) != math.Float64bits(v) {
				t.Errorf("series %d: %v at %d", i, v, at)
			}
			n++
		}
		if n != len(r.Series[i].Times) {
			t.Errorf("series %d: %d samples", i, n)
		}
	}
}

func TestExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which begins at 946684800
		r := recordingOf(t)
		var b bytes.Buffer
		must(t, exportOpenMetrics(&b, r))
		const labels = `{gpu="0",UUID="",pci_bus_id="",device="",modelName="",hostname="node",`
		const pod = `container="c",namespace="ns",pod="p"}`
		want := `# HELP DCGM_FI_DEV_POWER_USAGE Power
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE` + labels + pod + ` 100 946684800.000
DCGM_FI_DEV_POWER_USAGE` + labels + pod + ` 300.5 946684802.000
DCGM_FI_DEV_POWER_USAGE` + labels + pod + ` 400 946684803.000
# HELP DCGM_FI_DEV_XID_ERRORS XID
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS` + labels + `container="c",err_code="79",err_msg="` + field.XIDText(79) + `",namespace="ns",pod="p"} 79 946684802.000
DCGM_FI_DEV_XID_ERRORS` + labels + `container="c",err_code="31",err_msg="` + field.XIDText(31) + `",namespace="ns",pod="p"} 31 946684803.000
# EOF
`
		if got := b.String(); got != want {
			t.Errorf("OpenMetrics:\n%s\nwant\n%s", got, want)
		}
		b.Reset()
		must(t, exportCSV(&b, r))
		for _, line := range []string{
			"2000-01-01T00:00:01.000Z,0,GPU-a,DCGM_FI_DEV_POWER_USAGE,,W,,false\n", "2000-01-01T00:00:02.000Z,0,GPU-a,DCGM_FI_DEV_POWER_USAGE,,W,300.5,false\n",
			"2000-01-01T00:00:00.500Z,0,GPU-a,DCGM_FI_DEV_POWER_USAGE,,W,99,true\n", "2000-01-01T00:00:00.000Z,0,GPU-a,60000,,,1,false\n",
		} {
			if !strings.Contains(b.String(), line) {
				t.Errorf("CSV without %q:\n%s", line, b.String())
			}
		}
	})
}

func TestCommandsOfRecordingsRefuse(t *testing.T) {
	dir := t.TempDir()
	text := tempFile(t, "page.txt", "DCGM_FI_DEV_POWER_USAGE 1\n")
	there := tempFile(t, "there", "")
	f := func(want string, args ...string) {
		t.Helper()
		execute(t, environment{}, args...).want(t, 1, want)
	}
	f("export takes one file", "export")
	f("replay takes one file", "replay", "a", "b")
	f("no such file", "replay", filepath.Join(dir, "x"))
	f("is no file", "export", dir)
	f("the file is not one", "export", text)
	f("the file is not one", "replay", text)
	f("the file is not whole", "replay", there)
	f(`--format is "xml"`, "export", "--format=xml", text)
	if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
		t.Error("a file was made")
	}
}

// replayed answers a path of a replay into out.
func replayed(t *testing.T, r *recorder.Recording, path string, out any) {
	t.Helper()
	r.From = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r.Until = r.From.Add(time.Minute)
	p := newReplay(r, "v1")
	p.seek(0)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, api.Prefix+path, nil))
	if err := json.Unmarshal(w.Body.Bytes(), out); err != nil || w.Code != http.StatusOK {
		t.Errorf("%s: %d, %v: %s", path, w.Code, err, w.Body)
	}
}

// TestReplayWithoutDevices: an operator can record a node whose GPUs have all gone.
func TestReplayWithoutDevices(t *testing.T) {
	for _, path := range []string{"devices", "fields", "health", "list", "events"} {
		var answer map[string]any
		replayed(t, &recorder.Recording{}, path, &answer)
	}
}

// TestReplayOfAReload: fields of the list before and of the one after it are there.
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
	replayed(t, &recorder.Recording{Fields: []field.List{list(before), list(before, after)}}, "list", &got)
	if len(got.Fields) != 2 || got.Fields[1].Name != after.Name {
		t.Errorf("fields %v", got.Fields)
	}
}
