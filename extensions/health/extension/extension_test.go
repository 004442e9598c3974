package extension

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/collectors/fake"
	"warpgauge/extensions/health"
	"warpgauge/extensions/live/api"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/config/configtest"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/exporter/exportertest"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
)

var must = testkit.Must

// judgedNode is a simulated node with health, in a synctest bubble.
type judgedNode struct {
	*testing.T
	*exporter.Pipeline
	*Extension
	log   *api.Log
	world *fake.World
}

func newJudgedNode(t *testing.T, profile, csv string, args ...string) *judgedNode {
	t.Helper()
	return newFaultyNode(t, fake.Options{Profile: profile}, csv, args...)
}

// newFaultyNode is newJudgedNode with faults from the start.
func newFaultyNode(t *testing.T, o fake.Options, csv string, args ...string) *judgedNode {
	t.Helper()
	o.Devices, o.Seed = cmp.Or(o.Devices, 2), 1
	w := testkit.Get(fake.NewWorld(o))(t)
	e := New()
	node := exportertest.Node{
		Vendors: []exporter.Vendor{{Name: "fake", Simulated: true, Open: w.Collector}}, Extensions: []exporter.Extension{e}, CSV: csv,
		Args: append([]string{"--isolation=none", "--rescan-interval=1s", "--health-directory="}, args...),
	}
	p := node.Pipeline(t)
	log := api.NewLog()
	log.Subscribe(p.Core().Events)
	must(t, p.Extend())
	p.AddPages()
	run := []func(context.Context) error{p.Engine.Run, p.Rows.Run, log.Run}
	if e.watch != nil {
		run = append(run, e.watch.Run)
	}
	done := make(chan bool, len(run))
	for _, f := range run {
		go func() { _ = f(t.Context()); done <- true }()
	}
	t.Cleanup(func() {
		w.Release()
		for range run {
			<-done
		}
	})
	return &judgedNode{T: t, Pipeline: p, Extension: e, log: log, world: w}
}

// verdict returns the verdict on a GPU, or on a switch if level says so.
func (n *judgedNode) verdict(level field.Level, gpu string) (out events.Verdict) {
	for _, v := range n.watch.Board().Load().Verdicts {
		if v.Device.Level == level && v.Device.Parent == "" && (level != field.GPU || v.Device.GPU == gpu) {
			return v
		}
	}
	return out
}

// events returns the health events of a device.
func (n *judgedNode) events(id string) (out []string) {
	all := n.log.All()
	for _, e := range all {
		if e.Kind == string(events.Health) && e.Device == id {
			out = append(out, e.Text)
		}
	}
	return out
}

func (n *judgedNode) inject(f fake.Fault) (heal func()) {
	n.Helper()
	if f.Kind != fake.Devices && f.Kind != fake.OpenFails && len(f.Switches) == 0 {
		f.GPUs = []fake.Span{{First: 1, Last: 1}}
	}
	heal = testkit.Get(n.world.Inject(f))(n.T)
	return heal
}

// fault describes how to simulate a rule's fault.
type fault struct {
	profiles []string
	csv      string // additional fields
	level    field.Level
	begin    func(n *judgedNode) (end func())
	wait     time.Duration // extra time until the fault is visible
	logOnly  bool          // only the kernel's log reports it
}

const (
	nvidiaNode = "dgx-h100"
	amdNode    = "mi300x"
	reading    = 30 * time.Second // interval of readings that only health needs
)

// faultOf returns the fault for a rule on simulated nodes, or false if there is none.
func faultOf(r *health.Rule) (fault, bool) {
	both := []string{nvidiaNode, amdNode}
	code, isXID := strings.CutPrefix(r.Name, "xid_")
	switch {
	case r.Name == "lost":
		return fault{profiles: both, begin: func(n *judgedNode) func() { return n.inject(fake.Fault{Kind: fake.Lost}) }}, true
	case r.Name == "calls_fail":
		return fault{profiles: both, begin: func(n *judgedNode) func() { return n.inject(fake.Fault{Kind: fake.Fails}) }}, true
	case r.Name == "stalled":
		return fault{profiles: both, begin: func(n *judgedNode) func() { return n.inject(fake.Fault{Kind: fake.Stalled}) }}, true
	case r.Name == "hung":
		return fault{profiles: both, wait: 6 * time.Second, begin: func(n *judgedNode) func() { return n.inject(fake.Fault{Kind: fake.Hang}) }}, true
	case r.Name == "missing":
		return fault{profiles: both, wait: 20 * time.Second, begin: func(n *judgedNode) func() { return n.inject(fake.Fault{Kind: fake.Devices, Count: 1}) }}, true
	case r.Name == "released":
		return fault{profiles: both, begin: func(n *judgedNode) func() {
			must(n.T, n.Engine.Release(n.Context(), ""))
			return func() { n.Engine.Resume("") }
		}}, true
	case isXID:
		number, kind, _ := strings.Cut(code, "_")
		xid, _ := strconv.Atoi(number)
		return fault{profiles: []string{nvidiaNode}, begin: func(n *judgedNode) func() {
			if kind == "" {
				n.inject(fake.Fault{Kind: fake.XID, XID: xid})
			} else {
				n.watch.Observe(health.Observation{Reason: "xid", Code: xid, Device: n.verdict(field.GPU, "1").Device.ID, Text: kernelLine(xid, kind)})
			}
			return func() { n.reset() }
		}}, true
	case len(r.Readings) == 0:
		return kernelFault(r)
	}
	d, _ := field.ByID(r.Readings[0])
	f := fault{profiles: both, wait: reading}
	bad := fake.Fault{Kind: fake.Absurd, Field: d, Value: r.Threshold, Label: r.Label}
	switch {
	case d.Vendor == field.VendorAMD:
		f.profiles = []string{amdNode}
	case d.ID == field.GPUHealth:
		f.profiles = []string{nvidiaNode}
		bad = fake.Fault{Kind: fake.Health, Watch: "NVLINK", Fail: r.Threshold >= 20}
	case d.Level == field.Switch || d.Level == field.Link:
		listed := map[field.Level]string{field.Switch: "DCGM_FI_DEV_SM_CLOCK", field.Link: d.Name}[d.Level]
		f.profiles, f.csv, f.level = []string{nvidiaNode}, listed+", gauge, x, interval=1s\n", field.Switch
		bad.Switches = []fake.Span{{First: 0, Last: 0}}
	case d.ID != 150:
		f.profiles = []string{nvidiaNode} // AMD GPUs lack these readings, or have rules of their own
	}
	switch {
	case r.Limit != 0:
		bad.Value = 150 // more than any board's
	case r.Test == field.Rises:
		bad.Value = 10 * r.Threshold
	case r.Test == field.Falls:
		bad.Value = r.Threshold - 1
	}
	f.begin = func(n *judgedNode) func() {
		heal := n.inject(bad)
		return func() {
			heal()
			if r.End == health.AfterReset {
				n.reset()
			}
		}
	}
	return f, true
}

// kernelLine returns the driver's line about an XID of a kind.
func kernelLine(xid int, kind string) string {
	if n := slices.Index([]string{"", "reset", "reboot", "drain_p2p", "drain_reset", "imex", "bus_reset", "system_reboot", "other"}, kind); xid == 154 {
		return fmt.Sprintf("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to %#x (X)", n)
	}
	return fmt.Sprintf("NVRM: Xid (PCI:0000:3b:00): %d, NEW Fatal XC0 i0 Link 00 (0x00000000 0x00000000)", xid)
}

// reset sets the GPU's energy to 0. Switches have no energy, so it reports their reset directly.
func (n *judgedNode) reset() {
	n.Helper()
	energy, _ := field.ByID(156)
	heal := n.inject(fake.Fault{Kind: fake.Absurd, Field: energy, Value: 1})
	go func() { time.Sleep(reading + 2*time.Second); heal() }()
	n.watch.Observe(health.Observation{Reason: health.ReasonReset, Device: n.verdict(field.Switch, "").Device.ID})
}

// TestEveryRule simulates the fault of each rule. The verdict must follow within two ticks plus the
// rule's own time, with one event. After the fault the device must recover by the rule's own end.
func TestEveryRule(t *testing.T) {
	for _, r := range health.Table() {
		if r.Name == "starting" || r.Name == "not_served" || r.Derived != field.NotDerived {
			continue // TestHealthOutlivesTheExporter and TestSigns of package signs cover these
		}
		f, ok := faultOf(&r)
		if !ok {
			t.Errorf("rule %s: no fault is scripted for it", r.Name)
			continue
		}
		if f.level == 0 {
			f.level = field.GPU
		}
		for _, profile := range f.profiles {
			t.Run(r.Name+" "+profile, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { judgeRule(t, profile, &r, &f) })
			})
		}
	}
}

func judgeRule(t *testing.T, profile string, r *health.Rule, f *fault) {
	n := newJudgedNode(t, profile, "DCGM_FI_DEV_SM_CLOCK, gauge, c\n"+f.csv)
	time.Sleep(3 * time.Second)
	before := n.verdict(f.level, "1")
	if before.State != events.OK || before.Reason != "" || before.Action != events.ActionNone {
		t.Fatalf("before the fault the verdict is %v %q %q: %s", before.State, before.Reason, before.Action, before.Text)
	}
	end := f.begin(n)
	time.Sleep(r.For + f.wait + 2*time.Second + time.Second/2)
	got := n.verdict(f.level, "1")
	i := slices.IndexFunc(got.Conditions, func(c events.Condition) bool { return c.Reason == r.Name })
	if i < 0 {
		t.Fatalf("verdict %v %q with %+v, no condition %s", got.State, got.Reason, got.Conditions, r.Name)
	}
	want := *r
	if f.logOnly { // the device still answers
		want.State, want.Action = min(r.State, events.Degraded), events.ActionNone
	}
	if c := got.Conditions[i]; c.State != want.State || c.Action != want.Action || c.Text == "" || c.Since.IsZero() {
		t.Errorf("the condition is %+v", c)
	}
	name, published := r.Name, 1
	if r.State == events.OK { // informational: the verdict does not change
		name, published = "", 0
	}
	if got.State != want.State || got.Reason != name || got.Action != want.Action || (got.Text == "") != (name == "") {
		t.Errorf("the verdict is %v %q %q %q, want %v %q %q", got.State, got.Reason, got.Action, got.Text, want.State, r.Name, want.Action)
	}
	if other := n.verdict(f.level, "0"); f.level == field.GPU && r.Name != "released" && other.State != events.OK {
		t.Errorf("the other GPU is %v %q", other.State, other.Reason)
	}
	twice := r.Name == "calls_fail" || r.Name == "missing" // after unknown
	if e := n.events(before.Device.ID); !twice && len(e) != published {
		t.Errorf("%d events: %q", len(e), e)
	}
	if r.Quiet > 2*time.Hour { // a simulated day takes too long here; TestQuiet of package health covers it
		return
	}
	end()
	time.Sleep(r.Quiet + 2*reading + 10*time.Second)
	if got = n.verdict(f.level, "1"); got.State != events.OK || len(got.Conditions) > 0 {
		t.Errorf("after the fault the verdict is %v %q with %+v", got.State, got.Reason, got.Conditions)
	}
	if e := n.events(before.Device.ID); published > 0 && (!twice && len(e) != 2 || len(e) < 2 || !strings.HasPrefix(e[len(e)-1], "health is ok")) {
		t.Errorf("events: %q, want one for the fault and one for its end", e)
	}
}

// TestHealthOutlivesTheExporter: conditions survive a restart, even while no collector can confirm
// them. A healthy device does not become ok without a new reading.
func TestHealthOutlivesTheExporter(t *testing.T) {
	const list = "DCGM_FI_DEV_SM_CLOCK, gauge, c\n"
	directory := "--health-directory=" + filepath.Join(t.TempDir(), "health")
	want := func(n *judgedNode, gpu string, s events.State, reason string) {
		n.Helper()
		if v := n.verdict(field.GPU, gpu); v.State != s || v.Reason != reason {
			n.Errorf("GPU %s is %v %q (%s), want %v %q", gpu, v.State, v.Reason, v.Text, s, reason)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		n := newJudgedNode(t, nvidiaNode, list, directory)
		time.Sleep(3 * time.Second)
		n.inject(fake.Fault{Kind: fake.XID, XID: 48})
		time.Sleep(3 * time.Second)
		want(n, "1", events.Failed, "xid_48")
	})
	synctest.Test(t, func(t *testing.T) {
		n := newFaultyNode(t, fake.Options{Spec: &fake.Spec{Faults: []fake.Fault{{Kind: fake.OpenFails, For: time.Minute}}}}, list, directory)
		time.Sleep(time.Second / 2)
		want(n, "0", events.Unknown, "starting")
		want(n, "1", events.Failed, "xid_48")
		time.Sleep(40 * time.Second)
		want(n, "0", events.Unknown, "not_served")
		want(n, "1", events.Failed, "xid_48")
		time.Sleep(2 * time.Minute)
		want(n, "0", events.OK, "")
		want(n, "1", events.Failed, "xid_48")
		testkit.Equal(t, "events of what was known before", 0, len(n.events(n.verdict(field.GPU, "1").Device.ID)))
	})
}

// TestHealthOff: without health, a list with one field binds one reading per GPU, and no rule runs.
func TestHealthOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, off := range []bool{false, true} {
			args := []string{}
			if off {
				args = append(args, "--health=off")
			}
			n := newJudgedNode(t, nvidiaNode, "DCGM_FI_DEV_SM_CLOCK, gauge, c\n", args...)
			time.Sleep(5 * time.Second)
			for _, s := range n.Engine.Board().Load().Sources {
				gpus := map[int]int{}
				for _, c := range s.Columns {
					gpus[c.Device]++
				}
				for i, got := range gpus {
					if off != (got == 1) && s.Devices[i].Level == field.GPU {
						t.Errorf("health off is %v: %s has %d readings", off, s.Devices[i].ID, got)
					}
				}
			}
			if got := len(n.Core().Verdicts.Load().Verdicts); off != (got == 0) {
				t.Errorf("health off is %v: %d verdicts", off, got)
			}
			if added := n.Added("fake", false); off != (len(added) == 0) || slices.Contains(added, "DCGM_FI_DEV_POWER_USAGE") {
				t.Errorf("health off is %v: %q are read in addition", off, added)
			}
		}
	})
}

// TestReadingsOfHealthAreNotShown: readings that only health needs add no series, no report of an absent field, and no device
// but switches.
func TestReadingsOfHealthAreNotShown(t *testing.T) {
	but := []string{"warpgauge_device_health", "warpgauge_implausible_values_total"} // counts all readings, also those for health
	var off []string
	for _, r := range health.Table() {
		off = append(off, r.Name+"=off")
	}
	for _, profile := range fake.Profiles() {
		shown := func(args ...string) (out []string) {
			synctest.Test(t, func(t *testing.T) {
				const list = "DCGM_FI_DEV_SM_CLOCK, gauge, c\nDCGM_FI_DEV_FAN_SPEED, gauge, f\n"
				n := newJudgedNode(t, profile, list, append(args, "--absent-fields", "--enable-exporter-metrics=false")...)
				time.Sleep(5 * time.Second)
				n.Renderer.Sync(time.Now())
				for line := range strings.Lines(string(n.Renderer.Page(exposition.Text, false))) {
					out = append(out, line[:strings.LastIndexByte(line, ' ')+1])
				}
				families := testkit.Get(n.Registry.Gather())(t)
				for _, f := range families {
					if strings.HasPrefix(f.GetName(), "warpgauge_sign_") { // the result of these readings
						continue
					}
					for _, m := range f.GetMetric() {
						if ours := strings.HasPrefix(f.GetName(), "warpgauge_"); ours && !slices.Contains(but, f.GetName()) && !strings.Contains(fmt.Sprint(m.GetLabel()), "NVSWITCH") {
							out = append(out, f.GetName()+fmt.Sprint(m.GetLabel()))
						}
					}
				}
			})
			return out
		}
		with, without := shown(), shown("--health-rules="+strings.Join(off, ","))
		testkit.Equal(t, profile+": what is shown with readings for health, as without", without, with)
	}
}

func TestSettings(t *testing.T) {
	const idle = "has no effect without --health}]"
	for flag, want := range map[string]string{
		"--health-directory=/x": idle, "--health-directory=x": "--health-directory is \"x\": write an absolute path",
		"--kernel-log=/x": idle, "--kernel-log=off": idle, "--kernel-log=auto": "<nil> []", "--kernel-log=x": "--kernel-log is \"x\"",
		"--expected-gpus=8": idle, "--health-rules=hot=95": idle, "--health-node-events": "--health is off", "--health-amd-socket=/x": "--health is off", "--expected-gpus=-1": "--expected-gpus",
	} {
		s, _, err := configtest.Parse(t, nil, []configtest.Flags{New()}, "--health=off", flag)
		testkit.Has(t, flag, fmt.Sprint(err, s.Notices()), want)
	}
}
