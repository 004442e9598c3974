package health

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

// TestKindOf has public lines: 1 to 5 from leptonai/gpud 4a8de33 (kmsg_extended_test.go), the last one of each code made from the
// catalogue's table.
func TestKindOf(t *testing.T) {
	f := func(code int, rest, want string) {
		t.Helper()
		testkit.Equal(t, fmt.Sprint(code, " ", rest), want, kindOf(code, "NVRM: Xid (PCI:0018:01:00): "+rest))
	}
	f(149, "149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)", xidNothing)
	f(145, "145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)", xidNothing)
	f(145, "145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)", "") // XID 154 decides
	f(149, "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)", xidReset)
	f(149, "149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)", xidReset) // not in the catalogue: Fatal decides
	f(145, "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x000000c2 0x00000001)", xidNothing)
	f(145, "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x000004c2 0x00000001)", xidReset) // action 2, before R575
	f(145, "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000086 0x00000001)", xidReset) // action 2, since
	f(145, "145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040)", xidReset)
	f(149, "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x02800011 0x00000000)", xidNothing) // link fatal, and IGNORE
	f(145, "145, pid=1, name=a, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040), RLW_CTRL Nonfatal XC0 i0 Link 00 (0x00000003 0x80000000)", xidNothing)
	f(145, "145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004", "")
	f(149, "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x004505c6 0x00000000 0x00000000)", xidReset) // as the driver pads them
	f(149, "149, NETIR_BER_EVENT Nonfatal XC 1 i 2 Link 01 [0x0000000a]", xidNothing)
	const link = "74, pid=1712, name=python3, NVLink: fatal error detected on link 4"
	f(74, link+"(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", xidNothing)
	f(74, link+"(0x40800001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", xidNothing)
	f(74, link+"(0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "")
	f(74, link+"(0x1, 0x0, 0x4, 0x0, 0x0, 0x0, 0x0)", "")
	f(48, "48, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040)", "")
	f(154, "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "reboot")
	f(154, "154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", xidNothing)
	f(154, "154, GPU recovery action changed from 0x0 (None) to 0xf (New)", "other")
}

// TestCatalogue compares the rows with the counts of the catalogue's two tables.
func TestCatalogue(t *testing.T) {
	counts := map[string]int{}
	for _, x := range catalogue {
		if x.Unit != "" {
			x.Resolution = "kind " + x.Resolution
		}
		counts[x.Resolution]++
	}
	for what, want := range map[string]int{
		"RESET_GPU": 14, "RESTART_APP": 48, "IGNORE": 21 + 6, "WORKFLOW_NVLINK5_ERR": 7, "WORKFLOW_XID_48": 1 + 2, "RESTART_BM": 1 + 3,
		"kind RESET_GPU": 41 + 3, "kind IGNORE": 45, "kind XID_154_EVAL": 8, // three kinds have a second action
	} {
		testkit.Equal(t, "rows that say "+what, want, counts[what])
	}
	for _, code := range []int{13, 31, 43, 45, 63, 92, 94, 157} { // of applications, or nothing to do
		testkit.ErrorIf(t, Table().find(fmt.Sprint("xid_", code)) != nil, "XID %d has a rule", code)
	}
}

// TestLogOnly: what only the kernel's log says does not fail a device that answers, until a library says the same, or for an
// hour.
func TestLogOnly(t *testing.T) {
	n := newNode(t, 1, Options{}, field.GPUTemperature)
	n.step(60, 2, time.Second, events.OK, "")
	log := Observation{Reason: ReasonXID, Code: 48, Device: "GPU-a", Time: n.now, Source: SourceKernelLog, Text: "a line"}
	n.Observe(log)
	n.step(60, 1, time.Second, events.Degraded, "xid_48")
	testkit.Equal(t, "the action", events.ActionNone, n.of("GPU-a").Action)
	n.step(60, 60, time.Minute, events.OK, "")
	log.Time = n.now
	n.Observe(log)
	n.Observe(Observation{Reason: ReasonXID, Code: 4, Device: "GPU-a", Source: "nvml", Confirms: true}) // another XID
	n.step(60, 1, time.Second, events.Degraded, "xid_48")
	if c := n.content().Devices[0].Conditions; len(c) != 1 || !c[0].LogOnly {
		t.Errorf("the file has %+v", c)
	}
	n.status[0].Devices[0].State = session.Released // no collector asks it
	n.step(60, 1, time.Second, events.Degraded, "xid_48")
	n.Observe(Observation{Reason: ReasonXID, Code: 48, Device: "GPU-a", Time: n.now, Source: "nvml", Confirms: true})
	n.status[0].Devices[0].State = session.Up
	n.step(60, 70, time.Minute, events.Failed, "xid_48")

	// A restart of the exporter ends no condition before a collector reports the GPU.
	o := Options{Store: NewStore(t.TempDir()), BootID: "b"}
	n.restart(o)
	log.Time = n.now
	n.Observe(log)
	n.step(60, 1, time.Second, events.Degraded, "xid_48")
	saved := testkit.Get(json.Marshal(n.content()))(t)
	n.restart(o)
	must(t, n.restore(saved))
	n.status[0] = session.CollectorStatus{Name: "test", Cause: session.CauseOpening}
	n.after(1, 2*doubtFor, "GPU-a", events.Degraded, "xid_48")
}

// TestBothWitnesses: a kind has the same verdict whether the driver or the log reports it first.
func TestBothWitnesses(t *testing.T) {
	line := "NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040)"
	for _, all := range [][]Observation{
		{{Source: "nvml"}, {Source: SourceKernelLog, Text: line, Confirms: true}},
		{{Source: SourceKernelLog, Text: line}, {Source: "nvml", Confirms: true}},
	} {
		for _, between := range []time.Duration{time.Second, 0} { // 0: in one judgement
			n := newNode(t, 1, Options{}, field.GPUTemperature)
			n.step(60, 2, time.Second, events.OK, "")
			for _, o := range all {
				o.Reason, o.Code, o.Device, o.Time = ReasonXID, 145, "GPU-a", n.now
				n.Observe(o)
				if between > 0 {
					n.tick(between)
				}
			}
			n.step(60, 1, time.Second, events.Failed, "xid_145_reset")
		}
	}
	// A copied log that has a line twice leaves the verdict.
	n := newNode(t, 1, Options{}, field.GPUTemperature)
	n.step(60, 2, time.Second, events.OK, "")
	change := "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
	for _, o := range []Observation{{Source: "nvml"}, {Source: SourceKernelLog, Text: change, Confirms: true}, {Source: SourceKernelLog, Text: change}} {
		o.Reason, o.Code, o.Device, o.Time = ReasonXID, 154, "GPU-a", n.now
		n.Observe(o)
		n.tick(time.Second)
	}
	n.want("GPU-a", events.Failed, "xid_154_reset")
}

// TestHarmlessLines: a line that says that nothing is wrong ends no fault of another link, and two errors that have such lines raise none
// when the driver reports both.
func TestHarmlessLines(t *testing.T) {
	const harmless, bad = "NVLink: fatal error detected on link 5(0x1, 0x0, 0x0)", "NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0)"
	for _, c := range []struct {
		lines []string // "": the driver's report
		want  events.State
	}{{[]string{bad, harmless}, events.Degraded}, {[]string{"", bad, harmless}, events.Failed}, {[]string{harmless, harmless, "", ""}, events.OK}, {[]string{"", harmless}, events.OK}} {
		n := newNode(t, 1, Options{}, field.GPUTemperature)
		n.step(60, 2, time.Second, events.OK, "")
		for _, line := range c.lines {
			o := Observation{Reason: ReasonXID, Code: 74, Device: "GPU-a", Time: n.now, Source: "nvml"}
			if line != "" {
				o.Source, o.Text, o.Confirms = SourceKernelLog, "NVRM: Xid (PCI:0000:3b:00): 74, "+line, c.lines[0] == ""
			}
			n.Observe(o)
			n.tick(time.Second)
			if got := n.of("GPU-a").State; got != events.OK && got != c.want {
				t.Errorf("%q: %v meanwhile", c.lines, got)
			}
		}
		n.step(60, 2, time.Second, c.want, n.of("GPU-a").Reason)
	}
}

// TestConfirmedBurst: a second line, of a new burst, does not take the confirmation of the first from a fault that waits.
func TestConfirmedBurst(t *testing.T) {
	n := newNode(t, 1, Options{}, field.GPUTemperature)
	n.step(60, 2, time.Second, events.OK, "")
	line := "NVRM: Xid (PCI:0000:3b:00): 74, NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0)"
	for _, o := range []Observation{{Source: "nvml"}, {Source: SourceKernelLog, Text: line, Confirms: true}, {Source: SourceKernelLog, Text: line}} {
		o.Reason, o.Code, o.Device, o.Time = ReasonXID, 74, "GPU-a", n.now
		n.Observe(o)
		n.tick(900 * time.Millisecond)
	}
	n.step(60, 3, time.Second, events.Failed, "xid_74")
}

// TestXIDKinds: the driver reports a code, and its line in the log may say that nothing is wrong, or that the GPU must be
// reset.
func TestXIDKinds(t *testing.T) {
	n := newNode(t, 1, Options{}, field.GPUTemperature)
	n.step(60, 2, time.Second, events.OK, "")
	says := func(code int, text, reason string, action events.Action) {
		t.Helper()
		n.Observe(Observation{Reason: ReasonXID, Code: code, Device: "GPU-a", Time: n.now, Text: text})
		n.tick(time.Second)
		if v := n.of("GPU-a"); v.Reason != reason || v.Action != action {
			t.Errorf("%d %q: the verdict is %q, %q, want %q, %q", code, text, v.Reason, v.Action, reason, action)
		}
	}
	const line = "NVRM: Xid (PCI:0000:3b:00): "
	says(31, "", "", events.ActionNone)
	says(145, "", "xid_145", events.ActionNone)
	says(145, line+"145, RLW_CTRL Nonfatal XC0 i0 Link 00 (0x00000003 0x80000000)", "", events.ActionNone)
	says(145, line+"145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040)", "xid_145_reset", events.ActionReset)
	says(154, line+"154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "xid_154_reboot", events.ActionReboot)
	says(154, line+"154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x1 (GPU Reset Required)", "xid_145_reset", events.ActionReset)
	says(154, line+"154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "xid_145_reset", events.ActionReset)
	n.Observe(Observation{Reason: ReasonReset, Device: "GPU-a", Time: n.now})
	n.step(60, 1, time.Second, events.OK, "")
	says(154, line+"154, GPU recovery action changed from 0x0 (None) to 0x1f (Something New)", "xid_154_other", events.ActionContact)
	for after, change := range map[time.Duration]string{2: "0x0 (None) to 0x2 (Node Reboot Required)", 0: "0x0 (None) to 0x1 (GPU Reset Required)", 1: "0x1 (GPU Reset Required) to 0x0 (None)"} { // in any order
		n.Observe(Observation{Reason: ReasonXID, Code: 154, Device: "GPU-a", Time: n.now.Add(after), Text: line + "154, GPU recovery action changed from " + change})
	}
	n.now = n.now.Add(time.Second)
	n.step(60, 1, time.Second, events.Failed, "xid_154_reboot")
}
