package page

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/fake"
	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/recorder/history"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

var must = testkit.Must

// node serves the page and the API with the GPUs of the collector fake. It has a past of 15 minutes. Its time may run
// faster, so it samples by itself.
type node struct {
	profile  string
	gpus     int
	faults   string   // of fake, in YAML; their times count from 15 minutes ago
	fields   []string // of the list
	speed    float64
	proxied  bool             // while the node is down, a proxy answers
	replayed string           // name of the recording, which has no new rows
	hostile  string           // replaces the names that others choose
	verdicts []events.Verdict // on the first GPUs

	began             time.Time
	server            *httptest.Server
	down              atomic.Bool
	requests, streams atomic.Int64
	world             *fake.World
	board             view.Board
	history           *history.History
	log               *api.Log

	mu      sync.Mutex // guards the following fields
	sampled time.Time
	list    field.List
	sources []collector.Source
	status  session.CollectorStatus
}

// serve starts the node below a path prefix and returns its address, which ends with "/".
func (n *node) serve(tb testing.TB, prefix string) string {
	tb.Helper()
	n.began, n.log = time.Now().Truncate(time.Second), api.NewLog()
	n.sampled = n.began.Add(-history.DefaultAge)
	o := fake.Options{Profile: n.profile, Devices: n.gpus, Now: func() time.Time { return n.sampled }}
	var err error
	if o.Spec, err = fake.ParseSpec(strings.NewReader(n.faults)); err == nil {
		n.world, err = fake.NewWorld(o)
	}
	must(tb, err)
	n.history = history.New(history.Options{Rows: rows.New(&n.board, nil)})
	n.open(tb, n.fields)
	n.sample(n.began)
	states, gpu := exporter.NewStates(nil, n.now), &n.status.Devices[0].Device
	states.Update(n.board.Load(), n.Status())
	for i, e := range []events.Event{
		{Kind: events.Reload, Text: cmp.Or(n.hostile, "field list reloaded: 38 fields")},
		{Kind: events.XID, Device: gpu, Code: 31},
		{Kind: events.Clock, Device: gpu, Reason: "sw_power_cap"},
	} {
		e.Time = n.began.Add(time.Duration(i*80-260) * time.Second)
		n.log.Add(&e)
	}
	board := new(events.Board)
	for i := range n.verdicts {
		n.verdicts[i].Device = n.status.Devices[i].Device
	}
	board.Store(&events.Snapshot{Verdicts: n.verdicts})
	answers := api.New(api.Options{
		Hostname: "gpu-node-17", Version: "2.0.0-test", Recording: n.replayed, Board: &n.board, Node: n, States: states,
		Verdicts: board, NotReady: func() []string { return nil }, Lists: served{n}, People: n, Events: n.log,
		Past: &rows.Past{History: n.history, MaxAge: history.DefaultAge, Recordings: n}, Download: true,
		StaleAfter: time.Hour, Now: n.now, Logger: zap.NewNop(),
	})
	mux := http.NewServeMux()
	mux.Handle("/", Handler(Options{Version: "2.0.0-test", Live: true}))
	mux.Handle("/test/", http.StripPrefix("/test/", http.FileServer(http.Dir("testdata"))))
	mux.Handle(api.Prefix, answers)
	n.server = httptest.NewServer(http.StripPrefix(prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.requests.Add(1)
		switch {
		case n.down.Load() && n.proxied:
			http.Error(w, "bad gateway", http.StatusBadGateway)
			return
		case n.down.Load():
			panic(http.ErrAbortHandler) // closes the connection without an answer
		}
		if r.URL.Path == api.Prefix+"stream" {
			n.streams.Add(1)
			defer n.streams.Add(-1)
		}
		mux.ServeHTTP(w, r)
	})))
	var sampler sync.WaitGroup
	sampler.Go(func() {
		for tick := time.Tick(100 * time.Millisecond); tb.Context().Err() == nil; <-tick {
			n.sample(n.now())
		}
	})
	tb.Cleanup(func() {
		n.fail(true)
		answers.Close()
		n.server.Close()
		sampler.Wait()
	})
	return n.server.URL + prefix + "/"
}

// fail ends or begins the node's answers. It returns the number of requests so far.
func (n *node) fail(down bool) int64 {
	n.down.Store(down)
	if down {
		n.server.CloseClientConnections()
	}
	return n.requests.Load()
}

// open binds the GPUs to a list of fields.
func (n *node) open(tb testing.TB, fields []string) {
	tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	csv := strings.Join(fields, ", gauge, h\n") + ", gauge, h\nDCGM_FI_DRIVER_VERSION, label, h\n"
	list, problems, err := field.Parse(strings.NewReader(csv), field.ParseOptions{Strict: true})
	if err == nil {
		n.sources, err = n.world.Collector().Open(tb.Context(), list)
	}
	if err != nil {
		tb.Fatal(err, problems)
	}
	n.list, n.status = list, session.CollectorStatus{Name: "nvml", Up: true, Since: n.began.Add(-time.Hour)}
	v := &view.View{Version: n.board.Load().Version + 1}
	for _, s := range n.sources {
		devices, why := slices.Clone(s.Devices()), s.(collector.Explainer)
		for i := range devices {
			if n.hostile != "" {
				devices[i].Model, devices[i].Facts = n.hostile, []collector.Label{{Name: n.hostile, Value: n.hostile}}
			}
			n.status.Devices = append(n.status.Devices, session.DeviceStatus{Device: devices[i], State: session.Up})
		}
		v.Sources = append(v.Sources, &view.Source{
			Collector: n.status.Name, Fields: list, Interval: time.Second, Devices: devices, Columns: s.Columns(),
			Explanations: why.Explanations(), Absent: why.Absent(), Ring: ring.Make(4096, len(devices), len(s.Columns())),
		})
	}
	n.board.Store(v)
	n.history.Sync(n.sampled)
}

// now returns the time of the node. A recording has one time.
func (n *node) now() time.Time {
	if n.replayed != "" {
		return n.began
	}
	return n.began.Add(time.Duration(float64(time.Since(n.began)) * cmp.Or(n.speed, 1)))
}

// sample adds a row for each second up to now.
func (n *node) sample(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for !n.sampled.Add(time.Second).After(now) {
		n.sampled = n.sampled.Add(time.Second)
		left := n.status.Devices
		for i, to := range n.board.Load().Sources {
			devices, row := left[:len(to.Devices)], slices.Repeat([]float64{math.NaN()}, len(to.Columns))
			left = left[len(devices):]
			err := n.sources[i].Sample(row, slices.Repeat([]bool{true}, len(row)))
			if err == nil {
				t := n.sampled.UnixNano()
				to.Ring.Append(t, slices.Repeat([]int64{t}, len(devices)), row)
			}
			for j := range devices {
				switch d := &devices[j]; {
				case errors.Is(err, collector.ErrDeviceLost):
					d.State, d.Cause, d.Reason = session.Lost, session.CauseLost, err.Error()
				case err != nil:
					d.State, d.Cause, d.Reason = session.Stalled, session.CauseError, cmp.Or(n.hostile, err.Error())
				default:
					d.LastSample = n.sampled
				}
			}
		}
	}
	n.history.Sync(n.sampled)
}

// Status implements api.Node.
func (n *node) Status() []session.CollectorStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.status
	out.Devices = slices.Clone(out.Devices)
	return []session.CollectorStatus{out}
}

// Interval implements api.Node.
func (*node) Vendor(string) *field.Vendor          { return nil }
func (*node) Interval(field.Reading) time.Duration { return time.Second }

// Users implements api.People. GPU 2 has no user.
func (n *node) Users(d *collector.Device) []apiv1.User {
	if d.GPU == "2" {
		return nil
	}
	name := cmp.Or(n.hostile, "training")
	return []apiv1.User{{Namespace: name, Pod: "llm-" + d.GPU, Container: cmp.Or(d.Instance.Profile, "trainer")}}
}

// Processes implements api.People.
func (n *node) Processes(d *collector.Device) []apiv1.Process {
	pod := "training/llm-" + d.GPU + "/python"
	return []apiv1.Process{{PID: 4711, Name: cmp.Or(n.hostile, "python3"), Memory: api.Number(61.5e9), Busy: api.Number(93), Pod: pod}}
}

// Viewed implements api.People.
func (*node) Viewed() {}

// Recordings implements rows.Recordings.
func (n *node) Recordings() []rows.Recording {
	r := rows.Recording{Name: "recording-20261122-174000.000-xid.om.zst", Time: n.began.Add(-3 * time.Minute), Cause: "xid", Bytes: 81_234}
	r.Device, r.From, r.Until = n.board.Load().Sources[0].Devices[0].ID, r.Time.Add(-time.Minute), r.Time.Add(30*time.Second)
	if n.hostile != "" {
		r.Name, r.Cause = "../../"+n.hostile, n.hostile
	}
	return []rows.Recording{r}
}

// Open implements rows.Recordings.
func (*node) Open(string) (io.ReadSeekCloser, error) { return nil, fs.ErrNotExist }

// served implements api.Options.Lists.
type served struct{ *node }

func (s served) Status() lists.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := lists.List{Origin: "/etc/warpgauge/counters.csv", Hash: strings.Repeat("ab", 32), Fields: s.list}
	return lists.Status{InService: in, Applied: s.began}
}

func h100(gpus int) *node {
	return &node{
		gpus: gpus,
		faults: `faults:
  - {kind: value, device: all, field: DCGM_FI_DEV_CLOCKS_EVENT_REASONS, value: 4}
  - {kind: blank, device: all, field: DCGM_FI_DEV_ENC_UTIL}
`,
		fields: []string{
			"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE",
			"DCGM_FI_DEV_BOARD_POWER_WATTS", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
			"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_SLOWDOWN_TEMP",
			"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
			"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL",
			"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_ENC_UTIL",
		},
	}
}

// mig returns a node with four GPUs in MIG mode, where only instances have a utilisation, and one that is not.
func mig() *node {
	n := h100(5)
	n.profile, n.fields = "dgx-a100-mig", append(n.fields, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
	return n
}

// amd returns a node with AMD GPUs.
func amd() *node {
	return &node{
		profile: "mi300x",
		faults: `faults:
  - {kind: value, device: all, field: amd_gpu_temperature_celsius, label: sensor=junction, value: 62}
  - {kind: value, device: all, field: amd_gpu_temperature_celsius, label: sensor=mem, value: 51}
  - {kind: value, device: all, field: amd_gpu_memory_used_bytes, label: memory=vram, value: 107374182400}
  - {kind: value, device: all, field: amd_gpu_clock_hertz, label: clock=gfx, value: 2.1e9}
  - {kind: value, device: all, field: amd_gpu_clock_hertz, label: clock=mem, value: 1.3e9}
  - {kind: value, device: all, field: amd_gpu_throttle_active, label: reason=power, value: 1}
`,
		fields: []string{
			"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_DEV_BOARD_POWER_WATTS", "DCGM_FI_DEV_POWER_MGMT_LIMIT",
			"amd_gpu_temperature_celsius", "amd_gpu_memory_used_bytes", "amd_gpu_memory_size_bytes",
			"amd_gpu_clock_hertz", "amd_gpu_throttle_active",
		},
	}
}
