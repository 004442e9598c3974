package extension

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"warpgauge/collectors/fake"
	"warpgauge/extensions/health"
	"warpgauge/extensions/health/kernellog"
	"warpgauge/extensions/health/pci"
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
	return fault{profiles: []string{profile}, begin: func(n *judgedNode) func() {
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

// TestWitnesses reports XIDs of simulated GPUs through the library, the log, or both.
func TestWitnesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "kmsg")
		must(t, os.WriteFile(path, nil, 0o644))
		n := newJudgedNode(t, nvidiaNode, "DCGM_FI_DEV_SM_CLOCK, gauge, c\nDCGM_EXP_XID_ERRORS_TOTAL, counter, x\n", "--kernel-log="+path)
		done := make(chan bool)
		go func() { _ = n.host.log.Run(t.Context()); close(done) }()
		t.Cleanup(func() { <-done })
		time.Sleep(3 * time.Second)
		seq := 0
		line := func(format string, args ...any) {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			seq++
			fmt.Fprintf(f, "3,%d,%d,-;"+format+"\n", append([]any{seq, seq}, args...)...)
			must(t, f.Close())
		}
		address := func(gpu string) string { return n.verdict(field.GPU, gpu).Device.PCIBusID[4:14] }
		xid := func(code int) { // an XID of GPU 1
			_, err := n.world.Inject(fake.Fault{Kind: fake.XID, XID: code, GPUs: []fake.Span{{First: 1, Last: 1}}})
			must(t, err)
		}
		line("NVRM: Xid (PCI:%s): 94, pid=7, name=train, Contained: SM (0x1). RST: No, D-RST: No", address("1"))
		xid(94)
		xid(63)
		time.Sleep(3 * time.Second)
		line("NVRM: Xid (PCI:%s): 79, pid=7, name=train, GPU has fallen off the bus.", address("0"))
		line("NVRM: GPU at PCI:%s: x", address("0"))
		line("NVRM: Xid (PCI:0000:aa:00): 45, pid=7, name=train, Ch 00000008")
		line("pcieport 0000:00:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)") // a device that is not a GPU
		time.Sleep(3 * time.Second)
		if v := n.verdict(field.GPU, "0"); v.State != events.Failed || v.Reason != "xid_79" || len(v.Conditions) != 1 ||
			v.Conditions[0].Evidence[0].Source != sourceKernelLog || !strings.Contains(v.Conditions[0].Evidence[0].Text, "fallen off the bus") {
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
			"1 fake XID 63: Row remapper: New row marked for remapping, reset gpu to activate.",
			"1 kernel log XID 94: Contained memory error, process train (7)",
		}
		for i, e := range events {
			if i < len(wantEvents) && strings.HasPrefix(e, "1 ") { // the order of the two reports is random
				events[i], wantEvents[i] = e[:strings.Index(e, "XID")], events[i][:strings.Index(e, "XID")]
			}
		}
		if !slices.Equal(events, wantEvents) {
			t.Errorf("events\n%q, want\n%q", events, wantEvents)
		}
	})
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
		var err error
		cfg.GPUs, err = config.ParseSelector(devices)
		must(t, err)
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
		if v := n.verdict(field.GPU, "1"); v.Reason != "xid_79" {
			t.Errorf("after lines of strangers an XID of a GPU makes it %+v", v)
		}
		if got, want := len(n.watch.Board().Load().Verdicts), 2+maxUnserved; got != want {
			t.Errorf("%d verdicts, want %d", got, want)
		}
		// One per stranger, one for the GPU, one for all further strangers.
		if got, want := testutil.CollectAndCount(n.host.ledger, "warpgauge_kernel_log_events_total"), maxUnserved+2; got != want {
			t.Errorf("%d addresses have series, want %d", got, want)
		}
	})
}
