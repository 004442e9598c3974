package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"warpgauge/extensions/health/consumer/kubenode"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
)

// verdicts starts an exporter that returns these verdicts. A last one without ID is the verdict on the node, else ok.
func verdicts(t *testing.T, devices ...apiv1.DeviceHealth) (url string) {
	t.Helper()
	answer := apiv1.Health{State: "ok", Devices: devices}
	if i := len(devices) - 1; i >= 0 && devices[i].ID == "" {
		answer.State, answer.Devices = devices[i].State, devices[:i]
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/health" {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(answer) // the client reports errors
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestHealth(t *testing.T) {
	since := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	healthy := apiv1.DeviceHealth{ID: "GPU-0", GPU: "0", State: "ok", Action: "none", Since: &since}
	degraded := apiv1.DeviceHealth{ID: "GPU-1", GPU: "1", State: "degraded", Reason: "corrected_errors", Text: "many corrected errors", Action: "none", Since: &since}
	drained := apiv1.DeviceHealth{ID: "GPU-5", GPU: "5", State: "degraded", Reason: "nvlink_errors", Action: "drain", Since: &since}
	failed := apiv1.DeviceHealth{ID: "GPU-3", GPU: "3", State: "failed", Reason: "xid_79", Text: "the GPU has fallen off the bus", Action: "reboot", Since: &since}
	part := apiv1.DeviceHealth{ID: "GPU-3/1", GPU: "3", State: "failed", Reason: "xid_79", Action: "reboot"}
	unknown := apiv1.DeviceHealth{ID: "GPU-2", GPU: "2", State: "unknown", Reason: "released", Action: "none"}
	all := func(d ...apiv1.DeviceHealth) []apiv1.DeviceHealth { return d }

	for _, tt := range []struct {
		name    string
		devices []apiv1.DeviceHealth
		code    int
		line    string
	}{
		{"all well", all(healthy, healthy), 0, "2 devices, none is to be taken out of service"},
		{"an action that leaves it in service", all(healthy, degraded), 0, "2 devices, none is to be taken out of service"},
		{"a degraded device that is taken out", all(healthy, degraded, drained), 1, "GPU 5 nvlink_errors: drain"},
		{"failed", all(healthy, failed, drained), 1, "GPU 3 xid_79: reboot; GPU 5 nvlink_errors: drain"},
		{"a part of a GPU", all(part), 1, "GPU-3/1 xid_79: reboot"},
		{"a GPU with its part", all(part, failed, drained), 1, "GPU 3 xid_79: reboot; GPU 5 nvlink_errors: drain"},
		{"unknown is not healthy", all(healthy, unknown, degraded), 2, "cannot tell: GPU 2 released"},
		{"failed is known", all(unknown, failed), 1, "GPU 3 xid_79: reboot"},
		{"a state that this version does not know", all(healthy, apiv1.DeviceHealth{ID: "GPU-4", GPU: "4", State: "critical"}), 2, "cannot tell: GPU 4 critical"},
		{"a failed node", all(healthy, apiv1.DeviceHealth{State: "failed"}), 2, `cannot tell: the verdict on the node is "failed", but no device has it`},
		{"no verdicts", nil, 2, "cannot tell: no verdict on any device: none is read, or health is off"},
		{"many", all(failed, failed, failed, failed, failed, failed), 1, "GPU 3 xid_79: reboot; GPU 3 xid_79: reboot; GPU 3 xid_79: reboot; 3 more"},
	} {
		got := execute(t, nil, "health", "--url="+verdicts(t, tt.devices...), "--output=line")
		if got.Code != tt.code || got.Out != tt.line+"\n" || got.Err != "" {
			t.Errorf("%s: code %d, output %q, error output %q; want code %d, %q", tt.name, got.Code, got.Out, got.Err, tt.code, tt.line)
		}
	}

	failed.Conditions = []apiv1.HealthCondition{{
		Reason: "xid_79", Text: "the GPU has fallen off the bus", Since: since, Last: since.Add(time.Minute),
		Evidence: []apiv1.HealthEvidence{{Time: since, Source: "kernel log", Text: "NVRM: Xid"}},
	}}
	url := verdicts(t, healthy, failed)
	execute(t, nil, "health", "--url="+url).Want(t, 1, "STATE   GPU  ID     SINCE                 REASON  ACTION  WHAT\n",
		"ok      0    GPU-0  2026-11-22T12:00:00Z  -       none    -\n", "failed  3    GPU-3  2026-11-22T12:00:00Z  xid_79  reboot  the GPU has fallen off the bus\n",
		"\nGPU 3 xid_79: the GPU has fallen off the bus, since 2026-11-22T12:00:00Z, seen last 2026-11-22T12:01:00Z\n  2026-11-22T12:00:00Z  kernel log  NVRM: Xid\n")
	var found apiv1.Health
	if out := execute(t, nil, "health", "--url="+url, "--output=json"); json.Unmarshal([]byte(out.Out), &found) != nil || len(found.Devices) != 2 || found.Devices[1].Reason != "xid_79" {
		t.Errorf("as JSON: %q", out.Out)
	}
}

// TestHealthCannotTell: an answer without a verdict never has a verdict's exit code.
func TestHealthCannotTell(t *testing.T) {
	foreign := httptest.NewServer(http.NotFoundHandler())
	defer foreign.Close()
	for _, args := range [][]string{
		{"--url=http://127.0.0.1:1"}, {"--url=" + foreign.URL}, {"--url=ftp://x"}, {"--url=none"}, {"--output=xml"}, {"--no-such-flag"}, {"extra"},
	} {
		if got := execute(t, nil, append([]string{"health"}, args...)...); got.Code != 2 || got.Out != "" || got.Err == "" {
			t.Errorf("%q: code %d, output %q, error output %q", args, got.Code, got.Out, got.Err)
		}
	}
	got := execute(t, nil, "health", "--url=http://127.0.0.1:1", "--output=line")
	if want := "cannot tell: no exporter answers at http://127.0.0.1:1"; got.Code != 2 || !strings.HasPrefix(got.Out, want) {
		t.Errorf("code %d, %q, want 2 and %q", got.Code, got.Out, want)
	}
}

// TestNodeProblemDetector runs our custom plugin's rule like node-problem-detector: it uses the exit code and the first 80
// bytes (its docs/custom_plugin_monitor.md), and rejects inconsistent settings.
func TestNodeProblemDetector(t *testing.T) {
	type rule struct {
		Type, Condition, Reason, Path, Timeout string
		Args                                   []string
	}
	var config struct {
		Plugin       string `json:"plugin"`
		PluginConfig struct {
			Interval    string `json:"invoke_interval"`
			Timeout     string `json:"timeout"`
			Longest     int    `json:"max_output_length"`
			Concurrency int    `json:"concurrency"`
			Messages    bool   `json:"enable_message_change_based_condition_update"`
			SkipInitial bool   `json:"skip_initial_status"`
		} `json:"pluginConfig"`
		Source     string `json:"source"`
		Metrics    bool   `json:"metricsReporting"`
		Conditions []struct{ Type, Reason, Message string }
		Rules      []rule
	}
	text, err := os.ReadFile("../../deploy/node-problem-detector/warpgauge.json")
	must(t, err)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	must(t, d.Decode(&config))
	if config.Plugin != "custom" || config.PluginConfig.Longest != 80 || !config.PluginConfig.SkipInitial || len(config.Rules) != 1 || len(config.Conditions) != 1 {
		t.Fatalf("%+v", config)
	}
	r := config.Rules[0]
	var within [3]time.Duration
	for i, text := range []string{r.Timeout, config.PluginConfig.Timeout, config.PluginConfig.Interval} {
		within[i] = testkit.Get(time.ParseDuration(text))(t)
	}
	testkit.Equal(t, fmt.Sprint("the limits rise: ", within), true, slices.IsSorted(within[:]))
	if r.Condition != kubenode.ConditionType || r.Type != "permanent" || r.Condition != config.Conditions[0].Type || r.Path != "/usr/bin/warpgauge" {
		t.Errorf("condition %q by %q", r.Condition, r.Path)
	}
	for of, want := range map[string]int{"ok none": 0, "degraded none": 0, "degraded contact_vendor": 0, "degraded drain": 1, "failed reboot": 1, "unknown none": 2} {
		state, action, _ := strings.Cut(of, " ")
		got := execute(t, nil, append(r.Args, "--url="+verdicts(t, apiv1.DeviceHealth{ID: "GPU-1", GPU: "1", State: state, Reason: "reason", Action: action}))...)
		if got.Code != want || len(got.Out) > 80+1 || strings.Count(got.Out, "\n") != 1 {
			t.Errorf("%s: code %d, output %q, want code %d", of, got.Code, got.Out, want)
		}
	}
	execute(t, nil, append(r.Args, "--url=http://127.0.0.1:1")...).Want(t, 2)
}
