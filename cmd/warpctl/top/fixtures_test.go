package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

var must = testkit.Must

// noon is the time of the test nodes' answers.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func at(seconds float64) *time.Time {
	t := noon.Add(time.Duration(seconds * float64(time.Second)))
	return &t
}

func value(v float64) *float64 { return &v }

// fakeNode returns fixed answers. Like a client, it returns copies.
type fakeNode struct {
	devices apiv1.Devices
	fields  apiv1.Fields
	health  apiv1.Health
	events  apiv1.Events
	samples map[string]apiv1.Samples // by field
	err     error
	asked   []string
}

func (n *fakeNode) Devices(context.Context) (*apiv1.Devices, error) {
	for i := range n.devices.Devices {
		if d := &n.devices.Devices[i]; d.Status.Word == "" { // no verdict
			d.Status = apiv1.Status{Word: d.State, Why: d.Reason}
		}
	}
	return copied(n.devices), n.ask("devices")
}

func (n *fakeNode) Fields(_ context.Context, devices, patterns []string) (*apiv1.Fields, error) {
	f := apiv1.Fields{Time: noon}
	for _, d := range n.fields.Devices {
		if len(devices) == 0 || slices.Contains(devices, d.ID) {
			d.Fields = slices.DeleteFunc(slices.Clone(d.Fields), func(f apiv1.Field) bool {
				return len(patterns) > 0 && !slices.Contains(patterns, f.Name)
			})
			for i := range d.Fields {
				addRole(&d.Fields[i])
			}
			f.Devices = append(f.Devices, d)
		}
	}
	return copied(f), n.ask(fmt.Sprintf("fields of %d devices", len(devices)))
}

// addRole sets a series' role like an exporter.
func addRole(f *apiv1.Field) {
	if d, _, ok := field.ByName(f.Name); ok {
		m, _ := d.RoleOf(slices.Collect(maps.Values(f.Labels))...)
		f.Role, f.Rank = string(m.Role), m.Rank
	}
}

func (n *fakeNode) Health(context.Context) (*apiv1.Health, error) {
	return copied(n.health), n.ask("health")
}

func (n *fakeNode) Samples(_ context.Context, q apiv1.SamplesQuery) (*apiv1.Samples, error) {
	s, ok := n.samples[q.Field]
	if !ok {
		return nil, errors.New("no history")
	}
	return copied(s), n.ask(fmt.Sprintf("samples of %s in %d points", q.Field, q.Points))
}

func (n *fakeNode) Events(context.Context, time.Time, int) (*apiv1.Events, error) {
	return copied(n.events), n.ask("events")
}

// copied returns a deep copy, as if sent over HTTP.
func copied[T any](v T) *T {
	out := new(T)
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

func (n *fakeNode) ask(what string) error {
	n.asked = append(n.asked, what)
	return n.err
}

func reading(name, unit string, v float64) apiv1.Field {
	return apiv1.Field{Name: name, Type: "gauge", Unit: unit, Interval: 1, Value: value(v), Age: value(0.4)}
}

// hopper returns a node with eight GPUs; one is lost, one does not answer, and of those that are up one has failed.
func hopper() *fakeNode {
	n := &fakeNode{
		devices: apiv1.Devices{Time: noon, Hostname: "node-7", Version: "1.0", Simulated: true, Collectors: []apiv1.Collector{{Name: "nvml", Up: true}}},
		health:  apiv1.Health{State: "failed", Devices: []apiv1.DeviceHealth{{ID: "GPU-3", GPU: "3", State: "failed", Text: "rows cannot be remapped", Action: "replace"}}},
		events: apiv1.Events{Events: []apiv1.Event{
			{Time: noon.Add(-90 * time.Second), Kind: "device_state", Device: "GPU-6", Text: "GPU 6 is lost", Bad: true},
			{Time: noon.Add(-30 * time.Second), Kind: "xid", Device: "GPU-0", Text: "XID 13: graphics engine exception", Bad: true},
		}},
	}
	for i := range 8 {
		d := apiv1.Device{
			ID: fmt.Sprintf("GPU-%d", i), Kind: "gpu", Collector: "nvml", State: "up", LastSample: at(-0.4), Interval: 1, GPU: fmt.Sprint(i),
			UUID: fmt.Sprintf("GPU-%d", i), PCIBusID: fmt.Sprintf("00000000:%d0:00.0", i), Node: fmt.Sprintf("nvidia%d", i), Model: "NVIDIA H100 80GB HBM3", Simulated: true,
		}
		f := []apiv1.Field{
			reading("DCGM_FI_DEV_GPU_UTIL", "%", float64(97-12*i)),
			reading("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "ratio", 0.62-0.07*float64(i)),
			reading("DCGM_FI_PROF_DRAM_ACTIVE", "ratio", 0.4),
			reading("DCGM_FI_DEV_FB_USED", "MiB", float64(61000-5000*i)),
			reading("DCGM_FI_DEV_FB_FREE", "MiB", float64(20000+5000*i)),
			reading("DCGM_FI_DEV_FB_RESERVED", "MiB", 559),
			reading("DCGM_FI_DEV_POWER_USAGE", "W", float64(612-50*i)),
			reading("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "W", 700),
			reading("DCGM_FI_DEV_GPU_TEMP", "celsius", float64(64-i)),
			reading("DCGM_FI_DEV_SM_CLOCK", "MHz", 1980),
			reading("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "", 4),
		}
		switch i {
		case 0:
			d.Users = []apiv1.User{{Namespace: "train", Pod: "llm-0", Container: "main"}}
			d.Processes = []apiv1.Process{{PID: 4242, Name: "python3", Memory: value(60 << 30), Busy: value(96), Pod: "train/llm-0/main"}}
			f = append(f, apiv1.Field{Name: "DCGM_FI_DEV_MEMORY_TEMP", Type: "gauge", Unit: "celsius", Absent: &apiv1.Absence{Reason: "unsupported", Detail: "the GPU has no such sensor"}})
		case 1:
			d.Users = []apiv1.User{{Job: "77"}}
		case 3:
			d.Status = apiv1.Status{Word: "failed", Why: "rows cannot be remapped; action: replace"}
		case 5:
			d.State, d.Cause, d.Reason, d.LastSample = "stalled", "hung_call", "a call has not returned for 35s", at(-35)
			for j := range f {
				f[j].Age = value(35)
			}
		case 6:
			d.State, d.Cause, d.Reason, d.LastSample, f = "lost", "lost", "GPU is lost", at(-90), nil
		}
		n.devices.Devices = append(n.devices.Devices, d)
		n.fields.Devices = append(n.fields.Devices, apiv1.DeviceFields{ID: d.ID, Fields: f})
	}
	link := apiv1.Device{ID: "GPU-0/link0", Parent: "GPU-0", Kind: "link", Collector: "nvml", State: "up", GPU: "0", Labels: map[string]string{"nvlink": "0"}}
	n.devices.Devices = append(n.devices.Devices, link)
	return n
}

// sources supplies a model with nodes' answers, without a fleet's goroutines.
type sources struct {
	nodes  []Node
	last   []*state
	looked *look
}

func (s *sources) states() []*state { return slices.Clone(s.last) }
func (s *sources) look(l *look)     { s.looked = l }

// poll polls all nodes in parallel.
func (s *sources) poll(now time.Time) {
	for i, n := range s.nodes {
		p := &poller{target: Target{Node: n}}
		if s.looked != nil && s.looked.node == i {
			p.look.Store(s.looked)
		}
		p.last.Store(&state{name: fmt.Sprintf("10.0.0.%d:9400", i)})
		if s.last[i] != nil {
			p.last.Store(s.last[i])
		}
		p.poll(context.Background())
		l := *p.last.Load()
		if l.err == "" {
			l.answered = now
		} else {
			l.silent = noon
		}
		s.last[i] = &l
	}
}

func watch(t *testing.T, width, height int, nodes ...Node) (*model, *sources) {
	t.Helper()
	s := &sources{nodes: nodes, last: make([]*state, len(nodes))}
	s.poll(noon)
	m := newModel(s)
	m.width, m.height = width, height
	m.Update(tick(noon))
	return m, s
}

// tick polls the nodes and updates the model.
func (s *sources) tick(m *model, now time.Time) {
	s.poll(now)
	m.Update(tick(now))
}

// text returns the screen without colours.
func text(m *model) string {
	var b strings.Builder
	for _, l := range m.frame() {
		b.WriteString(strings.TrimRight(ansi.Strip(l), " ") + "\n")
	}
	return b.String()
}

// shows checks that the screen has all texts.
func shows(t *testing.T, m *model, texts ...string) {
	t.Helper()
	testkit.Outcome{Out: text(m)}.Want(t, 0, texts...)
}
