package extension

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"warpgauge/collectors/fake"
	"warpgauge/extensions/health"
	"warpgauge/extensions/health/kernellog"
	"warpgauge/extensions/health/pci"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

// kernelFault returns the fault of a rule that only the kernel log reports: a line about GPU 1.
func kernelFault(r *health.Rule) (fault, bool) {
	kind := kernellog.Kind(r.Name)
	if r.Name == "ras_error" {
		kind = kernellog.RASUncorrected
	}
	if reasonOf(kind) != r.Name {
		return fault{}, false
	}
	profile := nvidiaNode
	if strings.HasPrefix(string(kind), "amdgpu") || strings.HasPrefix(string(kind), "ras") || kind == kernellog.XGMIError {
		profile = amdNode
	}
	return fault{profiles: []string{profile}, logOnly: true, begin: func(n *judgedNode) func() {
		at, _ := pci.Parse(n.verdict(field.GPU, "1").Device.PCIBusID)
		say := func(k kernellog.Kind) {
			n.host.addKernelEvent(kernellog.Event{Kind: k, Address: at, Time: time.Now(), Text: "a line"})
		}
		say(kind)
		return func() {
			switch {
			case r.End != health.AfterReset:
			case profile == amdNode:
				say(kernellog.AMDResetDone)
			default:
				n.reset()
			}
		}
	}}, true
}

// TestXIDsCountOnce reports XIDs of simulated GPUs through the library, the log, or both.
func TestXIDsCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "kmsg")
		must(t, os.WriteFile(path, nil, 0o644))
		n := newJudgedNode(t, nvidiaNode, "DCGM_FI_DEV_SM_CLOCK, gauge, c\nDCGM_EXP_XID_ERRORS_TOTAL, counter, x\n", "--kernel-log="+path)
		var stages sync.WaitGroup
		for _, run := range []func(context.Context) error{n.host.missing.run, n.host.follow} {
			stages.Go(func() { _ = run(t.Context()) })
		}
		t.Cleanup(stages.Wait)
		time.Sleep(3 * time.Second)
		seq := 0
		line := func(format string, args ...any) {
			f := testkit.Get(os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0))(t)
			seq++
			var up unix.Timespec
			must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &up)) // the kernel's clock
			fmt.Fprintf(f, "3,%d,%d,-;"+format+"\n", append([]any{seq, up.Nano() / 1000}, args...)...)
			must(t, f.Close())
		}
		address := func(gpu string) string { return n.verdict(field.GPU, gpu).Device.PCIBusID[4:14] }
		xid := func(code int) { // an XID of GPU 1
			testkit.Get(n.world.Inject(fake.Fault{Kind: fake.XID, XID: code, GPUs: []fake.Span{{First: 1, Last: 1}}}))(t)
		}
		line("NVRM: Xid (PCI:%s): 94, pid=7, name=train, Contained: SM (0x1). RST: No, D-RST: No", address("1"))
		time.Sleep(8 * time.Second) // at most ten: the file's clock and the next sample may add a second each
		xid(94)
		xid(63)
		time.Sleep(3 * time.Second)
		line("NVRM: Xid (PCI:%s): 79, pid=7, name=train, GPU has fallen off the bus.", address("0"))
		line("NVRM: GPU at PCI:%s: x", address("0"))
		line("NVRM: Xid (PCI:0000:aa:00): 45, pid=7, name=train, Ch 00000008")
		line("pcieport 0000:00:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)") // a device that is not a GPU
		time.Sleep(3 * time.Second)
		if v := n.verdict(field.GPU, "0"); v.State != events.Degraded || v.Reason != "xid_79" || v.Action != events.ActionNone || len(v.Conditions) != 1 ||
			v.Conditions[0].Evidence[0].Source != health.SourceKernelLog || !strings.Contains(v.Conditions[0].Evidence[0].Text, "fallen off the bus") {
			t.Errorf("after an XID that only the log has the verdict is %+v", v)
		}
		time.Sleep(time.Minute)
		var events []string
		all := n.log.All()
		for _, e := range all {
			if e.Kind == "xid" || e.Kind == "kernel_log" {
				events = append(events, e.GPU+" "+e.Source+" "+e.Text)
			}
		}
		slices.Sort(events)
		wantEvents := []string{
			" kernel log XID 45: Preemptive cleanup, due to previous errors -- Most likely to see when running multiple cuda, of the GPU at 00000000:AA:00.0, which no collector serves, process train (7)",
			"0 kernel log XID 79: GPU has fallen off the bus, process train (7)",
			"1 fake XID 63: ECC page retirement or row remapping recording event",
			"1 kernel log XID 94: Contained ECC error, process train (7)",
		}
		testkit.Equal(t, "events", wantEvents, events)
	})
}

// TestKernelEvents: a line about a GPU, or about the only board behind a port, is an observation, an event, or only counted.
func TestKernelEvents(t *testing.T) {
	m := newMachine(t, 0)
	m.serve(0x18)
	m.boards[0].Port = pci.Address{Bus: 0x17}
	m.boards[1].Port, m.boards[2].Port = pci.Address{Bus: 0x37}, pci.Address{Bus: 0x37}
	observed, bus := "", new(events.Bus)
	published := bus.Subscribe(64, events.XID, events.KernelLog)
	w := &hostEvents{
		events: bus, missing: m.missing, faults: kernellog.NewDeduplicator(time.Second), unserved: map[pci.Address]bool{},
		observe: func(o health.Observation) { observed += o.Reason + " " + o.PCIBusID[9:11] + " " + o.Device + "; " },
	}
	f := func(bus uint8, k kernellog.Kind, want string) {
		t.Helper()
		m.now, observed = m.now.Add(time.Minute), ""
		w.addKernelEvent(kernellog.Event{Kind: k, Address: pci.Address{Bus: bus}, Time: m.now, Text: "a line"})
		got := observed
		for len(published.C) > 0 {
			e := <-published.C
			got += fmt.Sprint("event ", e.Device.ID, " ", e.Bad)
		}
		testkit.Equal(t, fmt.Sprintf("%s at %x", k, bus), want, got)
	}
	f(0x18, kernellog.AERFatal, "aer_fatal 18 GPU-24; event GPU-24 true")
	f(0x17, kernellog.AERUncorrected, "aer_uncorrected 18 GPU-24; event GPU-24 true")
	f(0x18, kernellog.AERCorrected, "")
	f(0x18, kernellog.RASCorrected, "")
	f(0x18, kernellog.RASUncorrected, "ras_error 18 GPU-24; event GPU-24 true")
	f(0x18, kernellog.AMDReset, "amdgpu_reset 18 GPU-24; event GPU-24 true")
	f(0x18, kernellog.AMDResetDone, "reset 18 GPU-24; event GPU-24 false")
	f(0x18, kernellog.GSPTimeout, "event GPU-24 false")
	f(0x37, kernellog.AERFatal, "") // two boards are behind this port
	f(0x99, kernellog.AERFatal, "")
	f(0, kernellog.FellOffBus, "event  true") // the line names no GPU
	m.serve(0x18, 0x3b)
	f(0x3b, kernellog.AERFatal, "aer_fatal 3B ; event  true")
	w.asOf = w.asOf.Add(-6 * time.Second) // the devices are read again
	f(0x3b, kernellog.AERFatal, "aer_fatal 3B GPU-59; event GPU-59 true")
	m.missing.hidden[field.VendorNVIDIA] = true // some GPUs are deselected, perhaps this one
	f(0x4c, kernellog.AERFatal, "event  true")
	for range 2 { // two lines about one error
		w.addKernelEvent(kernellog.Event{Kind: kernellog.XID, Code: 145, Address: pci.Address{Bus: 0x4c}, Time: m.now, Text: "a line"})
	}
	testkit.ErrorIf(t, observed != "" || len(published.C) != 1, "an XID of a GPU that may be deselected: %q, %d events", observed, len(published.C))
	<-published.C
	f(0x18, kernellog.AERFatal, "aer_fatal 18 GPU-24; event GPU-24 true")
	for e, want := range map[kernellog.Event]string{{PID: 7}: ", process (7)", {Process: "a"}: ", process a", {Cause: 45}: ", caused by XID 45", {}: ""} {
		testkit.Equal(t, "details", want, detail(&e, false))
	}
}

// fakeEngine has collectors for two vendors.
type fakeEngine struct{ status []session.CollectorStatus }

func (e *fakeEngine) Status() []session.CollectorStatus { return e.status }
func (*fakeEngine) AwaitOpened(context.Context)         {}

func (*fakeEngine) Vendor(collector string) *field.Vendor {
	return map[string]*field.Vendor{"dcgm": field.VendorNVIDIA, "nvml": field.VendorNVIDIA, "rocm": field.VendorAMD}[collector]
}

func TestHiddenVendors(t *testing.T) {
	f := func(devices, visible string, nvidia, amd bool) {
		t.Helper()
		lookup := func(name string) (string, bool) { return visible, visible != "-" && name == "NVIDIA_VISIBLE_DEVICES" }
		var cfg config.Config
		cfg.GPUs = testkit.Get(config.ParseSelector(devices))(t)
		if got := hiddenVendors(&cfg, lookup); got[field.VendorNVIDIA] != nvidia || got[field.VendorAMD] != amd {
			t.Errorf("--devices=%s NVIDIA_VISIBLE_DEVICES=%s: %v", devices, visible, got)
		}
	}
	f("f", "-", false, false)
	f("g", "all", false, false)
	f("g", "management.nvidia.com/gpu=all", false, false)
	f("g+i:0", "void", false, false)
	f("g:0,1", "-", true, true)
	f("i", "-", true, true)
	f("f", "0,1", true, false)
	f("f", "GPU-8a47641b", true, false)
}

// TestStrangers: a log with many unknown addresses creates a bounded number of series and verdicts.
// Served GPUs keep theirs.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "kmsg")
		must(t, os.WriteFile(path, nil, 0o644))
		n := newJudgedNode(t, nvidiaNode, "DCGM_FI_DEV_SM_CLOCK, gauge, c\n", "--kernel-log="+path)
		time.Sleep(3 * time.Second)
		xid := func(at pci.Address) {
			n.host.addKernelEvent(kernellog.Event{Kind: kernellog.XID, Code: 79, Address: at, Time: time.Now(), Text: "a line"})
		}
		for i := range 10 * maxUnserved {
			xid(pci.Address{Domain: uint32(i + 1), Bus: 1})
			time.Sleep(time.Second)
		}
		at, _ := pci.Parse(n.verdict(field.GPU, "1").Device.PCIBusID)
		xid(at)
		time.Sleep(3 * time.Second)
		testkit.Equal(t, "after lines of strangers an XID of a GPU makes it", "xid_79", n.verdict(field.GPU, "1").Reason)
		testkit.Equal(t, "verdicts", 2+4+maxUnserved, len(n.watch.Board().Load().Verdicts))
		// One per stranger, one for the GPU, one for all further strangers.
		testkit.Equal(t, "addresses have series", maxUnserved+2, testutil.CollectAndCount(n.host.faults, "warpgauge_kernel_log_events_total"))
	})
}
