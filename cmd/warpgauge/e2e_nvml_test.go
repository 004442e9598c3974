//go:build linux && cgo

package main_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// nvmlNode is a simulated node: a libnvidia-ml.so.1 in C, which the binary loads like the driver's, and the exporter.
type nvmlNode struct {
	*nvmltest.Node
	*exporter
	csv, isolation string
}

const (
	nvmlCSV = `DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.
DCGM_FI_DEV_XID_ERRORS, gauge, Last XID.
DCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs within the window.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since start.
DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, Clock events since start.
DCGM_EXP_GPU_HEALTH_STATUS, gauge, Health.
DCGM_EXP_P2P_STATUS, gauge, Peers.
DCGM_FI_PROF_SM_ACTIVE, gauge, SMs.
DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL, counter, CRC errors.
`
	clock       = "DCGM_FI_DEV_SM_CLOCK"
	clockRow    = clock + ", gauge, Clock.\n"
	nvmlDevices = 8 + 8*18 // GPUs and links
	processList = "nvmlDeviceGetComputeRunningProcesses_v3"
)

// TestE2ENVML takes the binary through the life of a node: lists, XIDs, a released driver, a driver that ends, and
// GPUs that are lost or hang.
func TestE2ENVML(t *testing.T) {
	t.Parallel()
	programtest.Find(t, "cc")
	exe := build(t)
	for _, isolation := range []string{"process", "none"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			n := &nvmlNode{Node: simulatedNVML(t), isolation: isolation, csv: file(t, "counters.csv", nvmlCSV)}
			n.exporter = serve(t, exe, "--enable-only=nvml", "--enable-nvml=true", "--nvml-library="+n.Library(), "--isolation="+isolation,
				"--collect-interval=100", "--slow-interval=500ms", "--stale-after=2s", "--sample-deadline=500ms",
				"--kubernetes", "--kubernetes-virtual-gpus", "--enable-release-endpoint", "-f", n.csv)
			n.inUse(t)
			n.reloads(t)
			n.release(t)
			n.lose(t)
			n.Unload()
			n.await(t, "no GPUs without a driver", gpus())
			n.LoadDriver("")
			n.inUse(t)
			n.hang(t)
		})
	}
}

// simulatedNVML returns a node with its own library; nvmltest.New shares one library in a process.
func simulatedNVML(t *testing.T) *nvmltest.Node {
	t.Helper()
	n := testkit.Get(nvmltest.Write(t.TempDir(), nvmltest.Config{}, func(err error) { t.Error(err) }))(t)
	t.Cleanup(func() { must(t, n.Close()) })
	return n
}

// inUse waits for all GPUs and for their processes, which another process reads and the page does not show.
func (n *nvmlNode) inUse(t *testing.T) {
	t.Helper()
	n.ResetCalls()
	n.await(t, "GPUs and processes", eightGPUs,
		is(1, "warpgauge_collector_up", "collector", "nvml-processes"),
		is(nvmlDevices, "warpgauge_devices", "collector", "nvml", "state", "up"),
		is(0, "warpgauge_devices", "collector", "nvml-processes", "state", "up"),
		func(page) error {
			if c, want := n.children(t), map[string]int{"process": 2, "none": 0}[n.isolation]; len(c) != want || n.Calls(processList) == 0 {
				return fmt.Errorf("%d children, want %d; %d calls for processes", len(c), want, n.Calls(processList))
			}
			return nil
		})
}

// reload changes the exporter's list.
func (n *nvmlNode) reload(t *testing.T, csv string) {
	t.Helper()
	write(t, n.csv, csv)
	n.Signal(t, syscall.SIGHUP)
}

// reloads raises XIDs during continuous reloads. Each is counted once.
func (n *nvmlNode) reloads(t *testing.T) {
	codes := []int{13, 31, 48, 68}
	for i, code := range codes {
		n.XID(2, uint64(code))
		rows, clocks := nvmlCSV, 0 // the row of clocks comes and goes
		if i%2 == 0 {
			rows, clocks = rows+clockRow, 8
		}
		n.reload(t, rows)
		n.await(t, fmt.Sprintf("reload %d and XID %d", i+1, code), count(clocks, clock),
			is(float64(code), "DCGM_FI_DEV_XID_ERRORS", "gpu", "2"),
			is(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", fmt.Sprint(code)))
	}
	p := n.await(t, "8 GPUs", eightGPUs)
	for _, s := range p.family("DCGM_EXP_XID_ERRORS_TOTAL") {
		testkit.ErrorIf(t, s.value > 1 || s.get("gpu") != "2" && s.value > 0, "%v is %v", s.labels, s.value)
	}
	for _, s := range p.family("DCGM_FI_DEV_XID_ERRORS") {
		want := "0" // the GPU had no XID
		if s.get("gpu") == "2" {
			want = "68"
		}
		testkit.ErrorIf(t, s.get("err_code") != want || fmt.Sprint(s.value) != want || s.get("err_msg") == "", "%v %v does not name XID %s", s.labels, s.value, want)
	}
}

// devices returns the node's devices that the exporter or its child has open.
func (n *nvmlNode) devices(t *testing.T) []string {
	t.Helper()
	return n.holds(t, filepath.Join(n.Root(), "dev"))
}

// letGo releases the driver and checks immediately that nothing is open.
func (n *nvmlNode) letGo(t *testing.T, client *http.Client, query string) {
	t.Helper()
	a := request(t, client, http.MethodPost, n.url+"/-/release"+query)
	if held := n.devices(t); a.code != http.StatusOK || len(held) > 0 {
		t.Fatalf("release: %d %s; open afterwards: %v", a.code, a.body, held)
	}
}

// awaitFree waits until no device is open.
func (n *nvmlNode) awaitFree(t *testing.T) {
	t.Helper()
	eventually.OK(t, "no device to be open", func() error {
		if held := n.devices(t); len(held) > 0 {
			return fmt.Errorf("open: %v", held)
		}
		return nil
	})
}

// release releases the driver. Once the exporter has answered, neither it nor its child has a device open, so a reset,
// a change of MIG mode or an upgrade is possible.
func (n *nvmlNode) release(t *testing.T) {
	client := newClient(t)
	if a := request(t, client, http.MethodPost, n.url+"/-/release?collector=dcgm"); a.code != http.StatusNotFound || !strings.Contains(string(a.body), `"nvml"`) {
		t.Errorf("release of a collector that is not enabled: %d %s", a.code, a.body)
	}
	for _, signal := range []bool{false, true} {
		if held := n.devices(t); len(held) < 2 {
			t.Fatalf("open while sampling: %v; the test sees nothing", held)
		}
		if signal {
			n.Signal(t, syscall.SIGUSR1)
			n.awaitFree(t)
		} else {
			n.letGo(t, client, "?collector=nvml")
			must(t, gpus()(n.scrape(t, acceptText)))
		}
		// The driver goes away and comes back without any call to it.
		n.ResetCalls()
		n.Unload()
		n.await(t, "the state of the GPUs and collectors",
			is(1, "warpgauge_device_state", "collector", "nvml", "gpu", "7", "state", "released"),
			is(nvmlDevices, "warpgauge_devices", "collector", "nvml", "state", "released"),
			is(0, "warpgauge_collector_up", "collector", "nvml"),
			is(1, "warpgauge_collector_problem", "collector", "nvml", "cause", "released"),
			is(1, "warpgauge_collector_problem", "collector", "nvml-processes", "cause", "released"))
		get(t, client, n.url+"/readyz").want(t, "readyz while released", http.StatusOK)
		n.LoadDriver("")
		if calls := n.AllCalls(); len(calls) > 0 {
			t.Errorf("calls while released: %v", calls)
		}
		if signal {
			n.Signal(t, syscall.SIGUSR2)
		} else {
			n.post(t, "/-/resume")
		}
		n.inUse(t)
	}
	testkit.Equal(t, "restarts", 0.0, n.scrape(t, acceptText).restarts(""))
}

// lose makes a GPU fall off the bus with XID 79 and come back. That gives one log line, not one per link and field.
func (n *nvmlNode) lose(t *testing.T) {
	from := len(n.Output())
	n.Lose(5)
	n.await(t, "the lost GPU off the page, with its reason", gpus("0", "1", "2", "3", "4", "6", "7"), is(1, "warpgauge_device_state", "gpu", "5", "state", "lost"))
	lines := strings.SplitAfter(n.Output()[from:], "\n")
	about := strings.Join(slices.DeleteFunc(lines, func(l string) bool { return !strings.Contains(l, "GPU-fa4e0005") }), "")
	for _, want := range []string{" WARN XID", " WARN device is not up", " WARN health of a device has changed"} {
		testkit.Times(t, 1, about, want)
	}
	n.Restore(5)
	n.await(t, "the GPU back, and its XID", eightGPUs, is(1, "warpgauge_device_state", "gpu", "5", "state", "up"),
		is(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "5", "xid", "79"), is(0, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "4", "xid", "79"))
}

// hang makes calls for one GPU hang. Its state shows it, its series leave, the others stay current, and a reload
// changes nothing. Without a child process, the collector keeps the previous list until the call returns. warpctl
// doctor shows it, too.
func (n *nvmlNode) hang(t *testing.T) {
	let := n.Hang(3, nvmltest.Every)
	defer func() { let() }()
	stalled := is(1, "warpgauge_device_state", "collector", "nvml", "gpu", hungGPU, "state", "stalled")
	n.await(t, "the hung GPU off the page, with its reason", otherGPUs, stalled,
		is(1, "warpgauge_device_problem", "collector", "nvml", "gpu", hungGPU, "cause", "hung_call"))
	n.othersAdvance(t)
	eventually.OK(t, "what warpctl doctor says", func() error {
		code, out := runToEnd(t, buildControl(t), "doctor", "--url="+n.url)
		for _, text := range []string{"nvml is in use", "failed: GPU 3: the device does not return", "look for XIDs in the kernel log", "XID 79"} {
			if !strings.Contains(out, text) {
				return fmt.Errorf("code %d, the output lacks %q:\n%s", code, text, out)
			}
		}
		return nil
	})
	n.reload(t, nvmlCSV+clockRow)
	have := 7
	if n.isolation == "none" {
		have = 0
		n.awaitLog(t, "keeps the former list until a call returns")
	}
	n.await(t, "a reload while a GPU hangs", count(have, clock), otherGPUs, stalled, is(8, "warpgauge_devices_expected", "collector", "nvml"))
	n.othersAdvance(t)
	let()
	n.await(t, "the GPU that hangs no more", count(8, clock), eightGPUs,
		is(1, "warpgauge_device_state", "gpu", hungGPU, "state", "up"), is(8, "warpgauge_devices_expected", "collector", "nvml"),
		is(0, "warpgauge_devices", "collector", "nvml", "state", "absent"))
	if n.isolation == "process" { // its process is killed, and the kernel closes its files
		let = n.Hang(3, nvmltest.Every)
		n.await(t, "the GPU that hangs again", stalled)
		client := newClient(t)
		n.letGo(t, client, "")
		let()
		n.post(t, "/-/resume")
		n.inUse(t)
	}
}

// TestE2EEveryGPUHangs: if no GPU answers when the exporter starts, each has a verdict nevertheless.
func TestE2EEveryGPUHangs(t *testing.T) {
	t.Parallel()
	programtest.Find(t, "cc")
	n := simulatedNVML(t)
	for gpu := range n.GPUs() {
		defer n.Hang(gpu, nvmltest.Every)()
	}
	e := serve(t, build(t), "--enable-only=nvml", "--enable-nvml=true", "--nvml-library="+n.Library())
	e.await(t, "verdicts", func(p page) error { return verdictsOf(p, "failed hung reboot", n.GPUs()) })
}
