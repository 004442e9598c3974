package api

import (
	"compress/gzip"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"
)

func TestErrorsSayWhatToDo(t *testing.T) {
	w := eventful(t)
	a := New(w.options)
	id := w.gpus[0].Devices[0].ID
	f := func(target string, code int, want string) {
		t.Helper()
		got := get(t, a, Prefix+target)
		testkit.ErrorIf(t, got.Code != code || !strings.Contains(detailOf(t, got), want), "%s answers %d %s, want %d and %q", target, got.Code, got.Body, code, want)
	}
	f("nothing", 404, "/api/v1/devices")
	f("devices/", 404, "/api/v1/devices")
	f("devices?device=x", 400, `unknown parameter "device": this path takes none`)
	f("fields?devices="+id, 400, "this path takes device, field")
	f("fields?device=GPU-x", 404, "/api/v1/devices lists all")
	f("fields?device=", 400, `give "device" a value`)
	f("fields?field=DCGM_FI_DEV_FB_USED", 404, `no field "DCGM_FI_DEV_FB_USED": /api/v1/list`) // not in the list
	f("samples?device="+id+"&field=DCGM_FI_DEV_FB_USED", 404, "/api/v1/list")
	f("fields?field=NOPE", 404, `no field "NOPE": /api/v1/list`)
	f("stream?field=NOPE&field=amd_nope", 404, `no field "NOPE": /api/v1/list`)
	f("fields?device=%zz", 400, "cannot be read")
	f("fields?"+strings.Repeat("field=a&", 300), 400, "at most 256")
	f("fields?field="+strings.Repeat("a", maxQuery), 414, "fewer devices or fields")
	f("samples?device="+id, 400, "/api/v1/list")
	f("samples?device="+id+"&device="+id+"&field=x", 400, "give it once")
	f("samples?device="+id+"&field=DCGM_FI_DEV_NOTHING", 404, "/api/v1/list")
	f("samples?device=x&field=DCGM_FI_DEV_GPU_TEMP", 404, "/api/v1/devices")
	f("samples?device="+id+"&field=DCGM_FI_DEV_GPU_TEMP&since=yesterday", 400, "15m")
	f("samples?device="+id+"&field=DCGM_FI_DEV_GPU_TEMP&since=5s&until=5s", 400, "no time in between")
	f("samples?device="+id+"&field=DCGM_FI_DEV_GPU_TEMP&points=1e9", 400, "from 1 to 5000")
	f("events?since=-5s", 400, "before now such as 90s")
	f("events?limit=0", 400, "from 1 to 2000")
	f("stream?interval=0.01", 400, "from 0.1 to 10")
	f("stream?interval=NaN", 400, "from 0.1 to 10")
	f("stream?device=x", 404, "/api/v1/devices")
	f("recordings/none", 404, "/api/v1/recordings")
	f("recordings/..%2Fx", 404, "/api/v1/recordings")
	f("recordings/.x", 404, "/api/v1/recordings")

	w.options.Past, w.options.Lists = new(rows.Past), nil
	none := New(w.options)
	for _, target := range []string{"samples?device=x&field=y", "list", "recordings", "recordings/x"} {
		testkit.Equal(t, "status of "+target+" without a source", http.StatusNotFound, get(t, none, Prefix+target).Code)
	}
}

// wide is a history with len(wide) series per device and field.
type wide []rows.Series

func (w wide) Series(string, field.ID) []rows.Series { return w }
func (wide) Samples(rows.Series, int64, int64) iter.Seq2[int64, float64] {
	return func(yield func(int64, float64) bool) {
		for at := int64(0); at < maxSamples && yield(at, 0); at++ {
		}
	}
}

// TestSamplesAreBounded: an answer has limited series, and limited points over all series.
func TestSamplesAreBounded(t *testing.T) {
	f := func(series int, points string, code int, want string) {
		t.Helper()
		w := newWorld(t, 1, 0)
		w.past.History = make(wide, series)
		got := get(t, New(w.options), fmt.Sprintf("%ssamples?device=x&field=DCGM_FI_DEV_GPU_TEMP%s", Prefix, points))
		if got.Code != code || !strings.Contains(got.Body.String(), want) {
			t.Errorf("%d series with %s: %d %.200s, want %d and %q", series, points, got.Code, got.Body, code, want)
		}
	}
	f(maxSeries, "&points=1", 200, `"series"`)
	f(maxSeries+1, "&points=1", 400, "the most is 256")
	f(maxSamples/maxPoints, fmt.Sprint("&points=", maxPoints), 200, `"series"`)
	f(maxSamples/maxPoints+1, fmt.Sprint("&points=", maxPoints), 400, "ask for fewer points")
	f(1, "", 200, fmt.Sprint(maxSamples-1))
	f(2, "", 400, "ask for a shorter time")
}

func TestPoints(t *testing.T) {
	f := func(from, until int64, n int, step int64, want ...any) {
		t.Helper()
		blank := math.NaN()
		values := []float64{4, 8, blank, blank, 1, blank, 3}
		q, got := &apiv1.Samples{From: from, Until: until}, apiv1.SampledSeries{}
		addPoints(&got, func(yield func(int64, float64) bool) {
			for i, v := range values {
				if at := int64(i+1) * 1000; at >= from && at < until && !yield(at, v) {
					return
				}
			}
		}, q, n, field.NewScale(1))
		all := []any{}
		for i, at := range got.Times {
			all = append(all, at)
			for _, v := range []*float64{got.Min[i], got.Max[i], got.Mean[i]} {
				if v != nil {
					all = append(all, *v)
				}
			}
		}
		testkit.ErrorIf(t, !slices.Equal(all, want) || q.Step != step, "%d points from %d to %d: %v, step %d; want %v, %d", n, from, until, all, q.Step, want, step)
	}
	f(1000, 9000, 4, 2000, int64(1000), 4.0, 8.0, 6.0, int64(3000), int64(5000), 1.0, 1.0, 1.0, int64(7000), 3.0, 3.0, 3.0)
	f(1000, 1007, 100, 1, int64(1000), 4.0, 4.0, 4.0)
}

func TestMethodsAndHeaders(t *testing.T) {
	a := New(newWorld(t, 1, 0).options)
	header := get(t, a, Prefix+"devices").Header()
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store", "Vary": "Accept-Encoding",
		"Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "", "Content-Encoding": "",
	} {
		testkit.Equal(t, name, want, header.Get(name))
	}
	for _, path := range a.Paths() {
		path = strings.Replace(path, "{name}", "x", 1)
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			got := send(t, a, httptest.NewRequest(method, path, nil))
			if got.Code != http.StatusMethodNotAllowed || got.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s answers %d, Allow: %q", method, path, got.Code, got.Header().Get("Allow"))
			}
		}
		testkit.Equal(t, "body of HEAD "+path, "", send(t, a, httptest.NewRequest(http.MethodHead, path, nil)).Body.String())
	}
}

func TestPagesOfOtherSitesGetNothing(t *testing.T) {
	w := newWorld(t, 1, 0)
	a := New(w.options)
	f := func(site, mode string, code int) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, Prefix+"stream", nil)
		r.Header.Set("Sec-Fetch-Site", site)
		r.Header.Set("Sec-Fetch-Mode", mode)
		if code == http.StatusOK {
			r.Method = http.MethodHead
		}
		testkit.Equal(t, fmt.Sprintf("status with Sec-Fetch-Site: %s, Sec-Fetch-Mode: %s", site, mode), code, send(t, a, r).Code)
	}
	f("cross-site", "cors", http.StatusForbidden)
	f("cross-site", "no-cors", http.StatusForbidden)
	f("cross-site", "navigate", http.StatusOK) // a link
	f("same-origin", "cors", http.StatusOK)
	f("none", "navigate", http.StatusOK)
}

func TestCompression(t *testing.T) {
	w := newWorld(t, 8, 0)
	a := New(w.options)
	plain := get(t, a, Prefix+"fields").Body.String()
	r := httptest.NewRequest(http.MethodGet, Prefix+"fields", nil)
	r.Header.Set("Accept-Encoding", "br, gzip")
	got := send(t, a, r)
	if got.Header().Get("Content-Encoding") != "gzip" || got.Body.Len() > len(plain)/5 {
		t.Fatalf("%d bytes, Content-Encoding: %q; plain %d", got.Body.Len(), got.Header().Get("Content-Encoding"), len(plain))
	}
	z, err := gzip.NewReader(got.Body)
	must(t, err)
	text, err := io.ReadAll(z)
	testkit.ErrorIf(t, err != nil || string(text) != plain, "decompressed it differs: %v", err)
}

// Series that have the names of another exporter in place of the list's are no metric of the list.
func TestMetricOfADialect(t *testing.T) {
	w := newWorld(t, 2, 0)
	w.gpus[0].Fields.Dialect, w.gpus[0].Devices[0].Texts = &field.Dialect{InPlace: true}, []collector.Label{{Name: "x"}}
	all := testkit.Get(New(w.options).Fields(nil, []string{"DCGM_FI_DEV_GPU_TEMP"}))(t)
	a, b := all.Devices[0].Fields[0].Metric, all.Devices[1].Fields[0].Metric
	testkit.ErrorIf(t, a != "" || b != "DCGM_FI_DEV_GPU_TEMP", "metrics are %q and %q", a, b)
}

func TestNamesAreLeftOut(t *testing.T) {
	w := newWorld(t, 1, 0)
	w.options.People = nil
	text := get(t, New(w.options), Prefix+"devices").Body.String()
	testkit.Lacks(t, "answer", text, "train-0", "python3", "4711", `"users"`, `"processes"`)
}

// TestOfTwoCollectorsTheOneThatServesCounts simulates a failover: DCGM is stalled, and NVML's source is on the board. What NVML
// could not read of the GPU is the reason of its state.
func TestOfTwoCollectorsTheOneThatServesCounts(t *testing.T) {
	w := newWorld(t, 1, 0)
	gpu := w.gpus[0].Devices[0]
	gpu.Unread = "cannot read all its MIG instances: no permission"
	w.gpus[0].Collector = "nvml"
	w.states = []session.CollectorStatus{
		{Name: "dcgm", Up: true, Devices: []session.DeviceStatus{{Device: gpu, State: session.Stalled, Cause: session.CauseFrozen, Reason: "frozen"}}},
		{Name: "nvml", Up: true, Devices: []session.DeviceStatus{{Device: gpu, State: session.Up}}},
	}
	var board events.Board
	gone := events.Verdict{Device: collector.Device{ID: "pci:0000:3b:00.0", Level: field.GPU}, State: events.Failed, Reason: "missing", Text: "it is missing", Action: events.ActionReboot}
	board.Store(&events.Snapshot{Version: 1, Verdicts: []events.Verdict{{Device: gpu}, gone}})
	w.options.Verdicts = &board
	got := New(w.options).Devices()
	if len(got.Devices) != 2 || got.Devices[0].Collector != "nvml" || got.Devices[0].State != "up" || got.Devices[0].Reason != gpu.Unread || got.Devices[0].Status.Word != "up" || got.Devices[0].Status.Why != gpu.Unread {
		t.Errorf("got %+v", got.Devices)
	}
	if d := got.Devices[1]; d.ID != "pci:0000:3b:00.0" || d.State != "absent" || d.Status != (apiv1.Status{Word: "failed", Why: "it is missing; action: reboot"}) {
		t.Errorf("a device that only a verdict knows is %+v", d)
	}
}

// TestTooMuchIsRefused: the API refuses an answer with too many series and suggests an alternative.
func TestTooMuchIsRefused(t *testing.T) {
	w := newWorld(t, 1, 0)
	s := w.gpus[0].Source
	for range maxFields {
		s.Columns = append(s.Columns, collector.Column{Field: 150})
	}
	s.Ring, w.gpus[0].Row = ring.Make(2, len(s.Devices), len(s.Columns)), make([]float64, len(s.Columns))
	w.gpus[0].Tick(w.now)
	a := New(w.options)
	for _, target := range []string{"fields", "stream"} {
		got := get(t, a, Prefix+target)
		testkit.ErrorIf(t, got.Code != http.StatusBadRequest || !strings.Contains(detailOf(t, got), "field="), "%s answers %d %.200s", target, got.Code, got.Body)
	}
}

func TestPattern(t *testing.T) {
	f := func(asked, text string, want bool) {
		t.Helper()
		testkit.Equal(t, fmt.Sprintf("%q matches %q", asked, text), want, pattern(asked).MatchString(text))
	}
	f("", "", true)
	f("a*b*c", "axxbyyc", true)
	f("a*b*c", "axxyyc", false)
	f("ab*bc", "abc", false)
	f("a.c[", "abc[", false)
	f("\xff*", "a", false)
	f("*_UTIL", "DCGM_FI_DEV_GPU_UTIL", true)
	f("DCGM_*_PROF_*", "DCGM_FI_DEV_GPU_UTIL", false)
}

// FuzzQuery: no query panics, and every answer is JSON that the client's type can decode.
func FuzzQuery(f *testing.F) {
	f.Add("fields", "field=*&device=x")
	f.Add("samples", "device=GPU-00000000-7c2f-0e33-89ac-dedf8d7bb611&field=DCGM_FI_DEV_GPU_TEMP&since=1h&points=3")
	f.Add("samples", "device=GPU-00000000-7c2f-0e33-89ac-dedf8d7bb611&field=DCGM_FI_DEV_GPU_TEMP&since=0&until=2026-11-22T17:00:00Z")
	f.Add("events", "since=-5m&limit=3")
	f.Add("stream", "interval=1e-1&field=a*b")
	f.Add("recordings/x", "")
	f.Add("list", "a=%00")
	w := eventful(f)
	a := New(w.options)
	f.Fuzz(func(t *testing.T, path, query string) {
		u := &url.URL{Path: Prefix + path, RawQuery: query}
		r := (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}, RequestURI: u.RequestURI()}).WithContext(t.Context())
		if strings.HasPrefix(path, "stream") {
			r.Method = http.MethodHead // a GET of a stream would not end
		}
		got := httptest.NewRecorder()
		a.ServeHTTP(got, r)
		checkAnswer(t, a, r, got)
	})
}

func TestWindowsThatAreNumbers(t *testing.T) {
	f := func(id field.ID, collector string, want time.Duration) {
		t.Helper()
		d, _ := field.ByID(id)
		testkit.Equal(t, fmt.Sprintf("window of %s by %s", d.Name, collector), want, windowOf(&field.Field{Desc: d, Scale: 1}, collector, 100*time.Millisecond))
	}
	f(1001, "nvml", 100*time.Millisecond)
	f(1001, "dcgm", 100*time.Millisecond)
	f(203, "nvml", 0) // 1/6 s to 1 s
	f(150, "nvml", 0)
}
