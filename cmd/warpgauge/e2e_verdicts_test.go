package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"warpgauge/cmd/warpctl/doctor"
	"warpgauge/cmd/warpctl/top"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/events"
)

// faultsOfGPUs has a fault for each GPU of a simulated node but the last one, in the order of the table.
var faultsOfGPUs = []struct{ text, fault string }{
	{"XID 13", "xid, xid: 13"}, {"XID 31", "xid, xid: 31"}, {"XID 43", "xid, xid: 43"}, {"XID 45", "xid, xid: 45"},
	{"XID 63", "xid, xid: 63"}, {"XID 94", "xid, xid: 94"}, {"XID 48", "xid, xid: 48"}, {"XID 64", "xid, xid: 64"},
	{"XID 74", "xid, xid: 74"}, {"XID 79", "xid, xid: 79"}, {"XID 95", "xid, xid: 95"}, {"XID 119", "xid, xid: 119"},
	{"XID 142", "xid, xid: 142"}, {"XID 145 without a line of the kernel", "xid, xid: 145"},
	{"no call returns", "hang"}, {"the library says that it is lost", "lost"}, {"calls fail", "stalled"},
	{"a row could not be remapped", "value, field: DCGM_FI_DEV_ROW_REMAP_FAILURE, value: 1"},
	{"a row is to be remapped", "value, field: DCGM_FI_DEV_ROW_REMAP_PENDING, value: 1"},
	{"an uncorrected error", "value, field: DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, value: 1"},
	{"16 retired pages", "value, field: DCGM_FI_DEV_RETIRED_DBE, value: 16"},
	{"the driver asks for a reset", "value, field: DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION, value: 1"},
	{"the driver asks to drain", "value, field: DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION, value: 3"},
	{"the IMEX domain must be recovered", "value, field: DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION, value: 5"},
	{"a corrupt InfoROM", "value, field: DCGM_FI_DEV_INFOROM_CONFIG_VALID, value: 0"},
}

// TestE2EVerdicts injects the faults with each shipped list, and compares the metric, the API and the commands: state and action are
// the same everywhere and with each list. It writes the table of docs/health-consumers.md.
func TestE2EVerdicts(t *testing.T) {
	t.Parallel()
	table := ""
	for _, list := range []string{"default-counters.csv", "recommended-counters.csv", "dcp-metrics-included.csv", "1.x-compatibility-metrics.csv"} {
		fault := newTrouble(t)
		var entries []string
		for gpu, f := range faultsOfGPUs {
			entries = append(entries, fault.fault(fmt.Sprintf("device: %d, kind: %s", gpu, f.fault)))
		}
		e := serve(t, build(t), "--fake-devices="+strconv.Itoa(len(faultsOfGPUs)+1), "--sample-deadline=2s", "--slow-interval=2s",
			"-f", filepath.Join("..", "..", "etc", list), faults(t, entries...))
		e.await(t, "healthy GPUs", func(p page) error { return verdictsOf(p, "ok  none", len(faultsOfGPUs)+1) })
		fault.begin(t)
		var p page
		var all []string
		e.await(t, "the verdicts", func(now page) error { // the last to come is the hung GPU's
			p = now
			return errors.Join(now.want(1, "warpgauge_device_health", "gpu", "14", "state", "failed"), verdictsOf(now, "ok  none", 7))
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
		rows := ""
		for gpu, f := range faultsOfGPUs {
			v := strings.Split(all[gpu], " | ")
			rows += fmt.Sprintf("| %s | %s | %s |\n", f.text, all[gpu], map[bool]string{true: "yes", false: "no"}[events.OutOfService(v[0], events.Action(v[2]))])
		}
		if table != "" && table != rows {
			t.Errorf("%s: verdicts\n%s, want those of the list before\n%s", list, rows, table)
		}
		table = rows
		e.Signal(t, syscall.SIGTERM)
		<-e.Ended()
	}
	golden.Fill(t, "../../docs/health-consumers.md", map[string]string{"verdicts": "| Fault | State | Reason | Action | Out of service |\n|---|---|---|---|---|\n" + table})
}

// verdictsOf checks that n GPUs have a verdict: state, reason and action.
func verdictsOf(p page, verdict string, n int) error {
	got := 0
	for _, s := range p.family("warpgauge_device_health") {
		if s.get("state")+" "+s.get("reason")+" "+s.get("action") == verdict {
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
	if len(health.Devices) != len(metric) || len(devices.Devices) != len(metric) || len(screen.Devices) != len(metric) {
		t.Fatalf("%s: %d, %d, %d devices, want %d", list, len(health.Devices), len(devices.Devices), len(screen.Devices), len(metric))
	}
	for i := range metric {
		h, d, s := &health.Devices[i], &devices.Devices[i], &screen.Devices[i]
		n, err := strconv.Atoi(h.GPU)
		must(t, err)
		word := h.State // for people: an ok device is up, one without values has its state
		switch h.State {
		case "ok":
			word = "up"
		case "unknown":
			word = d.State
		}
		action := h.Action == "none" || strings.HasSuffix(d.Status.Why, "; action: "+h.Action)
		if h.State+" | "+h.Reason+" | "+h.Action != metric[n] || d.Status.Word != word || !action || s.State != word || s.Reason != d.Status.Why || s.GPU != h.GPU || d.GPU != h.GPU {
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
	out, err := exec.CommandContext(t.Context(), build(t), "health", "--output=line", "--url="+e.url).Output()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), ": ") {
		t.Errorf("%s: warpgauge health: %v, %q", list, err, out)
	}
}
