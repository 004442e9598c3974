// End-to-end tests: the real binary, built by the test, with simulated GPUs on
// loopback. Each starts what it needs and ends it.
package main_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit/eventually"
)

func TestE2E(t *testing.T) {
	t.Parallel()
	exe := build(t)
	for name, test := range map[string]func(*testing.T, string){
		"FirstPage":    testFirstPage,
		"Formats":      testFormats,
		"HTTP":         testHTTP,
		"Faults":       testFaults,
		"Witnesses":    testWitnesses,
		"Restarts":     testWitnessRestarts,
		"Reload":       testReload,
		"BadReload":    testBadReload,
		"NoLeaks":      testNoLeaks,
		"Stop":         testStop,
		"NothingFound": testNothingFound,
		"Completion":   testCompletion,
		"AMDRoles":     testAMDRoles,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, exe)
		})
	}
}

// eightGPUs reports whether each of the node's GPUs has a temperature.
func eightGPUs(p page) error {
	if n := len(p.values("DCGM_FI_DEV_GPU_TEMP")); n != 8 {
		return fmt.Errorf("%d GPUs have a temperature, want 8", n)
	}
	return nil
}

func testFirstPage(t *testing.T, exe string) {
	begin := time.Now()
	e := serve(t, exe)
	listening := time.Since(begin)
	var p page
	eventually.OK(t, "a page with 8 GPUs", func() error {
		p = e.scrape(t, acceptText)
		return eightGPUs(p)
	})
	t.Logf("from start to listening %v, to the first complete page %v", listening, time.Since(begin))

	for _, s := range p.family("DCGM_FI_DEV_GPU_TEMP") {
		if !strings.HasSuffix(s.get("modelName"), "(simulated)") {
			t.Errorf("modelName %q of a simulated GPU does not say so", s.get("modelName"))
		}
		for _, label := range []string{"gpu", "UUID", "pci_bus_id", "device", "hostname", "DCGM_FI_DRIVER_VERSION"} {
			if s.get(label) == "" {
				t.Errorf("series %v has no label %s", s.labels, label)
			}
		}
	}
	eventually.OK(t, "the own metrics, which are gathered each second", func() error {
		return e.scrape(t, acceptText).want(1, "warpgauge_collector_up", "collector", "fake")
	})
}

// testFormats stops the clock, so to speak: with one tick an hour, pages in
// different formats are of the same tick and must say the same. Ticks are where the
// clock's hours begin: pages between which one fell are taken again.
func testFormats(t *testing.T, exe string) {
	csv := file(t, "counters.csv", histogramCSV)
	e := serve(t, exe, "--collect-interval=3600000", "--slow-interval=1h", "-f", csv)
	eventually.OK(t, "a page with 8 GPUs", func() error { return eightGPUs(e.scrape(t, acceptText)) })
	eventually.OK(t, "own metrics of that time", func() error { // their families are compared, too
		p := e.scrape(t, acceptText)
		if n := len(p.family("warpgauge_collector_problem")); n > 0 {
			return errors.New("the collector is still being opened")
		}
		return p.want(8, "warpgauge_devices", "collector", "fake", "state", "up")
	})

	var text, om, pb page
	var zipped map[string]float64
	eventually.OK(t, "pages of one tick", func() error {
		text, om, pb, zipped = e.scrape(t, acceptText), e.scrape(t, acceptOpenMetrics), e.scrape(t, acceptProtobuf), scrapeGzip(t, e)
		if diff := cmp.Diff(text.bySeries(isDCGM), e.scrape(t, acceptText).bySeries(isDCGM)); diff != "" {
			return fmt.Errorf("text before and after the others (-before +after):\n%s", diff)
		}
		return nil
	})
	want := text.bySeries(isDCGM)
	if len(want) < 8*20 {
		t.Fatalf("text page has %d DCGM series only", len(want))
	}
	if diff := cmp.Diff(want, om.bySeries(isDCGM)); diff != "" {
		t.Errorf("OpenMetrics differs from text (-text +OpenMetrics):\n%s", diff)
	}
	if diff := cmp.Diff(want, zipped); diff != "" {
		t.Errorf("gzip differs from plain (-plain +gzip):\n%s", diff)
	}
	plain := map[string]float64{}
	natives := 0
	for _, s := range pb.samples {
		switch {
		case s.native && isDCGM(s.name()):
			natives++
			count, err := text.one(s.name()+"_count", "gpu", s.get("gpu"))
			if err != nil || count != s.value {
				t.Errorf("native histogram %v holds %v samples, text says %v (%v)", s.labels, s.value, count, err)
			}
		case isDCGM(s.name()):
			plain[s.labels.String()] = s.value
		}
	}
	if diff := cmp.Diff(want, plain); diff != "" {
		t.Errorf("protobuf differs from text (-text +protobuf):\n%s", diff)
	}
	if natives != 8 {
		t.Errorf("%d native histograms, want 8", natives)
	}
	for name, typ := range text.types {
		if pt, ok := pb.types[name]; !ok || pt != typ {
			t.Errorf("type of %s: text %q, protobuf %q", name, typ, pt)
		}
	}
}

// scrapeGzip is a text page that came packed.
func scrapeGzip(t *testing.T, e *exporter) map[string]float64 {
	t.Helper()
	// A header that we set ourselves keeps the client from unpacking.
	a := get(t, newClient(t), e.url+"/metrics", "Accept", acceptText, "Accept-Encoding", "gzip")
	if got := a.header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("Content-Encoding is %q although the client takes gzip", got)
	}
	unzip, err := gzip.NewReader(bytes.NewReader(a.body))
	must(t, err)
	body, err := io.ReadAll(unzip)
	must(t, err)
	return parse(t, body, a.contentType()).bySeries(isDCGM)
}

func testHTTP(t *testing.T, exe string) {
	e := serve(t, exe, "--enable-pprof")
	eventually.OK(t, "a page with 8 GPUs", func() error { return eightGPUs(e.scrape(t, acceptText)) })
	client := newClient(t)
	for _, tt := range []struct {
		method, path string
		status       int
		header       string // "name: value" that must be there
		body         string // must be part of the body
	}{
		{"GET", "/metrics", 200, "Content-Type: text/plain; version=0.0.4; charset=utf-8", "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"},
		{"GET", "/metrics/", 404, "", ""},
		{"GET", "/health", 200, "X-Registry-Available: true", "OK"},
		{"GET", "/livez", 200, "", "ok"},
		{"GET", "/readyz", 200, "", "ok"},
		{"GET", "/", 200, "Content-Type: text/plain; charset=utf-8", "/metrics"},
		{"GET", "/nothing", 404, "", ""},
		{"POST", "/-/reload", 403, "", ""},
		{"POST", "/-/release", 403, "", ""},
		{"GET", "/debug/pprof/goroutine?debug=1", 200, "", "goroutine profile"},
	} {
		a := request(t, client, tt.method, e.url+tt.path)
		if a.code != tt.status {
			t.Errorf("%s %s: status %d, want %d", tt.method, tt.path, a.code, tt.status)
		}
		if name, want, ok := strings.Cut(tt.header, ": "); ok && a.header.Get(name) != want {
			t.Errorf("%s %s: header %s is %q, want %q", tt.method, tt.path, name, a.header.Get(name), want)
		}
		if !strings.Contains(string(a.body), tt.body) {
			t.Errorf("%s %s: body has no %q:\n%.300s", tt.method, tt.path, tt.body, a.body)
		}
		if a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: no nosniff header", tt.method, tt.path)
		}
	}
}

// testNothingFound starts without any collector that finds devices: not ready
// is not dead.
func testNothingFound(t *testing.T, exe string) {
	e := serve(t, exe, "--enable-only=nvml", "--enable-nvml=true")
	client := newClient(t)
	if a := get(t, client, e.url+"/metrics", "Accept", acceptText); a.code != http.StatusOK || len(a.body) == 0 {
		t.Fatalf("GET /metrics: status %d, %d bytes", a.code, len(a.body))
	}
	eventually.OK(t, "the reason in the metrics", func() error {
		p := e.scrape(t, acceptText)
		if len(p.family("warpgauge_collector_problem")) != 1 {
			return errors.New("no warpgauge_collector_problem")
		}
		return p.want(0, "warpgauge_collector_up", "collector", "nvml")
	})
	if a := get(t, client, e.url+"/readyz"); a.code != http.StatusServiceUnavailable || len(a.body) == 0 {
		t.Errorf("GET /readyz: status %d, %q; want 503 and a reason", a.code, a.body)
	}
	if a := get(t, client, e.url+"/health"); a.code != http.StatusOK {
		t.Errorf("GET /health: status %d, want 200", a.code)
	}
	eventually.OK(t, "the reason in the log", func() error {
		if text := e.Output(); !strings.Contains(text, "open NVML") {
			return fmt.Errorf("the log does not say why NVML is not used:\n%s", text)
		}
		return nil
	})
}

// testCompletion asks as the scripts of warpgauge completion do.
func testCompletion(t *testing.T, exe string) {
	for want, args := range map[string][]string{
		"--kubernetes-virtual-gpus": {"--kubernetes-v"},
		"--output":                  {"devices", "--out"},
		"devices:List the devices":  {},
	} {
		if code, out := runToEnd(t, exe, append(args, "--generate-shell-completion")...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("completion of %q: exit code %d, output %q; want %q", args, code, out, want)
		}
	}
}

// testAMDRoles has only AMD's own names in the list and on the page: every quantity that the page for browsers and top
// show has its role and a value, as on a node of any other vendor.
func testAMDRoles(t *testing.T, exe string) {
	const list = `amd_gpu_temperature_celsius, gauge, t
amd_gpu_memory_used_bytes, gauge, m
amd_gpu_memory_size_bytes, gauge, m
amd_gpu_clock_hertz, gauge, c
DCGM_FI_DEV_GPU_UTIL, gauge, u
DCGM_FI_DEV_MEM_COPY_UTIL, gauge, u
DCGM_FI_DEV_POWER_USAGE, gauge, p
DCGM_FI_DEV_POWER_MGMT_LIMIT, gauge, p
`
	e := serve(t, exe, "--fake-profile=mi300x", "--field-names=amd", "-f", file(t, "amd.csv", list))
	c, err := apiv1.NewClient(e.url, apiv1.ClientOptions{})
	must(t, err)
	eventually.OK(t, "a value of each role of each GPU", func() error {
		found, err := c.Fields(t.Context(), nil, nil)
		if err != nil {
			return err
		}
		gpus := 0
		for _, d := range found.Devices {
			missing := []string{"activity", "memory_activity", "power", "power_limit", "temperature", "memory_temperature", "clock", "memory_clock", "memory_used", "memory_total"}
			for _, f := range d.Fields {
				if f.Value != nil {
					missing = slices.DeleteFunc(missing, func(role string) bool { return role == f.Role })
				}
			}
			if strings.Contains(d.ID, "/") {
				continue // a link
			}
			if gpus++; len(missing) > 0 {
				return fmt.Errorf("device %s has no value of %q", d.ID, missing)
			}
		}
		if gpus != 8 {
			return fmt.Errorf("%d GPUs, want 8", gpus)
		}
		p := e.scrape(t, acceptText)
		for _, name := range []string{"gpu_junction_temperature", "gpu_used_vram", "gpu_package_power", "gpu_gfx_activity"} {
			if n := len(p.family(name)); n != 8 {
				return fmt.Errorf("%s has %d series, want 8", name, n)
			}
		}
		if n := len(p.family("DCGM_FI_DEV_GPU_UTIL")); n > 0 {
			return fmt.Errorf("%d series under DCGM's name", n)
		}
		return nil
	})
}

// histogramCSV is a list with all kinds of lines: gauges, counters, labels, one
// histogram.
const histogramCSV = `# for the end-to-end test
DCGM_FI_DEV_SM_CLOCK,  gauge, SM clock frequency (in MHz).
DCGM_FI_DEV_MEM_CLOCK, gauge, Memory clock frequency (in MHz).
DCGM_FI_DEV_GPU_TEMP,  gauge, GPU temperature (in C).
DCGM_FI_DEV_MEMORY_TEMP, gauge, Memory temperature (in C).
DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, "Total energy, in mJ."
DCGM_FI_DEV_PCIE_REPLAY_COUNTER, counter, PCIe retries.
DCGM_FI_DEV_GPU_UTIL, histogram, GPU utilization (in %).
DCGM_FI_DEV_MEM_COPY_UTIL, gauge, Memory utilization (in %).
DCGM_FI_DEV_FB_FREE, gauge, Free frame buffer (in MiB).
DCGM_FI_DEV_FB_USED, gauge, Used frame buffer (in MiB).
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Ratio of time the graphics engine is active.
DCGM_FI_PROF_DRAM_ACTIVE, gauge, Ratio of cycles the memory interface is active.
DCGM_FI_DRIVER_VERSION, label, Driver version
`
