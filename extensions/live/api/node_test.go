package api

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/health"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/recorder/history"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"
)

var must = testkit.Must

// fewRules limits the rules, so that a new rule does not change the API's golden answers.
var fewRules = slices.DeleteFunc(health.Table(), func(r health.Rule) bool {
	return !slices.Contains([]string{"lost", "stalled", "released", "starting", "row_remap_pending", "row_remap_failed"}, r.Name)
})

// start is the initial time of the simulated node.
var start = time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)

// world is a simulated node whose clock the test moves.
type world struct {
	now     time.Time
	clock   func() time.Time // now, or a synctest bubble's clock
	board   view.Board
	gpus    []*viewtest.Feed
	mu      sync.Mutex // guards states
	states  []session.CollectorStatus
	bus     events.Bus
	since   *exporter.States
	log     *Log
	list    field.List
	history *history.History
	past    rows.Past
	options Options
}

// Load returns the verdicts on the present rows.
func (w *world) Load() *events.Snapshot {
	watch := health.New(health.Options{Rows: rows.New(&w.board, nil), Status: w.Status, Rules: fewRules, Logger: zap.NewNop()})
	watch.Sync(w.clock())
	return watch.Board().Load()
}

func (*world) Vendor(name string) *field.Vendor {
	return map[string]*field.Vendor{"rocm": field.VendorAMD}[name]
}
func (*world) Interval(r field.Reading) time.Duration { return session.Options{}.IntervalOf(r) }

// people uses the first GPU.
type people struct{}

func (people) Users(d *collector.Device) []apiv1.User {
	if d.GPU != "0" {
		return nil
	}
	return []apiv1.User{{Namespace: "ml", Pod: "train-0", PodUID: "u-1", Container: "main"}, {Job: "4711"}}
}

func (people) Processes(d *collector.Device) []apiv1.Process {
	if d.GPU != "0" {
		return nil
	}
	return []apiv1.Process{{PID: 42, Name: "python3", Memory: Number(1 << 30), Busy: Number(97), Pod: "ml/train-0/main"}}
}

func (people) Viewed() {}

func listOf(t testing.TB, csv string) field.List {
	t.Helper()
	list, problems, err := field.Parse(strings.NewReader(csv), field.ParseOptions{})
	testkit.FatalIf(t, err != nil, "parse the list: %v %v", err, problems)
	return list
}

const testList = `DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DEV_POWER_USAGE, gauge, Power.
DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, Clock.
DCGM_FI_DEV_XID_ERRORS, gauge, Last XID.
DCGM_FI_DEV_ROW_REMAP_PENDING, gauge, Pending.
DCGM_FI_DEV_MEMORY_TEMP, gauge, Temperature of the memory.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs.
DCGM_FI_DRIVER_VERSION, label, Driver.
`

// newWorld returns a node with n GPUs, each with so many links.
func newWorld(t testing.TB, n, links int) *world {
	t.Helper()
	w := &world{now: start, list: listOf(t, testList)}
	w.clock = func() time.Time { return w.now }
	clock := func() time.Time { return w.clock() }
	w.log, w.since = NewLog(), exporter.NewStates(&w.bus, clock)
	w.log.Subscribe(&w.bus)
	all := session.CollectorStatus{Name: "fake", Up: true, Since: start.Add(-time.Minute)}
	v := &view.View{Version: 1}
	for i := range n {
		f := newGPU(w.list, i, links)
		for _, d := range f.Devices {
			all.Devices = append(all.Devices, session.DeviceStatus{Device: d, State: session.Up, LastSample: start})
		}
		w.gpus = append(w.gpus, f)
		v.Sources = append(v.Sources, f.Source)
	}
	w.board.Store(v)
	w.states = []session.CollectorStatus{all, {Name: "rocm", Cause: session.CauseNotLoaded, Reason: "no AMD GPU"}}
	w.history = history.New(history.Options{Rows: rows.New(&w.board, nil)})
	w.since.Update(v, w.states)
	w.past.History = w.history
	w.past.MaxAge = history.DefaultAge
	w.options = Options{
		Hostname: "node-1", Version: "1.2.3", States: w.since, Board: &w.board, Node: w, Lists: serving{w.list}, Verdicts: w, People: people{},
		NotReady: func() []string { return nil }, Events: w.log, Past: &w.past, Download: true, Now: clock, StaleAfter: 30 * time.Second, Logger: zap.NewNop(),
	}
	w.tick(time.Second)
	return w
}

func newGPU(list field.List, i, links int) *viewtest.Feed {
	uuid := fmt.Sprintf("GPU-%08d-7c2f-0e33-89ac-dedf8d7bb611", i)
	gpu := collector.Device{
		ID: uuid, Level: field.GPU, GPU: fmt.Sprint(i), UUID: uuid, PCIBusID: fmt.Sprintf("00000000:%02X:00.0", i), Node: fmt.Sprintf("nvidia%d", i),
		Model: "NVIDIA H100 80GB HBM3 (simulated)", Facts: []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "550.54.15"}},
	}
	s := &view.Source{Collector: "fake", Fields: list, Interval: time.Second, Devices: []collector.Device{gpu}}
	for l := range links {
		s.Devices = append(s.Devices, collector.Device{
			ID: fmt.Sprintf("%s/link%d", uuid, l), Parent: uuid, Level: field.Link, GPU: gpu.GPU, UUID: uuid, PCIBusID: gpu.PCIBusID,
			Node: gpu.Node, Model: gpu.Model, Labels: []collector.Label{{Name: "nvlink", Value: fmt.Sprint(l)}},
		})
	}
	for _, id := range []field.ID{150, 155, 100, field.XIDErrors, 396} {
		s.Columns = append(s.Columns, collector.Column{Field: id})
	}
	s.Explanations = []collector.Explanation{{Reason: collector.ReasonUnsupported, Detail: "the board has no sensor"}}
	s.Absent = []collector.Absence{{Field: 140}}
	f := viewtest.New(s, 64)
	f.Row = []float64{60 + float64(i), 312.5, 1980, 0, 0}
	return f
}

// tick moves the clock and samples every GPU.
func (w *world) tick(d time.Duration) {
	w.now = w.now.Add(d)
	w.sample()
}

// sample samples every GPU now.
func (w *world) sample() {
	now := w.clock()
	for _, f := range w.gpus {
		f.Tick(now)
	}
	w.mu.Lock()
	for i := range w.states {
		for j := range w.states[i].Devices {
			w.states[i].Devices[j].LastSample = now
		}
	}
	w.mu.Unlock()
	w.history.Sync(now)
}

// Status returns a copy of the states.
func (w *world) Status() []session.CollectorStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Clone(w.states)
	for i := range out {
		out[i].Devices = slices.Clone(out[i].Devices)
	}
	return out
}

// set changes the state of a device of the first collector.
func (w *world) set(device int, state session.State, cause session.Cause, reason string) {
	w.mu.Lock()
	d := &w.states[0].Devices[device]
	d.State, d.Cause, d.Reason = state, cause, reason
	w.mu.Unlock()
	w.since.Update(w.board.Load(), w.Status())
}

// get sends a request and makes the checks common to all answers.
func get(t testing.TB, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	return send(t, h, httptest.NewRequest(http.MethodGet, target, nil))
}

func send(t testing.TB, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	testkit.Equal(t, fmt.Sprintf("%s %s: X-Content-Type-Options", r.Method, r.URL), "nosniff", w.Header().Get("X-Content-Type-Options"))
	if w.Code != http.StatusOK {
		var p apiv1.Problem
		err := json.Unmarshal(w.Body.Bytes(), &p)
		if r.Method != http.MethodHead && (err != nil || p.Status != w.Code || p.Title == "" || p.Detail == "" || p.Type != "about:blank") ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s answers %d with %q, no problem: %v", r.Method, r.URL, w.Code, w.Body, err)
		}
	}
	return w
}

func detailOf(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	var p apiv1.Problem
	must(t, json.Unmarshal(w.Body.Bytes(), &p))
	return p.Detail
}

// eventful returns a node with events of every kind, recordings and verdicts.
func eventful(t testing.TB) *world {
	w := newWorld(t, 2, 1)
	w.gpus[0].Row[3], w.gpus[1].Row[4] = 79, 1
	w.bus.Publish(events.Event{Kind: events.XID, Device: &w.gpus[0].Devices[0], Code: 79, Time: w.now, Source: "fake"})
	w.bus.Publish(events.Event{Kind: events.Clock, Device: &w.gpus[1].Devices[0], Reason: "hw_thermal", Time: w.now})
	w.tick(time.Second)
	w.gpus[1].Row[1] = math.NaN()
	w.tick(time.Second)
	w.set(0, session.Lost, session.CauseLost, "GPU is lost")
	w.past.Recordings = recorder{}
	return w
}

func TestGolden(t *testing.T) {
	w := eventful(t)
	a := New(w.options)
	id := w.gpus[0].Devices[0].ID
	for name, target := range map[string]string{
		"devices": "devices", "fields": "fields", "health": "health", "list": "list", "events": "events", "recordings": "recordings",
		"samples": "samples?device=" + id + "&field=DCGM_FI_DEV_SM_CLOCK_HERTZ", "points": "samples?device=" + id + "&field=DCGM_FI_DEV_GPU_TEMP&since=4s&points=2",
		"problem": "samples?device=" + id,
	} {
		var indented any
		must(t, json.Unmarshal(get(t, a, Prefix+target).Body.Bytes(), &indented))
		got := testkit.Get(json.MarshalIndent(indented, "", "  "))(t)
		golden.Check(t, filepath.Join("testdata", name+".json"), string(got)+"\n")
	}
}

// recorder has one recording.
type recorder struct{}

const recorded = "20261122T165000Z-xid.wgr"

func (recorder) Recordings() []rows.Recording {
	return []rows.Recording{
		{Name: recorded, Time: start, Cause: "xid", Device: "GPU-0", From: start.Add(-time.Minute), Until: start.Add(30 * time.Second), Bytes: 7},
		{Name: "older", Time: start.Add(-time.Hour), Cause: "operator", From: start, Until: start, Bytes: 1},
	}
}

func (recorder) Open(name string) (io.ReadSeekCloser, error) {
	if name != recorded {
		return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	return nopCloser{strings.NewReader("content")}, nil
}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

// serving implements Lists.
type serving struct{ field.List }

func (s serving) Status() lists.Status {
	return lists.Status{InService: lists.List{Origin: "counters.csv", Hash: "abc", Fields: s.List}, Applied: start}
}
