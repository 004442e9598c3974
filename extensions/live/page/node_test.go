package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/field"
)

// reading is a field of the simulated node, with its value for device n at a time in seconds.
type reading struct {
	name, unit, kind string // kind of device; "" means gpu
	value            func(n int, t float64) float64
	labels           []map[string]string
}

// node answers /api/v1/ with simulated values and serves the page. Its time may run faster.
type node struct {
	interval time.Duration
	speed    float64
	began    time.Time
	fields   []reading
	proxied  bool   // while the node is down, a proxy answers
	replayed string // name of the recording, which has no new rows

	mu         sync.Mutex
	devices    []apiv1.Device
	health     []apiv1.DeviceHealth
	events     []apiv1.Event
	recordings []apiv1.Recording
	changed    chan struct{} // closed at each change
	down       bool
	streams    int
	requests   int
}

// serve starts the node below a path prefix and returns its address, which ends with "/".
func (n *node) serve(tb testing.TB, prefix string) string {
	tb.Helper()
	if n.speed == 0 {
		n.speed = 1
	}
	if n.interval == 0 {
		n.interval = time.Second
	}
	n.began, n.changed = time.Now(), make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/", Handler(Options{Version: "2.0.0-test", Live: true}))
	mux.Handle("/test/", http.StripPrefix("/test/", http.FileServer(http.Dir("testdata"))))
	for name, f := range map[string]func(*http.Request) any{
		"devices": n.devicesAnswer, "fields": n.fieldsAnswer, "samples": n.samplesAnswer, "events": n.eventsAnswer, "health": n.healthAnswer, "list": n.listAnswer, "recordings": n.recordingsAnswer,
	} {
		mux.HandleFunc("GET /api/v1/"+name, func(w http.ResponseWriter, r *http.Request) {
			n.mu.Lock()
			defer n.mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(f(r)) // an error means that the browser went away
		})
	}
	mux.HandleFunc("GET /api/v1/stream", n.stream)
	s := httptest.NewServer(http.StripPrefix(prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.requests++
		down := n.down
		n.mu.Unlock()
		switch {
		case down && n.proxied:
			http.Error(w, "bad gateway", http.StatusBadGateway)
			return
		case down:
			panic(http.ErrAbortHandler) // closes the connection without an answer
		}
		mux.ServeHTTP(w, r)
	})))
	tb.Cleanup(func() {
		n.change(func() { n.down = true })
		s.Close()
	})
	return s.URL + prefix + "/"
}

// change modifies the node and wakes its streams.
func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *node) now() time.Time {
	return n.began.Add(time.Duration(float64(time.Since(n.began)) * n.speed))
}

// has reports whether a device has a field.
func (f *reading) has(d *apiv1.Device) bool {
	if f.kind == "" {
		return d.Kind == "gpu"
	}
	return d.Kind == f.kind
}

// each calls f with every series of the selected devices and fields, by device. k counts the series of a field.
func (n *node) each(devices []apiv1.Device, ids, fields []string, call func(i, k int, f *reading, labels map[string]string)) {
	for i := range devices {
		for j := range n.fields {
			f := &n.fields[j]
			if !f.has(&devices[i]) || !matches(ids, devices[i].ID) || !matches(fields, f.name) {
				continue
			}
			for k := range max(len(f.labels), 1) {
				var labels map[string]string
				if f.labels != nil {
					labels = f.labels[k]
				}
				call(i, k, f, labels)
			}
		}
	}
}

func (f *reading) at(device, series int, t time.Time) *float64 {
	v := f.value(device*31+series, float64(t.UnixMilli())/1000)
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return len(patterns) == 0
}

func (n *node) devicesAnswer(*http.Request) any {
	return apiv1.Devices{Time: n.now(), Hostname: "gpu-node-17", Version: "2.0.0-test", Simulated: true, Recording: n.replayed, History: true, Recorder: n.recordings != nil,
		Collectors: []apiv1.Collector{{Name: "nvml", Up: true}}, Devices: n.devices}
}

func (n *node) fieldsAnswer(r *http.Request) any {
	q, age, all := r.URL.Query(), 0.2, make([]apiv1.DeviceFields, len(n.devices))
	n.each(n.devices, q["device"], q["field"], func(i, k int, f *reading, labels map[string]string) {
		x := apiv1.Field{Name: f.name, Metric: f.name, Help: "A made-up reading for tests.", Type: "gauge", Unit: f.unit, Window: 1, Interval: n.interval.Seconds(), Labels: labels}
		if d, _, ok := field.ByName(f.name); ok {
			m, _ := d.RoleOf(slices.Collect(maps.Values(labels))...)
			x.Role = string(m.Role)
		}
		if strings.HasSuffix(f.name, "_total") {
			x.Type = "counter"
		}
		switch d := &n.devices[i]; {
		case d.State != "up":
			x.Absent = &apiv1.Absence{Reason: "device_lost", Detail: d.Reason}
		case f.at(i, k, n.now()) == nil:
			x.Absent = &apiv1.Absence{Reason: "blank"}
		default:
			x.Value, x.Age = f.at(i, k, n.now()), &age
		}
		all[i].ID, all[i].Fields = n.devices[i].ID, append(all[i].Fields, x)
	})
	return apiv1.Fields{Time: n.now(), Devices: slices.DeleteFunc(all, func(d apiv1.DeviceFields) bool { return d.ID == "" })}
}

func (n *node) samplesAnswer(r *http.Request) any {
	q := r.URL.Query()
	now := n.now()
	since, err := time.Parse(time.RFC3339, q.Get("since"))
	if err != nil || now.Sub(since) > 15*time.Minute {
		since = now.Add(-15 * time.Minute)
	}
	out := apiv1.Samples{Device: q.Get("device"), Field: q.Get("field"), From: since.UnixMilli(), Until: now.UnixMilli()}
	step := n.interval
	if points, _ := strconv.Atoi(q.Get("points")); points > 0 {
		step = max(now.Sub(since)/time.Duration(points), n.interval)
		out.Step = step.Milliseconds()
	}
	n.each(n.devices, q["device"], q["field"], func(i, k int, f *reading, labels map[string]string) {
		out.Unit = f.unit
		s := apiv1.SampledSeries{Labels: labels}
		for t := since.Truncate(step).Add(step); t.Before(now); t = t.Add(step) {
			v := f.at(i, k, t)
			s.Times = append(s.Times, t.UnixMilli())
			if out.Step == 0 {
				s.Values = append(s.Values, v)
			} else {
				s.Min, s.Max, s.Mean = append(s.Min, v), append(s.Max, v), append(s.Mean, v)
			}
		}
		out.Series = append(out.Series, s)
	})
	return out
}

func (n *node) eventsAnswer(*http.Request) any {
	return apiv1.Events{Events: append([]apiv1.Event{}, n.events...)}
}

func (n *node) recordingsAnswer(*http.Request) any {
	return apiv1.Recordings{Recordings: n.recordings}
}

func (n *node) healthAnswer(*http.Request) any {
	return apiv1.Health{Time: n.now(), State: "ok", Ready: true, Devices: n.health}
}

func (n *node) listAnswer(*http.Request) any {
	out := apiv1.List{Source: "/etc/warpgauge/counters.csv", Hash: strings.Repeat("ab", 32), Applied: n.began}
	for _, f := range n.fields {
		l := apiv1.ListField{Name: f.name, Metric: f.name, Type: "gauge", Unit: f.unit}
		if d, _, ok := field.ByName(f.name); ok {
			for _, m := range d.Roles() {
				l.Roles = append(l.Roles, apiv1.Role{Role: string(m.Role), Label: m.Label, Rank: m.Rank})
			}
		}
		out.Fields = append(out.Fields, l)
	}
	return out
}

// stream sends rows like the exporter.
func (n *node) stream(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	seconds, _ := strconv.ParseFloat(q.Get("interval"), 64)
	every := time.Duration(math.Max(seconds, 0.1) * float64(time.Second))
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(kind string, data any) {
		text, _ := json.Marshal(data)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, text) // an error means that the browser went away
	}
	n.mu.Lock()
	n.streams++
	devices, events := append([]apiv1.Device{}, n.devices...), len(n.events)
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.streams--
		n.mu.Unlock()
	}()
	var columns apiv1.StreamColumns
	n.each(devices, nil, q["field"], func(i, _ int, f *reading, labels map[string]string) {
		columns.Columns = append(columns.Columns, apiv1.StreamColumn{Device: devices[i].ID, Field: f.name, Unit: f.unit, Labels: labels})
	})
	send("columns", columns)
	last := n.now().Truncate(n.interval)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		_ = http.NewResponseController(w).Flush()
		n.mu.Lock()
		changed := n.changed
		n.mu.Unlock()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
			n.mu.Lock()
			if n.down {
				n.mu.Unlock()
				return
			}
			for i, d := range n.devices {
				if d.State != devices[i].State {
					send("devices", d)
				}
			}
			copy(devices, n.devices)
			for _, e := range n.events[events:] {
				send("event", e)
			}
			events = len(n.events)
			n.mu.Unlock()
		case <-ticker.C:
			if n.replayed != "" {
				continue
			}
			var rows apiv1.StreamRows
			for now := n.now(); !last.Add(n.interval).After(now); {
				last = last.Add(n.interval)
				first, row := 0, make(map[int]*apiv1.StreamRow)
				n.each(devices, nil, q["field"], func(i, k int, f *reading, _ map[string]string) {
					if first++; devices[i].State != "up" {
						return
					}
					if row[i] == nil {
						row[i] = &apiv1.StreamRow{Time: last.UnixMilli(), First: first - 1}
					}
					row[i].Values = append(row[i].Values, f.at(i, k, last))
				})
				for _, r := range row {
					rows.Rows = append(rows.Rows, *r)
				}
			}
			if rows.Rows != nil {
				send("rows", rows)
			}
		}
	}
}

// load returns the load of device n, 0 to 1: it trains, infers or idles.
func load(n int, t float64) float64 {
	noise := math.Sin(t*12.9898+float64(n)*78.233) * 43758.5453
	noise -= math.Floor(noise)
	switch n / 31 % 4 {
	case 3:
		return 0.3 + 0.25*math.Sin(t/23+float64(n)) + 0.2*noise
	case 2:
		return 0.02 * noise
	default:
		if math.Mod(t+float64(n), 61) < 5 {
			return 0.05 + 0.05*noise
		}
		return 0.93 + 0.07*noise
	}
}

func nvidiaReadings() []reading {
	by := func(a, b float64) func(int, float64) float64 {
		return func(n int, t float64) float64 { return a + b*load(n, t) }
	}
	whole := func(f func(int, float64) float64) func(int, float64) float64 {
		return func(n int, t float64) float64 { return math.Round(f(n, t)) }
	}
	constant := func(v float64) func(int, float64) float64 { return func(int, float64) float64 { return v } }
	return []reading{
		{name: "DCGM_FI_DEV_GPU_UTIL", unit: "%", value: whole(by(0, 100))},
		{name: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", unit: "ratio", value: by(0, 0.62)},
		{name: "DCGM_FI_PROF_DRAM_ACTIVE", unit: "ratio", value: by(0.01, 0.4)},
		{name: "DCGM_FI_DEV_BOARD_POWER_WATTS", unit: "W", value: by(110, 588)},
		{name: "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", unit: "W", value: constant(700)},
		{name: "DCGM_FI_DEV_GPU_TEMP", unit: "celsius", value: whole(by(38, 31))},
		{name: "DCGM_FI_DEV_MEMORY_TEMP", unit: "celsius", value: whole(by(44, 38))},
		{name: "DCGM_FI_DEV_SLOWDOWN_TEMP", unit: "celsius", value: constant(87)},
		{name: "DCGM_FI_DEV_SM_CLOCK", unit: "MHz", value: whole(by(1980, -165))},
		{name: "DCGM_FI_DEV_MEM_CLOCK", unit: "MHz", value: constant(2619)},
		{name: "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", value: func(n int, t float64) float64 {
			if load(n, t) > 0.9 {
				return 4
			}
			return 0
		}},
		{name: "DCGM_FI_DEV_FB_USED", unit: "MiB", value: func(n int, _ float64) float64 { return float64(8000 + n%8*9000) }},
		{name: "DCGM_FI_DEV_FB_TOTAL", unit: "MiB", value: constant(81559)},
		{name: "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", unit: "MB/s", value: by(0, 240000)},
		{name: "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", value: func(n int, _ float64) float64 {
			if n/31 == 3 {
				return 12
			}
			return 0
		}},
		{name: "DCGM_FI_DEV_ENC_UTIL", unit: "%", value: func(int, float64) float64 { return math.NaN() }},
	}
}

// gpus returns n GPUs with pods and processes.
func gpus(n int, model string) []apiv1.Device {
	var out []apiv1.Device
	session := time.Now().Add(-3 * time.Hour)
	for i := range n {
		d := apiv1.Device{ID: fmt.Sprintf("GPU-fa4e%04d", i), Kind: "gpu", Collector: "nvml", State: "up", Interval: 1, GPU: strconv.Itoa(i), UUID: fmt.Sprintf("GPU-fa4e%04d-0000-0000", i),
			PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 16+i), Node: fmt.Sprintf("nvidia%d", i), Model: model, Simulated: true, Session: &session, Since: &session,
			Facts: map[string]string{"DCGM_FI_DRIVER_VERSION": "580.95.05"}}
		if i%4 != 2 {
			memory, busy := 61.5e9, 93.0
			d.Users = []apiv1.User{{Namespace: "training", Pod: fmt.Sprintf("llm-%d", i/4), Container: "trainer"}}
			d.Processes = []apiv1.Process{{PID: 4700 + i, Name: "python3", Memory: &memory, Busy: &busy, Pod: fmt.Sprintf("training/llm-%d/trainer", i/4)}}
		}
		out = append(out, d)
	}
	return out
}

func h100(n int) *node {
	return &node{devices: gpus(n, "NVIDIA H100 80GB HBM3 (simulated)"), fields: nvidiaReadings()}
}

// mig returns a node with two GPUs in MIG mode, where only instances have a utilisation.
func mig() *node {
	n := h100(4)
	for g := range 2 {
		parent := n.devices[g]
		for i, profile := range []string{"3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"}[g:] {
			n.devices = append(n.devices, apiv1.Device{ID: fmt.Sprintf("%s/%d", parent.ID, i+1), Parent: parent.ID, Kind: "instance", Collector: "nvml", State: "up", Interval: 1, GPU: parent.GPU, UUID: parent.UUID,
				Model: parent.Model, Simulated: true, Instance: &apiv1.Instance{Profile: profile, ID: strconv.Itoa(i + 1), UUID: fmt.Sprintf("MIG-fa4e%d%d", g, i)},
				Users: []apiv1.User{{Namespace: "serving", Pod: fmt.Sprintf("chat-%d", i), Container: "server"}}})
		}
	}
	for i, f := range n.fields {
		if f.name == "DCGM_FI_DEV_GPU_UTIL" {
			n.fields[i].value = func(d int, t float64) float64 {
				if d/31 < 2 {
					return math.NaN()
				}
				return f.value(d, t)
			}
		}
	}
	n.fields = append(n.fields,
		reading{name: "DCGM_FI_PROF_GR_ENGINE_ACTIVE", unit: "ratio", kind: "instance", value: load},
		reading{name: "DCGM_FI_PROF_DRAM_ACTIVE", unit: "ratio", kind: "instance", value: func(n int, t float64) float64 { return load(n, t) / 3 }},
		reading{name: "DCGM_FI_DEV_FB_USED", unit: "MiB", kind: "instance", value: func(n int, _ float64) float64 { return 4000 }},
		reading{name: "DCGM_FI_DEV_FB_TOTAL", unit: "MiB", kind: "instance", value: func(n int, _ float64) float64 { return 9984 }})
	return n
}

// amd returns a node with AMD GPUs.
func amd() *node {
	n := &node{devices: gpus(8, "AMD Instinct MI300X (simulated)")}
	keep := map[string]bool{"DCGM_FI_DEV_GPU_UTIL": true, "DCGM_FI_PROF_DRAM_ACTIVE": true, "DCGM_FI_DEV_BOARD_POWER_WATTS": true}
	for _, f := range nvidiaReadings() {
		if keep[f.name] {
			n.fields = append(n.fields, f)
		}
	}
	reasons := []map[string]string{{"reason": "power"}, {"reason": "thermal"}}
	of := func(label string, values ...string) (out []map[string]string) {
		for _, v := range values {
			out = append(out, map[string]string{label: v})
		}
		return out
	}
	each := func(values ...float64) func(int, float64) float64 {
		return func(d int, _ float64) float64 { return values[d%31] }
	}
	n.fields = append(n.fields,
		reading{name: "amd_gpu_temperature_celsius", unit: "celsius", labels: of("sensor", "vrsoc", "junction", "mem"), value: each(99, 62, 51)},
		reading{name: "amd_gpu_memory_used_bytes", unit: "bytes", labels: of("memory", "gtt", "vram"), value: each(1<<20, 100<<30)},
		reading{name: "amd_gpu_memory_size_bytes", unit: "bytes", labels: of("memory", "gtt", "vram"), value: each(1<<40, 192<<30)},
		reading{name: "amd_gpu_clock_hertz", unit: "Hz", labels: of("clock", "soc", "gfx", "mem"), value: each(5e8, 2.1e9, 1.3e9)},
		reading{name: "DCGM_FI_DEV_POWER_MGMT_LIMIT", unit: "W", value: func(int, float64) float64 { return 750 }},
		reading{name: "amd_gpu_throttle_active", unit: "bool", labels: reasons, value: func(d int, t float64) float64 {
			if d%31 == 0 && load(d, t) > 0.9 {
				return 1
			}
			return 0
		}})
	return n
}

// lose removes a GPU and reports its XID.
func (n *node) lose(i int) {
	n.change(func() {
		now, code := n.now(), 79
		n.devices[i].State, n.devices[i].Cause, n.devices[i].Reason, n.devices[i].Since = "lost", "lost", "GPU is lost: the driver reports NVML_ERROR_GPU_IS_LOST", &now
		n.events = append(n.events,
			apiv1.Event{Time: now, Kind: "xid", Device: n.devices[i].ID, GPU: n.devices[i].GPU, Code: &code, Text: "XID 79: GPU has fallen off the bus", Bad: true},
			apiv1.Event{Time: now, Kind: "device_state", Device: n.devices[i].ID, GPU: n.devices[i].GPU, Text: "up to lost: GPU is lost", Bad: true})
	})
}

// past adds older events.
func (n *node) past() *node {
	code := 31
	for i, e := range []apiv1.Event{
		{Kind: "reload", Text: "field list reloaded: 38 fields"},
		{Kind: "xid", Code: &code, Text: "XID 31: GPU memory page fault", Bad: true},
		{Kind: "clock_event", Text: "power cap began"},
	} {
		if e.Kind != "reload" {
			e.Device, e.GPU = n.devices[0].ID, "0"
		}
		e.Time = time.Now().Add(time.Duration(i*80-260) * time.Second)
		n.events = append(n.events, e)
	}
	at := n.events[1].Time
	n.recordings = []apiv1.Recording{{Name: "recording-20261122-174000.000-xid.om.zst", Time: at, Cause: "xid", Device: n.devices[0].ID, From: at.Add(-time.Minute), Until: at.Add(30 * time.Second), Bytes: 81_234}}
	return n
}
