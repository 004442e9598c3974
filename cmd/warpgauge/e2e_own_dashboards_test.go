package main_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/model"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest/prometheustest"
	kubelet "warpgauge/pkg/kube/kubetest"
)

// dashboardNode is a simulated node of TestE2EDashboardsOwn. The test sets its readings and the
// rates of its counters, so it knows the number in each panel.
type dashboardNode struct {
	name, profile, list string
	gpus, seed          int                           // the seed selects a GPU for XIDs; the test looks at other GPUs
	readings            map[string]map[string]float64 // values by devices and field
	rises               map[string]float64            // what counters of all GPUs rise by a second, by field
	script              string                        // additional faults
	pods                map[string][]string           // devices by pod, with the kubelet's names
	resource            string
	job                 string // job on GPU 2
}

func dashboardNodes() []dashboardNode {
	return []dashboardNode{
		{
			name: "h100", profile: "dgx-h100", list: "recommended-counters.csv", gpus: 3,
			readings: map[string]map[string]float64{
				"0": {"DCGM_FI_DEV_GPU_UTIL": 80, "DCGM_FI_DEV_POWER_USAGE": 600, "DCGM_FI_DEV_GPU_TEMP": 60, "DCGM_FI_DEV_XID_ERRORS": 0},
				"1": {"DCGM_FI_DEV_GPU_UTIL": 40, "DCGM_FI_DEV_POWER_USAGE": 400, "DCGM_FI_DEV_GPU_TEMP": 61, "DCGM_FI_DEV_XID_ERRORS": 31},
				"2": {"DCGM_FI_DEV_GPU_UTIL": 60, "DCGM_FI_DEV_POWER_USAGE": 500, "DCGM_FI_DEV_GPU_TEMP": 62, "DCGM_FI_DEV_XID_ERRORS": 0},
				"all": {
					"DCGM_FI_DEV_MEMORY_TEMP": 70, "DCGM_FI_DEV_SM_CLOCK": 1500, "DCGM_FI_DEV_MEM_CLOCK": 2600, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 700,
					"DCGM_FI_DEV_FB_USED": 20000, "DCGM_FI_DEV_FB_FREE": 60000, "DCGM_FI_DEV_FB_RESERVED": 500,
					"DCGM_FI_DEV_ENC_UTIL": 11, "DCGM_FI_DEV_DEC_UTIL": 12, "DCGM_FI_DEV_MEM_COPY_UTIL": 45,
					"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.71, "DCGM_FI_PROF_SM_ACTIVE": 0.81, "DCGM_FI_PROF_SM_OCCUPANCY": 0.61, "DCGM_FI_PROF_DRAM_ACTIVE": 0.41,
					"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.51, "DCGM_FI_PROF_PIPE_FP64_ACTIVE": 0.11, "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 0.31, "DCGM_FI_PROF_PIPE_FP16_ACTIVE": 0.21,
					"DCGM_FI_PROF_PCIE_TX_BYTES": 1e9, "DCGM_FI_PROF_PCIE_RX_BYTES": 2e9, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 123456,
					"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 7, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 1,
					"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 2, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 3, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
					"DCGM_FI_DEV_POWER_USAGE_INSTANT": 550,
				},
			},
			rises: map[string]float64{
				"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 300e3, "DCGM_FI_DEV_POWER_VIOLATION": 0.8e9, "DCGM_FI_DEV_THERMAL_VIOLATION": 0.4e9, "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION": 0.3e9,
				"DCGM_FI_DEV_RELIABILITY_VIOLATION": 0.2e9, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 10, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 20,
				"DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": 30, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 40, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 50,
			},
			resource: "nvidia.com/gpu",
			pods:     map[string][]string{"ml/alone": {"nvidia0"}, "ml/first": {"nvidia1/vgpu0"}, "ml/second": {"nvidia1/vgpu1"}},
			job:      "4711",
		},
		{
			name: "a100", profile: "dgx-a100-mig", list: "recommended-counters.csv", gpus: 4, seed: 1,
			readings: map[string]map[string]float64{"all": {
				"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5, "DCGM_FI_DEV_POWER_USAGE": 280, "DCGM_FI_DEV_GPU_TEMP": 50, "DCGM_FI_DEV_MEMORY_TEMP": 55,
				"DCGM_FI_DEV_FB_USED": 1000, "DCGM_FI_DEV_FB_FREE": 4000, "DCGM_FI_DEV_SM_CLOCK": 1400, "DCGM_FI_DEV_MEM_CLOCK": 1215,
				"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.25, "DCGM_FI_PROF_PCIE_TX_BYTES": 3e8, "DCGM_FI_PROF_PCIE_RX_BYTES": 4e8, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 30000,
				"DCGM_FI_PROF_DRAM_ACTIVE": 0.41, "DCGM_FI_PROF_SM_ACTIVE": 0.42, "DCGM_FI_PROF_SM_OCCUPANCY": 0.43, "DCGM_FI_DEV_FB_RESERVED": 400,
				"DCGM_FI_PROF_PIPE_FP64_ACTIVE": 0.01, "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 0.02, "DCGM_FI_PROF_PIPE_FP16_ACTIVE": 0.03,
				"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 8, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0,
				"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 1, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 2, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
				"DCGM_FI_DEV_RELIABILITY_VIOLATION": -1, // out of range
				"DCGM_FI_DEV_POWER_USAGE_INSTANT":   270,
			}, "0-2": {"DCGM_FI_DEV_XID_ERRORS": 0}},
			rises:    map[string]float64{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 260e3, "DCGM_FI_DEV_POWER_VIOLATION": 0.7e9, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 11},
			script:   "- {kind: xid, device: 3, xid: 79, at: 3s}\n",
			resource: "nvidia.com/mig-1g.5gb",
			pods:     map[string][]string{"serving/seventh": {"nvidia2/gi7"}, "serving/whole": {"nvidia3/gi0"}, "research/three": {"nvidia1/gi1"}},
		},
		{
			name: "mi300x", profile: "mi300x", list: "amd-counters.csv", gpus: 2,
			readings: map[string]map[string]float64{"0": {"DCGM_FI_DEV_GPU_UTIL": 50}, "1": {"DCGM_FI_DEV_GPU_UTIL": 0}, "all": {
				"DCGM_FI_DEV_POWER_USAGE": 500, "DCGM_FI_DEV_GPU_TEMP": 70, "DCGM_FI_DEV_MEMORY_TEMP": 65, "DCGM_FI_DEV_SM_CLOCK": 2000, "DCGM_FI_DEV_MEM_CLOCK": 1300,
				"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.52, "DCGM_FI_PROF_DRAM_ACTIVE": 0.33, "DCGM_FI_DEV_MEM_COPY_UTIL": 33, "amd_gpu_compute_unit_occupancy_ratio": 0.44,
				"DCGM_FI_DEV_FB_USED": 100000, "DCGM_FI_DEV_FB_FREE": 90000, "DCGM_FI_DEV_ENC_UTIL": 9, "DCGM_FI_DEV_POWER_MGMT_LIMIT": 750,
				"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 0x4, "amd_gpu_pcie_throughput_bytes_per_second": 3e9, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 5000,
				"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 4, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0, "DCGM_FI_DEV_RETIRED_DBE": 5, "DCGM_FI_DEV_RETIRED_PENDING": 1, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0, "amd_gpu_bad_pages": 1,
			}},
			rises: map[string]float64{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 480e3, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 12, "amd_gpu_accumulation_cycles_total": 1000},
			script: "- {kind: value, device: all, field: amd_gpu_throttle_residency_total, label: reason=ppt, value: 0, rise: 300}\n" +
				"- {kind: value, device: all, field: amd_gpu_ras_errors_total, label: severity=ce, value: 0, rise: 13}\n",
			resource: "amd.com/gpu",
			pods:     map[string][]string{"ml/amd": {"0000:1b:00.0"}, "ml/idle": {"0000:43:00.0"}},
		},
		{
			name: "rtx4090", profile: "rtx4090", list: "default-counters.csv", gpus: 1, seed: 2,
			readings: map[string]map[string]float64{"all": {
				"DCGM_FI_DEV_GPU_UTIL": 20, "DCGM_FI_DEV_POWER_USAGE": 300, "DCGM_FI_DEV_GPU_TEMP": 80, "DCGM_FI_DEV_SM_CLOCK": 2500, "DCGM_FI_DEV_MEM_CLOCK": 10501, "DCGM_FI_DEV_XID_ERRORS": 0,
				"DCGM_FI_DEV_FB_USED": 6000, "DCGM_FI_DEV_FB_FREE": 18000, "DCGM_FI_DEV_FB_RESERVED": 400, "DCGM_FI_DEV_ENC_UTIL": 5, "DCGM_FI_DEV_DEC_UTIL": 6, "DCGM_FI_DEV_MEM_COPY_UTIL": 15,
			}},
			rises: map[string]float64{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 290e3, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 14},
		},
	}
}

// kubelet serves the node's pods, or returns nil if it has none.
func (n *dashboardNode) kubelet(t *testing.T) *kubelet.Server {
	if n.pods == nil {
		return nil
	}
	k := kubelet.Start(t)
	n.run(k, "")
	return k
}

// run has the kubelet run the node's pods, with a suffix of their names.
func (n *dashboardNode) run(k *kubelet.Server, suffix string) {
	var pods []*v1.PodResources
	for _, name := range slices.Sorted(maps.Keys(n.pods)) {
		namespace, pod, _ := strings.Cut(name, "/")
		pods = append(pods, kubelet.Pod(namespace, pod+suffix, kubelet.Container("main", kubelet.Devices(n.resource, n.pods[name]...))))
	}
	k.Set(pods...)
}

// serve starts the node's exporter at an address.
func (n *dashboardNode) serve(t *testing.T, exe, address, names string, k *kubelet.Server) *exporter {
	t.Helper()
	var spec strings.Builder
	spec.WriteString("faults:\n" + n.script)
	for _, devices := range slices.Sorted(maps.Keys(n.readings)) {
		for _, field := range slices.Sorted(maps.Keys(n.readings[devices])) {
			fmt.Fprintf(&spec, "- {kind: value, device: %s, field: %s, value: %v}\n", devices, field, n.readings[devices][field])
		}
	}
	for _, field := range slices.Sorted(maps.Keys(n.rises)) {
		fmt.Fprintf(&spec, "- {kind: value, device: all, field: %s, value: 0, rise: %v}\n", field, n.rises[field])
	}
	list := testkit.Get(filepath.Abs("../../etc/" + n.list))(t)
	args := []string{exe, "--address=" + address, "--enable-only=fake", "-f", list, "-c", "200", "--slow-interval=200ms", "--field-names=" + names, "--fake-profile=" + n.profile, fmt.Sprintf("--fake-devices=%d", n.gpus), fmt.Sprintf("--fake-seed=%d", n.seed), "--fake-spec=" + file(t, n.name+".yaml", spec.String()), "--process-values=false"}
	if k != nil {
		args = append(args, withKubelet(k.Socket(), "--kubernetes-virtual-gpus")...)
	}
	if n.job != "" {
		args = append(args, "--hpc-job-mapping-dir="+filepath.Dir(file(t, "2", n.job+"\n")))
	}
	if k != nil {
		args = append(args, "--accounts", "--account-idle-after=1s")
	}
	return serving(t, args...)
}

// target returns the line of a Prometheus configuration for the node's exporter.
func (n *dashboardNode) target(e *exporter) string {
	return fmt.Sprintf("  - {targets: [%q], labels: {cluster: test, instance: %s, namespace: gpu-operator, pod: exporter-%s, container: exporter}}\n", strings.TrimPrefix(e.url, "http://"), n.name, n.name)
}

// dashboardViews are dashboards with values for their variables. Names in testdata/dashboards.txt begin with them.
var dashboardViews = []dashboardView{
	{file: "fleet"}, {file: "node"}, {file: "workloads"}, {file: "accounts"}, {file: "exporter"}, {file: "lists"},
	{"gpu", "h100", "0"}, {"gpu", "a100", "3"}, {"gpu", "mi300x", "0"}, {"gpu", "rtx4090", "0"},
	{"exporter", "h100", ""}, // without the out-of-range values
}

type dashboardView struct{ file, instance, gpu string }

// read returns the dashboard, without rows, and its variables' values.
func (v dashboardView) read(t *testing.T, job string) (d ownDashboard, chosen *strings.Replacer) {
	t.Helper()
	text := testkit.Get(os.ReadFile("../../dashboards/" + v.file + ".json"))(t)
	must(t, json.Unmarshal(text, &d))
	d.Panels = slices.DeleteFunc(d.Panels, func(p ownPanel) bool { return p.Type == "row" })
	for i := range d.Panels {
		p := &d.Panels[i]
		p.name = strings.TrimSpace(v.file+" "+v.instance) + ": " + p.Title
		if p.Type == "stat" {
			p.name += ", now"
		}
	}
	return d, strings.NewReplacer("$__rate_interval", "10s", "$__range", "30s", "$step", "1s", "$instance", cmp.Or(v.instance, ".*"), "$gpu", cmp.Or(v.gpu, ".*"),
		"$cluster", "test", "$job", job, "$model", ".*", "$namespace", ".*", "$pod", ".*")
}

// ownPanel has the parts of a panel that the tests read.
type ownPanel struct {
	name        string // in testdata/dashboards.txt
	Type, Title string
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct{ Defaults struct{ NoValue string } }
	// For a table: the columns in order.
	Transformations []struct {
		Options struct{ Include struct{ Names []string } }
	}
}

// check asks a server what the panel shows, and compares. Of a series that two jobs have, the larger one counts: an exporter
// that restarts counts nothing meanwhile.
func (p *ownPanel) check(t *testing.T, server *prometheustest.Server, chosen *strings.Replacer, want map[string]numbers) error {
	t.Helper()
	var columns []string
	for _, f := range p.Transformations {
		columns = append(columns, f.Options.Include.Names...)
	}
	got := map[string]float64{}
	for _, target := range p.Targets {
		v := server.Query(t, chosen.Replace(target.Expr))
		if p.Type == "heatmap" {
			got = distribution(v)
			continue
		}
		most := map[model.Fingerprint]*model.Sample{}
		for _, s := range v {
			delete(s.Metric, "job")
			if other := most[s.Metric.Fingerprint()]; other == nil || other.Value < s.Value {
				most[s.Metric.Fingerprint()] = s
			}
		}
		for _, s := range most {
			got[seriesName(target.LegendFormat, columns, s.Metric)] += float64(s.Value)
		}
	}
	if err := shows(got, want); err != nil {
		return fmt.Errorf("%s:\n%w", p.name, err)
	}
	return nil
}

// ownDashboard has the parts of a dashboard that the tests read.
type ownDashboard struct {
	Panels     []ownPanel
	Templating struct {
		List []struct {
			Type  string
			Query any
		}
	}
}

// numberLine matches a line of testdata/dashboards.txt: a series with its number, or with minimum and maximum.
var numberLine = regexp.MustCompile(`^\t *(.*?) *= (\S+)(?: to (\S+))?$`)

// panelNumbers reads testdata/dashboards.txt: numbers by view and panel, then by series name.
func panelNumbers(t *testing.T) map[string]map[string]numbers {
	t.Helper()
	text := testkit.Get(os.ReadFile("testdata/dashboards.txt"))(t)
	out, at := map[string]map[string]numbers{}, ""
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := numberLine.FindStringSubmatch(line)
		if m == nil {
			at = line
			out[at] = map[string]numbers{}
			continue
		}
		low, err := strconv.ParseFloat(m[2], 64)
		must(t, err)
		high := testkit.Get(strconv.ParseFloat(cmp.Or(m[3], m[2]), 64))(t)
		out[at][m[1]] = numbers{low, high}
	}
	return out
}

// numbers is an inclusive range.
type numbers struct{ low, high float64 }

func (n numbers) have(v float64) bool {
	const rounding = 1e-6
	return v >= n.low-rounding*math.Abs(n.low) && v <= n.high+rounding*math.Abs(n.high)
}

// listHash matches the hash of a list, which changes with the list.
var listHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// labelValues matches a variable's query.
var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// seriesName returns a panel's name of a series: its legend, or the cells of a table row.
func seriesName(legend string, columns []string, labels model.Metric) string {
	if columns != nil {
		var cells []string
		for _, c := range columns {
			if v := labels[model.LabelName(c)]; v != "" && c != "UUID" && c != "device" && c != "hash" {
				cells = append(cells, string(v[strings.LastIndex(string(v), "/etc/")+1:])) // for a list, the file name without its directory
			}
		}
		return strings.Join(cells, " | ")
	}
	name := legendLabel.ReplaceAllStringFunc(legend, func(l string) string { return string(labels[model.LabelName(strings.Trim(l, "{}"))]) })
	return strings.Join(strings.Fields(listHash.ReplaceAllString(name, "a list")), " ")
}

// distribution returns the content of a heatmap for a classic or native histogram: the sample rate
// and the median's upper bound.
func distribution(v model.Vector) map[string]float64 {
	samples, half := 0.0, math.Inf(1)
	for _, s := range v {
		samples = max(samples, float64(s.Value))
		if s.Histogram != nil {
			samples = float64(s.Histogram.Count)
		}
	}
	for _, s := range v {
		below := float64(s.Value)
		if bound, err := strconv.ParseFloat(string(s.Metric["le"]), 64); err == nil && below >= samples/2 {
			half = min(half, bound)
		}
		if s.Histogram == nil {
			continue
		}
		for _, b := range s.Histogram.Buckets {
			if below += float64(b.Count); below >= samples/2 {
				half = min(half, float64(b.Upper))
			}
		}
	}
	if len(v) == 0 {
		return nil
	}
	return map[string]float64{"samples": samples, "half are below": half}
}

// shows compares a panel's numbers with the expected ones.
func shows(got map[string]float64, want map[string]numbers) error {
	var errs []error
	for name, v := range got {
		if n, ok := want[name]; !ok || !n.have(v) {
			errs = append(errs, fmt.Errorf("\t%s = %v, want %v", name, v, n))
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			errs = append(errs, fmt.Errorf("\t%s is missing", name))
		}
	}
	return errors.Join(errs...)
}

// fleetPage returns the address of a page with warpgauge-fleet's metrics during a rollout.
func fleetPage(t *testing.T) string {
	t.Helper()
	start := time.Now()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		seconds := int(time.Since(start).Seconds())
		fmt.Fprintf(w, `warpgauge_fleet_rollout_state{cohort="h100",state="running"} 1
warpgauge_fleet_rollout_state{cohort="h100",state="done"} 0
warpgauge_fleet_rollout_stage{cohort="h100"} 2
warpgauge_fleet_rollout_agents{cohort="h100",condition="applied"} 12
warpgauge_fleet_rollout_agents{cohort="h100",condition="pending"} 3
warpgauge_fleet_agents{cohort="h100",condition="current"} 100
warpgauge_fleet_agents{cohort="h100",condition="silent"} 4
warpgauge_fleet_agents_limit 1000
warpgauge_fleet_messages_total %d
warpgauge_fleet_messages_refused_total{reason="login"} %d
process_resident_memory_bytes 5e+07
`, 20*seconds, seconds)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestE2EDashboardsOwn runs the queries of every panel, variable and annotation of dashboards/ on real Prometheus servers,
// and compares the numbers with the simulated nodes' settings. Each server scrapes one node of each kind, with DCGM names of
// one generation or both. One server does not honour pod labels; one has native histograms.
func TestE2EDashboardsOwn(t *testing.T) {
	t.Parallel()
	prometheustest.Find(t)
	exe := build(t)
	rules := fast(t, "../../deploy/prometheus/rules/recording.yml")
	nativeRules := fast(t, "../../deploy/prometheus/rules/recording-native.yml")
	servers := map[string]*prometheustest.Server{}
	lists := fleetPage(t)
	for _, names := range []string{"as-written", "new", "both"} {
		files, options, honour := []string{rules}, []string(nil), true
		switch names {
		case "new":
			honour = false // the target has labels, like the GPU Operator's
		case "both":
			files, options = append(files, nativeRules), []string{"--enable-feature=native-histograms"}
		}
		var config strings.Builder
		fmt.Fprintf(&config, "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: %q\nscrape_configs:\n- job_name: warpgauge\n  honor_labels: %v\n  static_configs:\n", files, honour)
		for _, n := range dashboardNodes() {
			config.WriteString(n.target(n.serve(t, exe, "127.0.0.1:0", names, n.kubelet(t))))
		}
		fmt.Fprintf(&config, "- {job_name: warpgauge-fleet, static_configs: [{targets: [%q], labels: {cluster: test, instance: fleet}}]}\n", lists)
		servers[names] = prometheustest.Start(t, strings.ReplaceAll(config.String(), `" "`, `", "`), options...)
	}

	want, seen := panelNumbers(t), map[string]bool{}
	var pending []func() error // panels that have not shown their numbers yet
	for names, server := range servers {
		// One GPU plus 1/7 to 3/7, depending on the covered part of the hour.
		pending = append(pending, func() error {
			v := server.Query(t, `namespace:gpu_hours:sum1h{namespace="serving"} / ignoring (namespace) namespace:gpu_hours:sum1h{namespace="research"}`)
			if len(v) != 1 || math.Abs(float64(v[0].Value)-8.0/3) > 0.2 {
				return fmt.Errorf("GPU-hours of serving / research, names %s: %v, want %v", names, v, 8.0/3)
			}
			return nil
		})
	}
	for _, view := range dashboardViews {
		d, chosen := view.read(t, "warpgauge")
		for _, p := range d.Panels {
			seen[p.name] = true
			if len(want[p.name]) == 0 && p.FieldConfig.Defaults.NoValue == "" {
				t.Errorf("%s: testdata/dashboards.txt has no number, and the panel has no text for that", p.name)
			}
			for names, server := range servers {
				pending = append(pending, func() error {
					if err := p.check(t, server, chosen, want[p.name]); err != nil {
						return fmt.Errorf("names %s, %w", names, err)
					}
					return nil
				})
			}
		}
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			query, _ := v.Query.(map[string]any)["query"].(string)
			m := labelValues.FindStringSubmatch(chosen.Replace(query))
			if m == nil {
				t.Fatalf("%s: variable %q", view.file, query)
			}
			for names, server := range servers {
				pending = append(pending, func() error {
					if len(server.Query(t, fmt.Sprintf(`count by (%s) (%s)`, m[2], m[1]))) == 0 {
						return fmt.Errorf("%s: the variable %s has no values, names %s", view.file, query, names)
					}
					return nil
				})
			}
		}
	}
	eventually.OK(t, "the number of each panel", func() error {
		var errs []error
		pending = slices.DeleteFunc(pending, func(check func() error) bool {
			err := check()
			errs = append(errs, err)
			return err == nil
		})
		return errors.Join(errs...)
	})
	for name := range want {
		if !seen[name] {
			t.Errorf("testdata/dashboards.txt has %q, and there is no such panel", name)
		}
	}
}

// TestE2EDashboardsThroughChanges: panels show the numbers of testdata/dashboards.txt while every node, those with MIG
// instances too, has two exporters, a new pod has each GPU every two seconds, and an exporter restarts. A pod that came back
// would have a series with a rate over the time between.
func TestE2EDashboardsThroughChanges(t *testing.T) {
	t.Parallel()
	prometheustest.Find(t)
	exe := build(t)
	nodes, kubelets := dashboardNodes(), []*kubelet.Server{}
	for _, n := range nodes {
		kubelets = append(kubelets, n.kubelet(t))
	}
	var restarts *exporter
	config := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n", fast(t, "../../deploy/prometheus/rules/recording.yml"))
	for _, job := range []string{"warpgauge", "former"} {
		config += fmt.Sprintf("- job_name: %s\n  honor_labels: true\n  static_configs:\n", job)
		for i, n := range nodes {
			e := n.serve(t, exe, "127.0.0.1:0", "as-written", kubelets[i])
			config += n.target(e)
			restarts = cmp.Or(restarts, e)
		}
	}
	server := prometheustest.Start(t, config)
	native := prometheustest.Start(t, strings.Replace(config, "rule_files: [", fmt.Sprintf("rule_files: [%q, ", fast(t, "../../deploy/prometheus/rules/recording-native.yml")), 1), "--enable-feature=native-histograms")
	want := panelNumbers(t)
	check := func(owners bool) error { // the exporters notice another pod one after the other
		var errs []error
		for _, view := range dashboardViews {
			d, chosen := view.read(t, ".*")
			for _, p := range d.Panels {
				if view.file == "exporter" || view.file == "lists" || view.file == "accounts" || !owners && (view.file == "workloads" || p.Title == "Owners") {
					continue
				}
				errs = append(errs, p.check(t, server, chosen, want[p.name]))
				if strings.HasSuffix(p.Title, ", every sample") {
					errs = append(errs, p.check(t, native, chosen, want[p.name]))
				}
			}
		}
		for recorded, want := range map[string]numbers{"histogram_count(gpu:utilization:histogram_rate5m%s)": {800, 1200}, "gpu:power:watts_mean5m%s": {240, 360}} {
			v := native.Query(t, fmt.Sprintf(recorded, `{instance="h100", job="former"}`)) // the other job restarts
			if len(v) != 3 || slices.ContainsFunc(v, func(s *model.Sample) bool { return !want.have(float64(s.Value)) }) {
				errs = append(errs, fmt.Errorf("%s: %v, want %v of each of 3 GPUs", recorded, v, want))
			}
		}
		return errors.Join(errs...)
	}
	eventually.OK(t, "each panel with two exporters", func() error { return check(true) })
	pods := func(suffix string) {
		for i, k := range kubelets {
			if k != nil {
				nodes[i].run(k, suffix)
			}
		}
	}
	for second := range 30 {
		pods(fmt.Sprintf("-%d", second/2))
		switch second {
		case 10:
			restarts.ends(t, syscall.SIGTERM)
		case 12:
			nodes[0].serve(t, exe, strings.TrimPrefix(restarts.url, "http://"), "as-written", kubelets[0])
		}
		time.Sleep(time.Second)
		if err := check(false); err != nil {
			t.Errorf("after %d s: %v", second, err)
		}
	}
	pods("")
	eventually.OK(t, "each panel afterwards", func() error { return check(true) })
}

// TestE2EShortPods: rules of native histograms count each sample of a GPU that has another pod at each scrape.
func TestE2EShortPods(t *testing.T) {
	t.Parallel()
	prometheustest.Find(t)
	var samples atomic.Uint64
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
		n := samples.Add(100)
		for name, half := range map[string]int{"DCGM_FI_DEV_BOARD_POWER_RAW_WATTS": 9 * 8, "DCGM_FI_DEV_GPU_UTIL_RATIO": -8} { // buckets up to 512 and 0.5
			d := prometheus.NewDesc(name, "Samples.", []string{"gpu", "UUID", "pod"}, nil)
			ch <- prometheus.MustNewConstNativeHistogram(d, n, math.Exp2(float64(half)/8)*float64(n), map[int]int64{half: int64(n)}, nil, 0, 3, 0, time.Time{}, "0", "U0", strconv.FormatUint(n, 10))
		}
	}))
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(page.Close)
	server := prometheustest.Start(t, fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n- {job_name: w, static_configs: [{targets: [%q]}]}\n",
		fast(t, "../../deploy/prometheus/rules/recording-native.yml"), strings.TrimPrefix(page.URL, "http://")), "--enable-feature=native-histograms")
	for rule, want := range map[string]numbers{
		"histogram_count(gpu:utilization:histogram_rate5m)": {80, 120}, "gpu:utilization:ratio_mean5m": {0.5, 0.5},
		"gpu:utilization:ratio_p50_5m": {0.45, 0.5}, "gpu:utilization:ratio_p99_5m": {0.45, 0.5}, "gpu:power:watts_p99_5m": {469, 512},
	} {
		eventually.OK(t, rule, func() error {
			if v := server.Query(t, rule); len(v) != 1 || !want.have(float64(v[0].Value)) {
				return fmt.Errorf("%v, want one of %v", v, want)
			}
			return nil
		})
	}
}

// fast copies the rules without their intervals, which are too long for a test.
func fast(t *testing.T, rules string) string {
	t.Helper()
	text := testkit.Get(os.ReadFile(rules))(t)
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(l string) bool { return strings.HasPrefix(l, "    interval:") })
	// The first full minute with samples can begin more than a minute later. Rates are those of the panels' windows.
	return file(t, "rules.yml", strings.NewReplacer("[5m:1m]", "[10s:1s]", ":1m]", ":1s]", "[1h]", "[30s]", "offset 62m", "offset 32s", "offset 2m", "offset 2s").Replace(strings.Join(lines, "\n")))
}
