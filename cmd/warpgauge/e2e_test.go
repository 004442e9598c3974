// End-to-end tests: the real binary, built by the test, with simulated GPUs on
// loopback. Each starts what it needs and ends it.
package main_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
)

func TestE2E(t *testing.T) {
	t.Parallel()
	exe := build(t)
	for name, test := range map[string]func(*testing.T, string){
		"FirstPage":      testFirstPage,
		"Faults":         testFaults,
		"Reload":         func(t *testing.T, exe string) { testReload(t, exe, "--isolation=none") },
		"ReloadIsolated": func(t *testing.T, exe string) { testReload(t, exe, "--isolation=process") },
		"Stop":           func(t *testing.T, exe string) { testStop(t, exe, "none", syscall.SIGTERM) },
		"StopIsolated":   func(t *testing.T, exe string) { testStop(t, exe, "process", syscall.SIGQUIT) },
		"Completion":     testCompletion,
		"LeanSet":        testLeanSet,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, exe)
		})
	}
}

// testFirstPage starts the exporter like its systemd unit (Type=notify), which gets messages when the port is
// open and when the exporter ends.
func testFirstPage(t *testing.T, exe string) {
	path := filepath.Join(testkit.ShortDir(t), "notify")
	socket := testkit.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { _ = socket.Close() })
	hear := func(want string) {
		t.Helper()
		must(t, socket.SetReadDeadline(time.Now().Add(eventually.Patience)))
		b := make([]byte, 4096)
		n, err := socket.Read(b)
		if err != nil || string(b[:n]) != want {
			t.Fatalf("systemd hears %q, %v, want %q", b[:n], err, want)
		}
	}
	e := serveBy(t, []string{"env", "NOTIFY_SOCKET=" + path, exe}, "--isolation=process", "-f", file(t, "counters.csv", histogramCSV))
	hear("READY=1")
	client := newClient(t)
	get(t, client, e.url+"/livez").want(t, "GET /livez after READY=1", http.StatusOK)
	p := e.await(t, "8 GPUs, and the own metrics, which are gathered each second", eightGPUs, is(1, "warpgauge_collector_up", "collector", "fake"))
	for _, s := range p.family("DCGM_FI_DEV_GPU_TEMP") {
		if !strings.HasSuffix(s.get("modelName"), "(simulated)") {
			t.Errorf("modelName %q of a simulated GPU does not say so", s.get("modelName"))
		}
		for _, label := range []string{"gpu", "UUID", "pci_bus_id", "device", "hostname", "DCGM_FI_DRIVER_VERSION"} {
			testkit.ErrorIf(t, s.get(label) == "", "series %v has no label %s", s.labels, label)
		}
	}
	for _, accept := range []string{acceptOpenMetrics, acceptProtobuf} {
		p := e.scrape(t, accept)
		if err := errors.Join(eightGPUs(p), count(8, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")(p)); err != nil {
			t.Errorf("page for %q: %v", accept, err)
		}
	}
	for _, path := range []string{"/-/reload", "/-/release"} { // no flag enables these; pkg/server tests other paths
		request(t, client, http.MethodPost, e.url+path).want(t, "POST "+path, http.StatusForbidden)
	}
	e.Signal(t, syscall.SIGINT)
	hear("STOPPING=1")
	testkit.Equal(t, "exit code", 0, e.ExitCode(t))
}

// testFaults: the library cannot be opened at first, one GPU reports nonsense, and one raises an
// XID, falls off the bus and comes back.
func testFaults(t *testing.T, exe string) {
	absent, xid, lost := newTrouble(t), newTrouble(t), newTrouble(t)
	absent.begin(t)
	e := serve(t, exe, "--collect-interval=100", "--stale-after=2s", "-f", file(t, "counters.csv", faultsCSV), faults(t,
		absent.fault("kind: open-fails, message: no such library"),
		"- {kind: value, device: 1, field: DCGM_FI_DEV_GPU_UTIL, value: 808000000}\n",
		xid.fault("kind: xid, device: 2, xid: 79"), lost.fault("kind: lost, device: 2")))
	client := newClient(t)
	e.await(t, "the library that cannot be opened in the metrics",
		is(0, "warpgauge_collector_up", "collector", "fake"),
		is(1, "warpgauge_collector_problem", "collector", "fake", "cause", "not_loaded"))
	get(t, client, e.url+"/readyz").want(t, "GET /readyz while nothing can be opened", http.StatusServiceUnavailable)
	get(t, client, e.url+"/health").want(t, "GET /health", http.StatusOK) // not ready, but alive
	e.awaitLog(t, "no such library")
	absent.end(t)
	e.await(t, "8 GPUs once it can", eightGPUs)
	get(t, client, e.url+"/readyz").want(t, "GET /readyz with 8 GPUs", http.StatusOK)
	p := e.await(t, "the nonsense to be counted", func(p page) error {
		n, err := p.one("warpgauge_implausible_values_total", "field", "DCGM_FI_DEV_GPU_UTIL")
		if err == nil && n < 1 {
			err = errors.New("none counted")
		}
		return err
	})
	util := p.values("DCGM_FI_DEV_GPU_UTIL")
	if v, there := util["1"]; there || len(util) != 7 {
		t.Errorf("GPU 1 tells a utilisation of 808 million percent; the page has %v for it and %d others, want none and 7", v, len(util))
	}
	xid.begin(t)
	lost.begin(t)
	e.await(t, "the lost GPU in the metrics, off the page", count(7, "DCGM_FI_DEV_GPU_TEMP"), is(1, "warpgauge_device_state", "gpu", "2", "state", "lost"))
	lost.end(t)
	e.await(t, "the GPU to come back", eightGPUs, is(1, "warpgauge_device_state", "gpu", "2", "state", "up"),
		is(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", "79"))
}

// Two lists share their first three families. Each has one more, which marks the list on the page.
const (
	sharedLines = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n" +
		"DCGM_FI_DEV_POWER_USAGE, gauge, Power.\n" +
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.\n"
	listA   = sharedLines + "DCGM_FI_DEV_SM_CLOCK, gauge, Clock.\n"
	listB   = sharedLines + "DCGM_FI_DEV_MEM_CLOCK, gauge, Clock.\n"
	markerA = "DCGM_FI_DEV_SM_CLOCK"
	markerB = "DCGM_FI_DEV_MEM_CLOCK"
)

// testReload changes the list in every possible way while 50 clients scrape. Every page must have
// the shared families of all eight GPUs.
func testReload(t *testing.T, exe, isolation string) {
	dir := t.TempDir()
	configMap(t, dir, "counters.csv", listA)
	path := filepath.Join(dir, "counters.csv")
	e := serve(t, exe, isolation, "--collect-interval=100", "--enable-reload-endpoint", "-f", path)
	e.awaitList(t, markerA)
	w := watch(t, e, 50, count(8, "DCGM_FI_DEV_GPU_TEMP"), count(8, "DCGM_FI_DEV_POWER_USAGE"), count(8, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"))
	client := newClient(t)
	swap := func(list string) { configMap(t, dir, "counters.csv", list) }
	replace := func(list string) { write(t, path, list) } // from here on an ordinary file
	hangup := func(list string) { write(t, path, list); e.Signal(t, syscall.SIGHUP) }
	post := func(list string) {
		write(t, path, list)
		request(t, client, http.MethodPost, e.url+"/-/reload").want(t, "POST /-/reload", http.StatusOK)
	}
	for i, change := range []func(list string){swap, swap, replace, hangup, post} {
		change([]string{listB, listA}[i%2])
		e.awaitList(t, []string{markerB, markerA}[i%2])
	}
	w.await(t, 500) // enough scrapes for a meaningful test
	w.stop(t)
	e.await(t, "the successful reloads in the metrics", is(1, "warpgauge_config_last_reload_successful"))
}

// awaitList polls until the page has the family that marks a list.
func (e *exporter) awaitList(t *testing.T, marker string) {
	t.Helper()
	e.await(t, "the list with "+marker, count(8, marker))
}

// testStop scrapes a lot, breaks connections and stalls clients while a GPU hangs for ever. Then it compares goroutines and
// descriptors with those before, and stops the exporter and its children.
func testStop(t *testing.T, exe, isolation string, signal syscall.Signal) {
	fault, spec := hang(t)
	e := serve(t, exe, "--isolation="+isolation, "--collect-interval=100", "--sample-deadline=500ms", "--stale-after=2s", spec)
	e.await(t, "a page with 8 GPUs", eightGPUs)
	fault.begin(t)
	// The state and the number of goroutines are gathered once a second; all initial goroutines are included by then.
	e.await(t, "the hung GPU to leave the page", otherGPUs, is(1, "warpgauge_device_state", "gpu", hungGPU, "state", "stalled"))
	before := e.holding(t)
	const scrapers, scrapes = 20, 100
	client := newClient(t)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = scrapers
	var all sync.WaitGroup
	for n := range scrapers {
		all.Go(func() {
			for i := range scrapes {
				accept := [...]string{acceptText, acceptOpenMetrics, acceptProtobuf}[(n+i)%3]
				if a, err := try(t.Context(), client, http.MethodGet, e.url+"/metrics", "Accept", accept); err != nil || a.code != http.StatusOK {
					t.Errorf("scrape: status %d, %v", a.code, err)
					return
				}
			}
			breakConnection(t, strings.TrimPrefix(e.url, "http://"))
		})
	}
	all.Wait()
	client.CloseIdleConnections()
	e.awaitHolding(t, before)

	children := e.children(t)
	e.ends(t, signal)
	if isolation == "none" && !strings.Contains(e.Output(), "abandoned") {
		t.Errorf("the log does not say what was abandoned:\n%s", e.Output())
	}
	testkit.ErrorIf(t, slices.ContainsFunc(children, alive) || len(children) == 0 && isolation == "process", "a child outlives the exporter: %v", children)
}

// breakConnection requests a page and disconnects without reading it.
func breakConnection(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Errorf("connect: %v", err)
		return
	}
	fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /metr")
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// testCompletion sends the requests of the completion scripts.
func testCompletion(t *testing.T, exe string) {
	for want, args := range map[string][]string{"--kubernetes-virtual-gpus": {"--kubernetes-v"}, "--output": {"devices", "--out"}, "devices:List the devices": {}} {
		if code, out := runToEnd(t, exe, append(args, "--generate-shell-completion")...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("completion of %q: exit code %d, output %q; want %q", args, code, out, want)
		}
	}
}

// testLeanSet compares docs/scale.md and --help with the actual number. All vendors' collectors are enabled, as by default,
// and find nothing here.
func testLeanSet(t *testing.T, exe string) {
	e := serve(t, exe, "--enable-only=fake,dcgm,nvml,rocm", "-c", "100", "--exporter-metrics=lean")
	n := 0
	for _, s := range e.await(t, "the page", eightGPUs, count(12, "warpgauge_sample_age_seconds"), count(1, "warpgauge_list_info"), count(12, "warpgauge_device_health")) {
		if strings.HasPrefix(s.name, "warpgauge_") || strings.HasPrefix(s.name, "process_") || strings.HasPrefix(s.name, "go_") {
			n++
		}
	}
	testkit.Between(t, "samples of the exporter's own metrics on the page of 8 GPUs and 4 switches", 45, 60, n)
}

const faultsCSV = `DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DEV_GPU_UTIL, gauge, Utilisation.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since start.
`

// histogramCSV has gauges, a counter, a label and a histogram.
const histogramCSV = `# for the end-to-end test
DCGM_FI_DEV_GPU_TEMP,  gauge, GPU temperature (in C).
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, "Total energy, in mJ."
DCGM_FI_DEV_GPU_UTIL, histogram, GPU utilization (in %).
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Ratio of time the graphics engine is active.
DCGM_FI_DRIVER_VERSION, label, Driver version
`
