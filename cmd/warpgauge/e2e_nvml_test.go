//go:build linux && cgo

package main_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// TestE2ENVML runs the real binary on a simulated NVML: a libnvidia-ml.so.1 in C
// that it loads as it would a driver's.
func TestE2ENVML(t *testing.T) {
	t.Parallel()
	exe := build(t)
	for _, isolation := range []string{"process", "none"} {
		for _, test := range []struct {
			name string
			run  func(*testing.T, *nvmlNode)
		}{
			{"Dashboard", testDashboard},
			{"HungGPU", testNVMLHang},
			{"LostGPU", testNVMLLost},
			{"XIDsOfReloads", testNVMLReload},
			{"DriverReload", testNVMLDriver},
			{"MIG", testNVMLMIG},
		} {
			t.Run(isolation+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t, &nvmlNode{exe: exe, isolation: isolation})
			})
		}
	}
}

// TestE2ENVMLOldDriver runs the exporter on a driver that lacks what came later,
// and on one that lacks more than any does: that costs the fields, not the process.
func TestE2ENVMLOldDriver(t *testing.T) {
	t.Parallel()
	n := &nvmlNode{exe: build(t), isolation: "none"}
	n.start(t, nvmltest.Config{Preset: "a100-sxm", Driver: "470", Without: []string{
		"nvmlEventSetWait_v2", "nvmlDeviceGetP2PStatus", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetFieldValues", "nvmlDeviceGetMigMode",
		"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceValidateInforom", "nvmlDeviceGetName", "nvmlDeviceGetMinorNumber",
	}}, "-f", file(t, "counters.csv", nvmlXIDsCSV+"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.\nDCGM_FI_PROF_SM_ACTIVE, gauge, SMs.\n"))
	p := n.page(t, "8 GPUs", gpus(allGPUs...))
	for _, absent := range []string{
		"DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL", "DCGM_EXP_P2P_STATUS",
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_PROF_SM_ACTIVE",
	} {
		if s := p.family(absent); len(s) > 0 {
			t.Errorf("%v is on the page of a driver that cannot tell it", s[0].labels)
		}
	}
	if err := p.want(0, "DCGM_EXP_GPU_HEALTH_STATUS", "gpu", "0", "health_watch", "POWER"); err != nil {
		t.Error(err)
	}
	if n := strings.Count(n.Output(), "no XID events"); n != 8 {
		t.Errorf("the log says %d times that a GPU has no XID events, want once for each of 8", n)
	}
}

// nvmlNode is a simulated node and the exporter on it.
type nvmlNode struct {
	*nvmltest.Node
	*exporter
	exe, isolation string
}

func (n *nvmlNode) start(t *testing.T, c nvmltest.Config, args ...string) {
	t.Helper()
	programtest.Find(t, "cc")
	// A library of its own: nvmltest.New has one for all nodes of a process.
	var err error
	if n.Node, err = nvmltest.Write(t.TempDir(), c, func(err error) { t.Fatal(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	n.exporter = serve(t, n.exe, append([]string{
		"--enable-only=nvml", "--enable-nvml=true", "--nvml-library=" + n.Library(),
		"--isolation=" + n.isolation, "--collect-interval=100", "--slow-interval=500ms",
	}, args...)...)
}

// page waits for a page that f has nothing to object to.
func (n *nvmlNode) page(t *testing.T, what string, f func(page) error) (p page) {
	t.Helper()
	eventually.OK(t, what, func() error {
		p = n.scrape(t, acceptText)
		return f(p)
	})
	return p
}

// gpus wants temperatures of these GPUs and of no others.
func gpus(names ...string) func(page) error {
	return func(p page) error {
		if got := slices.Sorted(maps.Keys(p.values("DCGM_FI_DEV_GPU_TEMP"))); !slices.Equal(got, names) {
			return fmt.Errorf("GPUs %v have a temperature, want %v", got, names)
		}
		return nil
	}
}

var allGPUs = []string{"0", "1", "2", "3", "4", "5", "6", "7"}

// dashboard12239 is what NVIDIA's dashboard for dcgm-exporter asks for
// (https://grafana.com/grafana/dashboards/12239).
var dashboard12239 = []string{
	"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL",
	"DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
}

// testDashboard wants the dashboard's metrics of all GPUs with the labels that it
// selects by, values that move and counters that rise.
func testDashboard(t *testing.T, n *nvmlNode) {
	n.start(t, nvmltest.Config{})
	for gpu := range n.GPUs() {
		n.SetLoad(gpu, nvmltest.Sine(0.6, 0.3, 1500*time.Millisecond, 300*time.Millisecond))
	}
	first := n.page(t, "the dashboard's metrics", func(p page) error {
		for _, name := range dashboard12239 {
			if got := len(p.family(name)); got != 8 {
				return fmt.Errorf("%s of %d GPUs, want 8", name, got)
			}
		}
		return nil
	})
	for _, name := range dashboard12239 {
		for _, s := range first.family(name) {
			for _, label := range []string{"gpu", "UUID", "pci_bus_id", "device", "modelName", "hostname", "DCGM_FI_DRIVER_VERSION"} {
				if s.get(label) == "" {
					t.Errorf("%v has no label %s", s.labels, label)
				}
			}
		}
	}
	const energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
	n.page(t, "values that move and counters that rise", func(p page) error {
		for gpu, v := range first.values(energy) {
			if now := p.values(energy)[gpu]; now <= v {
				return fmt.Errorf("energy of GPU %s went from %v to %v", gpu, v, now)
			}
		}
		for _, name := range []string{"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"} {
			if maps.Equal(first.values(name), p.values(name)) {
				return fmt.Errorf("%s does not move", name)
			}
		}
		return nil
	})
}

// hangCSV is what testOthersAdvance looks at, and what the tests do.
const hangCSV = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.\n"

// reload gives the exporter another list.
func (n *nvmlNode) reload(t *testing.T, path, csv string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(csv), 0o600))
	n.Signal(t, syscall.SIGHUP)
}

// testNVMLHang: calls for one GPU hang. Its state says so, its series leave, the
// others stay fresh, and a reload changes nothing of that. Without a process of its
// own the collector keeps the former list until the call returns.
func testNVMLHang(t *testing.T, n *nvmlNode) {
	csv := file(t, "counters.csv", hangCSV)
	n.start(t, nvmltest.Config{}, "--sample-deadline=500ms", "--stale-after=2s", "-f", csv)
	n.page(t, "8 GPUs", gpus(allGPUs...))
	release := n.Hang(3, nvmltest.Every)
	defer release()
	seven := slices.DeleteFunc(slices.Clone(allGPUs), func(g string) bool { return g == "3" })
	n.page(t, "the hung GPU off the page, with its reason", func(p page) error {
		return errors.Join(gpus(seven...)(p),
			p.want(1, "warpgauge_device_state", "gpu", "3", "state", "stalled"),
			p.want(1, "warpgauge_device_problem", "gpu", "3", "cause", "hung_call"))
	})
	testOthersAdvance(t, n.exporter)
	n.reload(t, csv, hangCSV+"DCGM_FI_DEV_SM_CLOCK, gauge, Clock.\n")
	clocks := func(want int, p page) error {
		if got := len(p.family("DCGM_FI_DEV_SM_CLOCK")); got != want {
			return fmt.Errorf("%d GPUs have the new field, want %d", got, want)
		}
		return nil
	}
	have := 7
	if n.isolation == "none" {
		have = 0
		eventually.OK(t, "the reload to be refused", func() error {
			if !strings.Contains(n.Output(), "keeps the former list until a call returns") {
				return errors.New("not in the log")
			}
			return nil
		})
	}
	n.page(t, "a reload while a GPU hangs", func(p page) error {
		return errors.Join(clocks(have, p), gpus(seven...)(p),
			p.want(1, "warpgauge_device_state", "gpu", "3", "state", "stalled"),
			p.want(8, "warpgauge_devices_expected", "collector", "nvml"))
	})
	testOthersAdvance(t, n.exporter)
	release()
	n.page(t, "the GPU that hangs no more", func(p page) error {
		return errors.Join(clocks(8, p), gpus(allGPUs...)(p),
			p.want(1, "warpgauge_device_state", "gpu", "3", "state", "up"),
			p.want(8, "warpgauge_devices_expected", "collector", "nvml"),
			p.want(0, "warpgauge_devices", "collector", "nvml", "state", "absent"))
	})
}

const nvmlXIDsCSV = `DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DEV_XID_ERRORS, gauge, Last XID.
DCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs within the window.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since start.
DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, Clock events since start.
DCGM_EXP_GPU_HEALTH_STATUS, gauge, Health.
DCGM_EXP_P2P_STATUS, gauge, Peers.
`

// testNVMLLost: a GPU falls off the bus with XID 79 and comes back.
func testNVMLLost(t *testing.T, n *nvmlNode) {
	n.start(t, nvmltest.Config{}, "--stale-after=500ms", "-f", file(t, "counters.csv", nvmlXIDsCSV+
		"DCGM_FI_PROF_SM_ACTIVE, gauge, SMs.\nDCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL, counter, CRC errors.\n"))
	n.page(t, "8 GPUs", gpus(allGPUs...))
	n.Lose(5)
	n.page(t, "the lost GPU off the page, with its reason and the XID", func(p page) error {
		return errors.Join(gpus("0", "1", "2", "3", "4", "6", "7")(p),
			p.want(1, "warpgauge_device_state", "gpu", "5", "state", "lost"))
	})
	n.wantWarnings(t, "XID", "device is not up", "health of a device has changed")
	n.Restore(5)
	p := n.page(t, "the GPU back, and its XID", func(p page) error {
		return errors.Join(gpus(allGPUs...)(p),
			p.want(1, "warpgauge_device_state", "gpu", "5", "state", "up"),
			p.want(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "5", "xid", "79"))
	})
	for _, gpu := range allGPUs {
		if gpu != "5" {
			if err := p.want(0, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", gpu, "xid", "79"); err != nil {
				t.Error(err)
			}
		}
	}
}

// wantWarnings wants these warnings in the log, in any order, and no others: what happens
// to a GPU is one line, not one more for each of its links and fields.
func (n *nvmlNode) wantWarnings(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(n.Output()) {
		if _, text, warns := strings.Cut(line, " WARN "); warns {
			message, _, _ := strings.Cut(text, " {")
			got = append(got, message)
		}
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("the log warns of %q, want %q", got, want)
	}
}

// testNVMLReload raises XIDs while reload follows reload: each is counted once.
func testNVMLReload(t *testing.T, n *nvmlNode) {
	csv := file(t, "counters.csv", nvmlXIDsCSV)
	n.start(t, nvmltest.Config{}, "-f", csv)
	n.page(t, "8 GPUs", gpus(allGPUs...))
	codes := []uint64{13, 31, 43, 45, 48, 61, 62, 63, 64, 68}
	for i, code := range codes {
		n.XID(2, code)
		rows, clocks := nvmlXIDsCSV, 0 // the row of clocks comes and goes
		if i%2 == 0 {
			rows, clocks = rows+"DCGM_FI_DEV_SM_CLOCK, gauge, Clock.\n", 8
		}
		n.reload(t, csv, rows)
		n.page(t, fmt.Sprintf("reload %d and XID %d", i+1, code), func(p page) error {
			var err error
			if got := len(p.family("DCGM_FI_DEV_SM_CLOCK")); got != clocks {
				err = fmt.Errorf("%d GPUs have a clock, want %d by the new list", got, clocks)
			}
			return errors.Join(err,
				p.want(float64(code), "DCGM_FI_DEV_XID_ERRORS", "gpu", "2"),
				p.want(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", fmt.Sprint(code)))
		})
	}
	p := n.page(t, "8 GPUs", gpus(allGPUs...))
	for _, s := range p.family("DCGM_EXP_XID_ERRORS_TOTAL") {
		want := 0.0
		if s.get("gpu") == "2" && slices.Contains(codes, number(t, s.get("xid"))) {
			want = 1
		}
		if s.value != want {
			t.Errorf("%v is %v, want %v", s.labels, s.value, want)
		}
	}
	for _, s := range p.family("DCGM_FI_DEV_XID_ERRORS") {
		want := "0" // the GPU had no XID
		if s.get("gpu") == "2" {
			want = "68"
		}
		if s.get("err_code") != want || fmt.Sprint(s.value) != want || s.get("err_msg") == "" {
			t.Errorf("%v %v does not name XID %s", s.labels, s.value, want)
		}
	}
	if strings.Contains(n.Output(), "panic") {
		t.Errorf("a panic in the log")
	}
}

func number(t *testing.T, text string) (n uint64) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("label xid=%q: %v", text, err)
	}
	return n
}

// testNVMLDriver: the driver goes and comes back.
func testNVMLDriver(t *testing.T, n *nvmlNode) {
	n.start(t, nvmltest.Config{}, "--stale-after=1s")
	n.page(t, "8 GPUs", gpus(allGPUs...))
	n.Unload()
	n.page(t, "no GPUs without a driver", gpus())
	n.LoadDriver("")
	n.page(t, "8 GPUs with the driver back", gpus(allGPUs...))
}

// testNVMLMIG: MIG is configured again while pages are taken.
func testNVMLMIG(t *testing.T, n *nvmlNode) {
	n.start(t, nvmltest.Config{Preset: "a100-sxm", MIG: map[int][]string{0: {"1g.5gb", "2g.10gb"}}}, "-f", file(t, "counters.csv", "DCGM_FI_DEV_FB_USED, gauge, Memory.\n"))
	profiles := func(want ...string) func(page) error {
		return func(p page) error {
			var got []string
			for _, s := range p.family("DCGM_FI_DEV_FB_USED") {
				if profile := s.get("GPU_I_PROFILE"); profile != "" {
					got = append(got, profile)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				return fmt.Errorf("instances %v, want %v", got, want)
			}
			return nil
		}
	}
	n.page(t, "two instances", profiles("1g.5gb", "2g.10gb"))
	n.SetMIG(0, "3g.20gb", "3g.20gb")
	n.page(t, "two other instances", profiles("3g.20gb", "3g.20gb"))
}
