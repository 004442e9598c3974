package main_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/protobuf/types/known/emptypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warpgauge/cmd/warpctl/doctor"
	"warpgauge/cmd/warpctl/top"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/extensions/health/consumer/amdplugin/gpumetricssvc"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/golden"
	"warpgauge/internal/testkit/programtest/prometheustest"
	"warpgauge/pkg/events"
	"warpgauge/pkg/kube/kubetest/apitest"
)

// faultsOfGPUs has a fault for each GPU of a simulated node but the last one, in the order of the table.
var faultsOfGPUs = []struct{ text, fault string }{
	{"XID 13", "xid, xid: 13"}, {"XID 31", "xid, xid: 31"}, {"XID 43", "xid, xid: 43"}, {"XID 45", "xid, xid: 45"},
	{"XID 63", "xid, xid: 63"}, {"XID 94", "xid, xid: 94"}, {"XID 48", "xid, xid: 48"}, {"XID 64", "xid, xid: 64"},
	{"XID 74", "xid, xid: 74"}, {"XID 79", "xid, xid: 79"}, {"XID 95", "xid, xid: 95"}, {"XID 119", "xid, xid: 119"},
	{"XID 142", "xid, xid: 142"}, {"XID 145 without a line of the kernel", "xid, xid: 145"},
	{"no call returns", "hang"}, {"one call does not return", "hang, field: DCGM_FI_DEV_GPU_TEMP"},
	{"the library says that it is lost", "lost"}, {"calls fail, for less than five minutes", "stalled"},
	{"a row could not be remapped", "value, field: DCGM_FI_DEV_ROW_REMAP_FAILURE, value: 1"},
	{"a row is to be remapped", "value, field: DCGM_FI_DEV_ROW_REMAP_PENDING, value: 1"},
	{"an uncorrected error", "value, field: DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, value: 1"},
	{"16 retired pages", "value, field: DCGM_FI_DEV_RETIRED_DBE, value: 16"},
	{"the driver asks for a reset", "value, field: DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION, value: 1"},
	{"the driver asks to drain", "value, field: DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION, value: 3"},
	{"the IMEX domain must be recovered", "value, field: DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION, value: 5"},
	{"a corrupt InfoROM", "value, field: DCGM_FI_DEV_INFOROM_CONFIG_VALID, value: 0"},
}

// TestE2EVerdicts injects the faults with each list, and compares the metric, the API, the commands and the node's condition,
// with the first list also alerts, Slurm's script and node-problem-detector's command: state and action are the same everywhere and
// with each list. It writes the table of docs/health-consumers.md.
func TestE2EVerdicts(t *testing.T) {
	t.Parallel()
	kube := newNodeStatus(t, "node-1")
	table := ""
	for _, list := range verdictLists(t, "default-counters.csv", "recommended-counters.csv", "dcp-metrics-included.csv", "1.x-compatibility-metrics.csv") {
		fault := newTrouble(t)
		var entries []string
		for gpu, f := range faultsOfGPUs {
			entries = append(entries, fault.fault(fmt.Sprintf("device: %d, kind: %s", gpu, f.fault)))
		}
		entries = append(entries, fault.fault("switch: 0, kind: value, field: DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS, value: 20034"))
		e := serveBy(t, []string{"env", "KUBECONFIG=" + kube.Kubeconfig(), "NODE_NAME=node-1", build(t)}, "--health-node-condition", "--fake-devices="+strconv.Itoa(len(faultsOfGPUs)+1), "--sample-deadline=2s", "--slow-interval=2s",
			"-f", list, faults(t, entries...))
		e.await(t, "healthy GPUs", func(p page) error { return verdictsOf(p, "ok  none", len(faultsOfGPUs)+1) })
		fault.begin(t)
		var p page
		var all []string
		e.await(t, "the verdicts", func(now page) error { // the last to come are those of GPUs that hang
			p = now
			return errors.Join(now.want(1, "warpgauge_device_health", "gpu", "14", "state", "failed"), now.want(1, "warpgauge_device_health", "gpu", "15", "state", "degraded"), verdictsOf(now, "ok  none", 7),
				now.want(1, "warpgauge_device_health", "gpu", "", "state", "failed", "reason", "sxid_fatal", "action", "reset_gpu"))
		})
		for gpu := range len(faultsOfGPUs) + 1 {
			for _, s := range p.family("warpgauge_device_health") {
				if s.get("gpu") == strconv.Itoa(gpu) {
					all = append(all, fmt.Sprintf("%s | %s | %s", s.get("state"), s.get("reason"), s.get("action")))
				}
			}
		}
		if len(all) != len(faultsOfGPUs)+1 {
			t.Fatalf("%s: verdicts %q", list, all)
		}
		e.sameEverywhere(t, list, all)
		kube.same(t, list, all)
		if table == "" {
			e.sameAlerts(t, all)
			e.sameActs(t, all)
		}
		rows := ""
		for gpu, f := range faultsOfGPUs {
			v := strings.Split(all[gpu], " | ")
			rows += fmt.Sprintf("| %s | %s | %s |\n", f.text, all[gpu], map[bool]string{true: "yes", false: "no"}[events.OutOfService(v[0], events.Action(v[2]))])
		}
		rows += "| the switch has a fatal SXid | failed | sxid_fatal | reset_gpu | yes |\n"
		testkit.Equal(t, list+": verdicts, like those of the list before", cmp.Or(table, rows), rows)
		table = rows
		e.Signal(t, syscall.SIGTERM)
		<-e.Ended()
	}
	golden.Fill(t, "../../docs/health-consumers.md", map[string]string{"verdicts": "| Fault | State | Reason | Action | Out of service |\n|---|---|---|---|---|\n" + table})
}

// verdictLists returns the files of shipped lists, of a minimal one, and of one that has only health.
func verdictLists(t *testing.T, shipped ...string) []string {
	etc := testkit.Get(filepath.Abs("../../etc"))(t)
	for i := range shipped {
		shipped[i] = filepath.Join(etc, shipped[i])
	}
	return append(shipped, file(t, "minimal", "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"), file(t, "health", "DCGM_EXP_GPU_HEALTH_STATUS, gauge, h\n"))
}

// verdictsOf checks that n GPUs have a verdict: state, reason and action.
func verdictsOf(p page, verdict string, n int) error {
	got := 0
	for _, s := range p.family("warpgauge_device_health") {
		if s.get("gpu") != "" && s.get("state")+" "+s.get("reason")+" "+s.get("action") == verdict { // not of switches
			got++
		}
	}
	if got != n {
		return fmt.Errorf("%d GPUs are %q, want %d", got, verdict, n)
	}
	return nil
}

// sameEverywhere compares what the API and the commands say of each GPU with the metric.
func (e *exporter) sameEverywhere(t *testing.T, list string, metric []string) {
	t.Helper()
	ask := func(exe string, to any, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), exe, append(args, "--url="+e.url)...).Output()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		must(t, json.Unmarshal(out, to))
	}
	var health apiv1.Health
	var devices apiv1.Devices
	var screen top.Report
	var found doctor.Result
	ask(build(t), &health, "health", "--output=json")
	ask(build(t), &devices, "devices", "--output=json")
	ask(buildControl(t), &screen, "top", "--once", "--output=json")
	ask(buildControl(t), &found, "doctor", "--output=json")
	words := map[string]string{} // of switches
	health.Devices = slices.DeleteFunc(health.Devices, func(d apiv1.DeviceHealth) bool {
		words[d.ID] = strings.Replace(d.State, "ok", "up", 1)
		return d.GPU == ""
	})
	devices.Devices = slices.DeleteFunc(devices.Devices, func(d apiv1.Device) bool { return d.GPU == "" && d.Status.Word == words[d.ID] })
	if len(health.Devices) != len(metric) || len(devices.Devices) != len(metric) || len(screen.Devices) != len(metric) {
		t.Fatalf("%s: %d, %d, %d devices, want %d", list, len(health.Devices), len(devices.Devices), len(screen.Devices), len(metric))
	}
	for i := range metric { // the orders differ: devices that are not there come last
		d := &devices.Devices[i]
		h := &health.Devices[slices.IndexFunc(health.Devices, func(h apiv1.DeviceHealth) bool { return h.GPU == d.GPU })]
		s := &screen.Devices[slices.IndexFunc(screen.Devices, func(s top.DeviceReport) bool { return s.GPU == d.GPU })]
		n := testkit.Get(strconv.Atoi(d.GPU))(t)
		word := h.State // for people: an ok device is up, one without values has its state
		switch h.State {
		case "ok":
			word = "up"
		case "unknown":
			word = d.State
		}
		action := h.Action == "none" || strings.HasSuffix(d.Status.Why, "; action: "+h.Action)
		if h.State+" | "+h.Reason+" | "+h.Action != metric[n] || d.Status.Word != word || !action || s.State != word || s.Reason != d.Status.Why {
			t.Errorf("%s: GPU %d: metric %q, health %+v, devices %+v, top %+v", list, n, metric[n], h, d.Status, s)
		}
		about := 0
		for _, f := range found.Findings {
			if strings.Contains(f.Finding, d.Status.Why) && regexp.MustCompile(fmt.Sprintf(`^%s: .*GPU %d\b`, word, n)).MatchString(f.Finding) {
				about++
			}
		}
		if (word != "up") != (about == 1) || slices.ContainsFunc(found.Findings, func(f doctor.Finding) bool { return strings.Contains(f.Finding, "devices are up") }) {
			t.Errorf("%s: GPU %d is %s: %d findings of doctor in %+v", list, n, word, about, found.Findings)
		}
	}
}

// nodeStatus is an API server that keeps the condition of its node.
type nodeStatus struct {
	*apitest.Server
	condition atomic.Pointer[metav1.Condition]
}

func newNodeStatus(t *testing.T, node string) *nodeStatus {
	t.Helper()
	s := &nodeStatus{Server: apitest.Start(t, node)}
	s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch || r.URL.Path != "/api/v1/nodes/"+node+"/status" {
			return false
		}
		var patch struct {
			Status struct{ Conditions []metav1.Condition }
		}
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || len(patch.Status.Conditions) != 1 {
			t.Errorf("patch %+v, %v", patch, err)
			return false
		}
		s.condition.Store(&patch.Status.Conditions[0])
		apitest.Reply(w, http.StatusOK, apitest.Object{"kind": "Node", "apiVersion": "v1", "metadata": apitest.Object{"name": node}})
		return true
	})
	return s
}

// becomes waits for a status of the condition GPUProblem and a text in its message.
func (s *nodeStatus) becomes(t *testing.T, status metav1.ConditionStatus, message string) {
	t.Helper()
	eventually.OK(t, "the condition of the node", func() error {
		if c := s.condition.Load(); c == nil || c.Type != "GPUProblem" || c.Status != status || !strings.Contains(c.Message, message) {
			return fmt.Errorf("%+v, want %s with %q", c, status, message)
		}
		return nil
	})
}

// same compares the condition's message, which names failed GPUs until it is too long, with the metric.
func (s *nodeStatus) same(t *testing.T, list string, metric []string) {
	t.Helper()
	var want []string
	for n, m := range metric {
		if v := strings.Split(m, " | "); v[0] == "failed" {
			want = append(want, fmt.Sprintf("GPU %d %s %s", n, v[1], v[2]))
		}
	}
	want = append(want, "the switch, for which the message has no room")
	eventually.OK(t, "the condition of the node", func() error {
		c := s.condition.Load()
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "GPUFailed" {
			return fmt.Errorf("%s: %+v", list, c)
		}
		named, rest := regexp.MustCompile(`GPU (\d+) is failed: [^;]* \((\w+)\), recommended: (\w+)`).FindAllStringSubmatch(c.Message, -1), 0
		_, _ = fmt.Sscanf(c.Message[strings.LastIndex(c.Message, "; ")+2:], "%d more", &rest) // 0 if all are named
		for i, m := range named {
			if got := "GPU " + strings.Join(m[1:], " "); got != want[i] {
				return fmt.Errorf("%s: the condition has %q, the metric %q", list, got, want[i])
			}
		}
		if len(named) < 8 || len(named)+rest != len(want) {
			return fmt.Errorf("%s: %d GPUs and %d more of %d: %s", list, len(named), rest, len(want), c.Message)
		}
		return nil
	})
}

// sameAlerts compares the alerts of a real Prometheus about each GPU with the metric.
func (e *exporter) sameAlerts(t *testing.T, metric []string) {
	t.Helper()
	rules := testkit.Get(filepath.Abs("../../deploy/prometheus/rules/alerts.yml"))(t)
	server := prometheustest.Start(t, fmt.Sprintf(`global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- {job_name: warpgauge, honor_labels: true, static_configs: [{targets: [%q]}]}
`, rules, strings.TrimPrefix(e.url, "http://")))
	states := map[string]string{"GPUFailed": "failed", "GPUOutOfService": "degraded", "GPUDegraded": "degraded"}
	server.Process.Await(t, "the alerts", func() error {
		answer, err := server.API.Alerts(t.Context())
		got := make([]string, len(metric))
		for _, a := range answer.Alerts {
			n, err := strconv.Atoi(string(a.Labels["gpu"]))
			if state := states[string(a.Labels["alertname"])]; err == nil && state != "" {
				got[n] += fmt.Sprintf("%s | %s | %s", state, a.Annotations["reason"], a.Annotations["action"])
			}
		}
		for n, want := range metric {
			if strings.HasPrefix(want, "ok") || strings.HasPrefix(want, "unknown") {
				want = ""
			}
			if got[n] != want {
				err = errors.Join(err, fmt.Errorf("alerts about GPU %d: %q, want %q", n, got[n], want))
			}
		}
		return err
	})
}

// sameActs lets Slurm's script and node-problem-detector's command judge each GPU as if it were the only one of the node.
func (e *exporter) sameActs(t *testing.T, metric []string) {
	t.Helper()
	var all apiv1.Health
	var only atomic.Pointer[apiv1.Health] // what the server answers
	answer, err := newClient(t).Get(e.url + "/api/v1/health")
	must(t, err)
	must(t, errors.Join(json.NewDecoder(answer.Body).Decode(&all), answer.Body.Close()))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(only.Load()) // the client may have gone
	}))
	t.Cleanup(server.Close)
	var npd struct{ Rules []struct{ Args []string } }
	text := testkit.Get(os.ReadFile("../../deploy/node-problem-detector/warpgauge.json"))(t)
	must(t, json.Unmarshal(text, &npd))
	dir := t.TempDir()
	update := filepath.Join(dir, "update")
	write(t, filepath.Join(dir, "scontrol"), "#!/bin/sh\n[ \"$1\" != update ] || printf '%s' \"$*\" >"+update+"\necho NodeName=n1 State=IDLE ThreadsPerCore=1\n")
	must(t, os.Chmod(filepath.Join(dir, "scontrol"), 0o700))
	settings := file(t, "slurm", fmt.Sprintf("PATH=%s:$PATH\nWARPGAUGE_PROGRAM=%s\nWARPGAUGE_HEALTH_FLAGS=--url=%s\n", dir, build(t), server.URL))
	for _, d := range slices.DeleteFunc(all.Devices, func(d apiv1.DeviceHealth) bool { return d.GPU == "" }) {
		n, err := strconv.Atoi(d.GPU)
		must(t, err)
		only.Store(&apiv1.Health{State: d.State, Devices: []apiv1.DeviceHealth{d}})
		v := strings.Split(metric[n], " | ")
		code, reason, line := 0, "", fmt.Sprintf("GPU %d %s: %s", n, v[1], v[2])
		switch {
		case v[0] == "failed", v[2] == "drain": // as the documentation says
			code, reason = 1, "update NodeName=n1 State=DRAIN Reason=warpgauge: "+line
		case v[0] == "unknown":
			code = 2
		}
		slurm := exec.CommandContext(t.Context(), "../../deploy/slurm/warpgauge-health")
		slurm.Env = []string{"SLURMD_NODENAME=n1", "WARPGAUGE_SLURM_CONFIG=" + settings}
		out := testkit.Get(slurm.CombinedOutput())(t)
		got, _ := os.ReadFile(update) // missing if the node is not drained
		_ = os.Remove(update)
		testkit.Equal(t, fmt.Sprintf("GPU %d, %s: what scontrol is told after %s", n, metric[n], out), reason, string(got))
		command := exec.CommandContext(t.Context(), build(t), append(npd.Rules[0].Args, "--url="+server.URL)...)
		out, _ = command.Output() // fails with the code
		if c := command.ProcessState.ExitCode(); c != code || code == 1 && strings.TrimSpace(string(out)) != line {
			t.Errorf("GPU %d, %s: node-problem-detector gets code %d, want %d, and %q", n, metric[n], c, code, out)
		}
	}
}

// TestE2EAMDVerdicts breaks AMD's GPUs in their files, with each list, and compares the same as TestE2EVerdicts, and what AMD's
// device plugin is told.
func TestE2EAMDVerdicts(t *testing.T) {
	t.Parallel()
	mountNamespace(t)
	want := []string{
		"failed | ras_uncorrected | reset_gpu", "degraded | bad_pages_failed | reset_gpu", "degraded | xgmi_link_down | drain",
		"failed | hung | reboot", "failed | lost | reboot", "ok |  | none",
	}
	for _, list := range verdictLists(t, "default-counters.csv", "recommended-counters.csv", "amd-counters.csv", "dcp-metrics-included.csv", "1.x-compatibility-metrics.csv") {
		tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.8", GPUs: len(want)})
		sockets := t.TempDir()
		e := contained{
			mounts: map[string]string{"/sys": filepath.Join(tree.Root, "sys"), "/sockets": sockets, "/list.csv": list}, writable: []string{"/sockets"},
			args: []string{
				"--enable-only=rocm", "--enable-rocm=true", "--rocm-source=sysfs", "--health-amd-socket=/sockets/health", "-f", "/list.csv",
				"--sample-deadline=2s", "--slow-interval=2s",
			},
		}.run(t, build(t))
		e.await(t, "healthy GPUs", func(p page) error { return verdictsOf(p, "ok  none", len(want)) })
		tree.GPUs[0].Update(t, func(s *rocmtest.State) { s.Uncorrectable = 1 })
		tree.GPUs[1].Set(t, "ras/gpu_vram_bad_pages", "0x00001a2b : 0x00001000 : F \n")
		tree.GPUs[2].Update(t, func(s *rocmtest.State) { s.XGMIUp[0] = 0 })
		tree.GPUs[3].FIFO(t, "gpu_metrics")
		tree.GPUs[4].Vanish(t)
		e.await(t, list+": the verdicts", func(p page) (err error) {
			for n, verdict := range want {
				v := strings.Split(verdict, " | ")
				err = errors.Join(err, p.want(1, "warpgauge_device_health", "gpu", strconv.Itoa(n), "state", v[0], "reason", v[1], "action", v[2]))
			}
			return err
		})
		e.sameEverywhere(t, list, want)
		var answer gpumetricssvc.GPUStateResponse
		must(t, socketClient(t, filepath.Join(sockets, "health")).Invoke(t.Context(), "/metricssvc.MetricsService/List", &emptypb.Empty{}, &answer))
		for _, g := range answer.GetGPUState() {
			n := testkit.Get(strconv.Atoi(g.GetID()))(t)
			health := "healthy"
			if v := strings.Split(want[n], " | "); v[0] == "failed" || v[2] == "drain" {
				health = "unhealthy"
			}
			testkit.Equal(t, fmt.Sprintf("%s: health of GPU %d for the device plugin, with the verdict %q", list, n, want[n]), health, g.GetHealth())
		}
		testkit.Equal(t, list+": GPUs that the device plugin has", len(want), len(answer.GetGPUState()))
		e.ends(t, syscall.SIGTERM)
	}
}
