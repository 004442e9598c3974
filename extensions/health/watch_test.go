package health

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

const remapPending, energy, temperature = 396, 156, 150

func TestRulesAreConsistent(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Table() {
		testkit.ErrorIf(t, seen[r.Name] || r.Text == "" || r.Source == "" || r.Action == "", "rule %s: it is there twice, or lacks text, link, state or action: %+v", r.Name, r)
		if seen[r.Name] = true; r.State == events.Failed && (r.Action == events.ActionNone || r.Action == events.ActionContact) || r.State < events.Degraded && r.Action != events.ActionNone {
			t.Errorf("rule %s: %v, %s", r.Name, r.State, r.Action)
		}
		if r.Test > field.OfState && len(r.Readings) == 0 && r.Derived == field.NotDerived || r.Test <= field.OfState && len(r.Readings) > 0 {
			t.Errorf("rule %s: a test of readings needs some, and others none", r.Name)
		}
		testkit.ErrorIf(t, r.End == AfterQuiet && r.Quiet == 0 && r.Clear == 0 && r.State > events.Unknown, "rule %s ends at once, so that its verdict could flap", r.Name)
		if r.Test == field.Rises && r.Within == 0 || r.Test != field.Rises && r.Within > 0 && r.Clear == 0 || r.Clear > r.Threshold {
			t.Errorf("rule %s: what rises does so within a time, and the value that ends it is below the threshold", r.Name)
		}
		for _, id := range r.Readings {
			if _, known := field.ByID(id); !known {
				t.Errorf("rule %s: reading %d is unknown", r.Name, id)
			}
		}
	}
}

// TestStatesAreDCGMs: rules on readings of DCGM's health watches have the watches' result. Those that cite DCGM have it for each value.
func TestStatesAreDCGMs(t *testing.T) {
	text := testkit.Get(os.ReadFile("../../collectors/nvml/testdata/dcgm-health.csv"))(t)
	results, seen := map[string]string{}, 0
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(line, ","); len(f) == 7 {
			for i, result := range []string{f[2], "well"} { // bad and good values; the worst of all rows counts
				for v := range strings.FieldsSeq(f[4+i]) {
					results[f[3]+" "+v] = min(result, cmp.Or(results[f[3]+" "+v], result))
				}
			}
		}
	}
	const notStarted = "170 1" // has a rule by Fabric Manager's guide: registration may take minutes
	results[notStarted] = "warn"
	for _, r := range Table() {
		for at, result := range results {
			words, s := strings.Fields(at), field.ConditionState{}
			id, _ := strconv.Atoi(words[0]) // 0: of links or XIDs
			v, err := strconv.ParseFloat(words[len(words)-1], 64)
			if err != nil || !slices.Contains(r.Readings, field.ID(id)) || r.Derived != field.NotDerived {
				continue
			}
			if len(words) > 2 { // it grows so far in a minute
				r.Evaluate(&s, 0, start)
			}
			unwell, same := r.Evaluate(&s, v, start.Add(time.Minute)) == field.Unwell, result == map[events.State]string{events.Failed: "fail", events.Degraded: "warn"}[r.State]
			if seen++; unwell && !same || !unwell && same && r.Source == linkDCGM && at != notStarted {
				t.Errorf("%s, %v: unwell is %v if reading %s, DCGM's result %s", r.Name, r.State, unwell, at, result)
			}
		}
	}
	testkit.Between(t, "comparisons", 40, 100, seen)
}

func TestSelect(t *testing.T) {
	rules, err := Select([]string{"row_remap_pending=off", "hot=80", "lost=on"})
	must(t, err)
	testkit.ErrorIf(t, rules.find("row_remap_pending") != nil || rules.find("lost") == nil || rules.find("hot").Threshold != 80, "the rules are %v", rules)
	testkit.Equal(t, "the threshold in the table itself", 95.0, Table().find("hot").Threshold)
	f := func(change string, want ...string) {
		t.Helper()
		_, err := Select(strings.Split(change, ","))
		testkit.Has(t, change, fmt.Sprint(err), append(want, "--health-rules")...)
	}
	f("hott=80", "did you mean hot", "docs/health-rules.md")
	f("foo=1", `unknown rule "foo"; docs/`)
	f("hot", "above 0 (celsius), off or on")
	f("hot=warm", "above 0")
	f("hot=-1", "above 0")
	f("hot=Inf", "above 0")
	f("lost=3", "no threshold", "lost=off")
	f("hot.umc=3", "hot has no blocks", "hot=3")
	f("ras_uncorrected.umc=off", "above 0")
	rules = testkit.Get(Select([]string{"ras_uncorrected=3", "ras_uncorrected.umc=6", "ras_uncorrected.gfx=2"}))(t)
	for block, want := range map[string]float64{"umc": 6, "gfx": 2, "sdma": 3} {
		c := collector.Column{Field: field.AMDRASErrors, Labels: []collector.Label{{Name: "block", Value: block}, {Name: "severity", Value: "ue"}}}
		if r := rules.find("ras_uncorrected"); !r.judges(&c) || r.threshold(&c) != want || Table().find("ras_uncorrected").threshold(&c) != 1 {
			t.Errorf("block %s: threshold %v, want %v", block, r.threshold(&c), want)
		}
	}
	n := newNode(t, 1, Options{}, field.UncorrectedErrors, field.AMDRASErrors) // the first has the sum of all blocks
	n.view.Sources[0].Columns[1].Labels = []collector.Label{{Name: "block", Value: "umc"}, {Name: "severity", Value: "ue"}}
	n.restart(Options{Rules: rules})
	n.rows[0][1] = 5
	n.step(5, 2, time.Second, events.OK, "")
	n.rows[0][1] = 6
	n.step(6, 2, time.Second, events.Failed, "ras_uncorrected")
	f("a=1,b=2,hot=3,hot=off", `"a"`, `"b"`, "hot is set twice")
}

func TestReadingsAreCheap(t *testing.T) {
	for _, r := range Table().Readings(30*time.Second, true) {
		testkit.ErrorIf(t, strings.Contains(r.Desc.Name, "_PROF_") || r.Desc.Level > field.ComputeInstance && r.Desc.Level != field.Switch, "%s is read for health", r.Desc.Name)
		if r.Interval < 30*time.Second && r.Desc.Level != field.Switch && r.Desc.ID != field.XIDEvent && r.Desc.ID != field.TotalEnergy { // one that ends verdicts
			t.Errorf("%s is read every %v", r.Desc.Name, r.Interval)
		}
	}
	if n := len(Rules(nil).Readings(time.Second, true)); n > 0 {
		t.Errorf("without rules %d readings are taken", n)
	}
}

// TestAReadingThatIsAbsentSaysNothing: a verdict lists the rules without a reading with the reason, if the vendor has the reading.
func TestAReadingThatIsAbsentSaysNothing(t *testing.T) {
	f := func(has field.ID, rule string, want collector.Reason) {
		t.Helper()
		n := newNode(t, 2, Options{}, has)
		s := n.view.Sources[0]
		s.Columns[1].Field = field.AMDXGMILinkUp // of another vendor's GPU
		s.Explanations = []collector.Explanation{{Reason: collector.ReasonUnsupported}, {Reason: collector.ReasonPermission}}
		s.Absent = []collector.Absence{{Device: 1, Field: 395}, {Field: 395, Explanation: 1}, {Device: 1, Field: field.AMDRASErrors}, {Field: field.AMDRASErrors, Explanation: 2}}
		n.restart(Options{})
		n.after(1, time.Second, "GPU-a", events.OK, "")
		why := collector.Reason("")
		for _, u := range n.of("GPU-a").Unjudged {
			if u.Rule == rule {
				why = u.Why
			}
		}
		testkit.Equal(t, fmt.Sprintf("with reading %d, %s is unjudged because of", has, rule), want, why)
	}
	f(temperature, "hot", "")
	f(temperature, "row_remap_failed", collector.ReasonPermission)
	f(temperature, "retired_pages", collector.ReasonNotListed)
	f(temperature, "ras_uncorrected", "") // the vendor is unknown
	f(remapPending, "ras_uncorrected", "")
	f(field.AMDXGMILinkUp, "ras_uncorrected", collector.ReasonNotListed) // the explanation is not there
	f(field.AMDXGMILinkUp, "row_remap_pending", "")
}

// TestABlankKeepsTheCondition: a missing reading does not end a condition.
func TestABlankKeepsTheCondition(t *testing.T) {
	n := newNode(t, 1, Options{}, remapPending, field.RetiredPagesUncorrected)
	n.step(1, 1, time.Second, events.Degraded, "row_remap_pending")
	n.step(blank, 10, time.Minute, events.Degraded, "row_remap_pending")
	n.step(0, 1, time.Second, events.OK, "")
	n.rows[0][1] = 16
	n.step(0, 1, time.Second, events.Failed, "retired_pages")
}

// TestAGPUWithoutAnyValue: a GPU that answers without any value is up, but faulty.
func TestAGPUWithoutAnyValue(t *testing.T) {
	n := newNode(t, 2, Options{}, 150, 155, 203)
	n.after(1, time.Second, "GPU-a", events.OK, "")
	n.rows[0] = []float64{blank, blank, blank}
	n.rows[1] = []float64{blank, 100, blank}
	n.after(5, time.Second, "GPU-a", events.Unknown, "stalled")
	n.want("GPU-b", events.OK, "")
	testkit.Has(t, "the verdict", n.of("GPU-a").Text, "no reading has a value")
	n.rows[0] = []float64{40, 100, 0}
	n.after(40, time.Second, "GPU-a", events.OK, "")
}

func TestXIDs(t *testing.T) {
	n := newNode(t, 2, Options{}, energy)
	n.rows[0][0], n.rows[1][0] = 1e9, 1e9
	n.tick(time.Second)
	n.Observe(Observation{Reason: "xid", Code: 31, Device: "GPU-a", Time: n.now}) // an application error
	n.Observe(Observation{Reason: "xid", Code: 79, PCIBusID: "PCI:0000:02:00", Time: n.now, Source: "nvml", Text: "NVRM: Xid 79"})
	n.Observe(Observation{Reason: "sxid_fatal", PCIBusID: "nonsense", Time: n.now})
	n.Observe(Observation{Reason: "sxid_fatal", PCIBusID: "0000:05:00.0", Time: n.now, Source: SourceKernelLog})
	n.after(1, time.Second, "pci:00000000:05:00.0", events.Degraded, "sxid_fatal") // no collector reads the switch: only the log knows
	n.want("GPU-a", events.OK, "")
	n.want("GPU-b", events.Failed, "xid_79")
	v := n.of("GPU-b")
	testkit.ErrorIf(t, v.Action != events.ActionReboot || len(v.Conditions[0].Evidence) != 1 || v.Conditions[0].Evidence[0].Source != "nvml", "the verdict is %+v", v)
	testkit.Equal(t, fmt.Sprintf("heard %+v", n.heard), 2, len(n.heard))
	n.ticks(48, time.Hour) // time alone does not end it
	n.want("GPU-b", events.Failed, "xid_79")
	n.rows[1][0] = 9e8 // the same reading from another library
	n.after(1, time.Second, "GPU-b", events.Failed, "xid_79")
	n.rows[1][0] = 1e3
	n.after(1, time.Second, "GPU-b", events.OK, "")
	n.Observe(Observation{Reason: "xid", Code: 79, Device: "GPU-b", Time: n.now.Add(-time.Minute)}) // observed late
	n.after(1, time.Second, "GPU-b", events.OK, "")
}

// TestQuiet: an observed condition ends when the rule's quiet time has passed.
func TestQuiet(t *testing.T) {
	for _, r := range Table() {
		if r.Test != field.Observed || r.End != AfterQuiet {
			continue
		}
		n := newNode(t, 1, Options{}, energy)
		n.tick(time.Second)
		for range 2 { // the second one counts
			n.Observe(Observation{Reason: r.Name, Device: "GPU-a", Time: n.now.Add(r.For)})
			n.tick(r.For + time.Minute)
		}
		n.after(1, r.Quiet-2*time.Minute, "GPU-a", r.State, r.Name)
		n.after(1, 2*time.Minute, "GPU-a", events.OK, "")
		testkit.Equal(t, fmt.Sprintf("rule %s: heard %+v", r.Name, n.heard), 2, len(n.heard))
	}
}

// TestABoardThatNoDriverServes: a board without a driver gets a verdict by its address until a driver serves it.
func TestABoardThatNoDriverServes(t *testing.T) {
	n := newNode(t, 1, Options{}, temperature)
	n.tick(time.Second)
	const at = "0000:0a:00.0"
	n.Observe(Observation{Reason: "missing", PCIBusID: at, Time: n.now, Source: "pci"})
	n.tick(time.Second)
	n.after(121, time.Second, "pci:00000000:0A:00.0", events.Failed, "missing")
	data := testkit.Get(json.Marshal(n.content()))(t)
	n.restart(Options{})
	must(t, n.restore(data))
	n.after(1, time.Second, "pci:00000000:0A:00.0", events.Failed, "missing")
	n.Observe(Observation{Reason: "missing", PCIBusID: at, Over: true})
	n.ticks(2, time.Second)
	if v := n.of("pci:00000000:0A:00.0"); v.Text != "not there" || len(n.Board().Load().Verdicts) != 1 {
		t.Errorf("the verdict is %+v", v)
	}
	n.Observe(Observation{Reason: "xid", Code: 79, PCIBusID: "0000:02:00.0"})
	n.after(1, time.Second, "pci:00000000:02:00.0", events.Failed, "xid_79")
	d := collector.Device{ID: "GPU-x", Level: field.GPU, GPU: "1", PCIBusID: "00000000:02:00.0"}
	n.status[0].Devices = append(n.status[0].Devices, session.DeviceStatus{Device: d, LastSample: n.now})
	n.after(2, time.Second, "GPU-x", events.Failed, "xid_79")
	testkit.Equal(t, "verdicts", 2, len(n.Board().Load().Verdicts))
}

func TestInstancesAreAsIllAsTheirBoard(t *testing.T) {
	s := &view.Source{Devices: []collector.Device{{ID: "a/1", Parent: "a"}, {ID: "a"}, {ID: "a/1/0", Parent: "a/1"}, {ID: "link", Parent: "b"}}}
	for i, want := range []string{"a", "a", "a", "b"} {
		testkit.Equal(t, fmt.Sprintf("the board of %s", s.Devices[i].ID), want, boardOf(s, i))
	}
	n := newNode(t, 1, Options{}, remapPending)
	n.status[0].Devices = append(n.status[0].Devices, session.DeviceStatus{Device: collector.Device{ID: "GPU-a/1", Parent: "GPU-a", Level: field.Instance, GPU: "0"}, LastSample: n.now})
	n.after(1, time.Second, "GPU-a/1", events.OK, "")
	n.Observe(Observation{Reason: "xid", Code: 95, Device: "GPU-a/1"})
	n.after(1, time.Second, "GPU-a", events.Failed, "xid_95")
	n.want("GPU-a/1", events.Failed, "xid_95")
	n.status[0].Devices = n.status[0].Devices[:1] // the instance is removed
	n.tick(time.Second)
	if len(n.Board().Load().Verdicts) != 1 || len(n.heard) != 1 {
		t.Errorf("%d verdicts, %d events", len(n.Board().Load().Verdicts), len(n.heard))
	}
}

// TestOneRuleDoesNotFlap: one rule changes the verdict at most twice per quiet time.
func TestOneRuleDoesNotFlap(t *testing.T) {
	for _, r := range Table() {
		if len(r.Readings) == 0 || r.Derived != field.NotDerived || r.End != AfterQuiet || r.Label.Name != "" || r.Readings[0] == field.GPUHealth {
			continue
		}
		n := newNode(t, 1, Options{Rules: Rules{r}}, r.Readings[0])
		random := rand.New(rand.NewPCG(1, 2))
		for range 20_000 {
			n.rows[0][0] = r.Threshold
			switch {
			case r.Test == field.Rises:
				n.rows[0][0] = float64(random.IntN(3)) * r.Threshold
			case random.IntN(2) == 0:
				n.rows[0][0] = 0
			}
			n.tick(time.Second)
		}
		if most := 2*int(n.now.Sub(start)/r.Quiet) + 2; len(n.heard) > most {
			t.Errorf("rule %s: %d changes, want at most %d", r.Name, len(n.heard), most)
		}
		for i := range n.heard[min(1, len(n.heard)):] {
			if a, b := n.heard[i], n.heard[i+1]; a.State == b.State && a.Reason == b.Reason {
				t.Errorf("two events of one verdict: %v %q", a.State, a.Reason)
			}
		}
	}
}

func TestTheClockIsSetBack(t *testing.T) {
	n := newNode(t, 1, Options{}, remapPending)
	n.step(1, 1, time.Second, events.Degraded, "row_remap_pending")
	n.step(0, 1, -24*time.Hour, events.Degraded, "row_remap_pending")
	n.step(0, 3, time.Minute, events.OK, "")
}

func TestObservationsAreBounded(t *testing.T) {
	n := newNode(t, 1, Options{}, remapPending)
	for i := range 10 * maxObservations {
		n.Observe(Observation{Reason: "xid", Code: 79, PCIBusID: fmt.Sprintf("%04x:%02x:00.0", i>>8+1, i&255)})
	}
	n.ticks(10, time.Second)
	testkit.AtMost(t, "verdicts", maxObservations+1, len(n.Board().Load().Verdicts))
}

func TestMetric(t *testing.T) {
	n := newNode(t, 2, Options{}, remapPending)
	n.rows[0][0] = 1
	n.tick(time.Second)
	const want = `# HELP warpgauge_device_health 1, labelled with the verdict on the device: its state (ok, degraded, failed, unknown), the reason code, and what to do.
# TYPE warpgauge_device_health gauge
warpgauge_device_health{action="reset_gpu",collector="test",device="GPU-a",gpu="0",reason="row_remap_pending",state="degraded"} 1
warpgauge_device_health{action="none",collector="test",device="GPU-b",gpu="1",reason="",state="ok"} 1
`
	must(t, testutil.CollectAndCompare(n.Watch, strings.NewReader(want)))
}

// TestNothingNewAllocatesNothing: a second without changes allocates nothing.
func TestNothingNewAllocatesNothing(t *testing.T) {
	n := newNode(t, 8, Options{}, remapPending, energy, temperature, 395, 311, 1523)
	n.ticks(5, time.Second)
	testkit.Equal(t, "allocations a second", 0.0, testing.AllocsPerRun(100, func() { n.tick(time.Second) }))
	version := n.Board().Load().Version
	n.tick(time.Second)
	testkit.Equal(t, "a Snapshot is published although nothing has changed", version, n.Board().Load().Version)
}
