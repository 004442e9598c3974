package main_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/internal/testkit/programtest/prometheustest"
	kubelet "warpgauge/pkg/kube/kubetest"
)

// TestE2EAlerts follows two XIDs end to end, one that becomes a verdict and one that passes: exporter, Prometheus with the rules
// of deploy/prometheus, Alertmanager with the routes and templates of deploy/alertmanager, and local receivers for Discord and
// the people on call.
func TestE2EAlerts(t *testing.T) {
	t.Parallel()
	prometheustest.Find(t)
	discord, onCall := newReceiver(t), newReceiver(t)
	am := startAlertmanager(t, discord.url, onCall.url)
	xid := newTrouble(t)
	kube := kubelet.Start(t)
	e := serve(t, build(t), withKubelet(kube.Socket(), "--collect-interval=100", "--xid-count-window-size=10000",
		"-f", file(t, "counters.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\nDCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs.\n"),
		faults(t, xid.fault("kind: xid, device: 3, xid: 79"), xid.fault("kind: xid, device: 5, xid: 159")))...)
	kube.Set(pod("train-0", e.uuids(t)["3"]))
	rules := testkit.Get(filepath.Abs("../../deploy/prometheus/rules/*.yml"))(t)
	server := prometheustest.Start(t, fmt.Sprintf(`global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}
scrape_configs:
- {job_name: warpgauge, honor_labels: true, static_configs: [{targets: [%q]}]}
`, rules, am, strings.TrimPrefix(e.url, "http://")))
	server.Await(t, "8 GPUs", 8, `DCGM_FI_DEV_GPU_TEMP`)
	server.Await(t, "the pod", 1, `warpgauge_device_owner{owner_pod="train-0"}`)
	testkit.Equal(t, "alerts about GPUs before anything has happened", "", server.Query(t, `ALERTS{alertname=~"GPU.*"}`).String())

	xid.begin(t)
	discord.await(t, `"title":"[PAGE] GPUFailed`, "GPU 3 of ", " has failed", "Reason: xid_79: GPU has fallen off the bus", "Do: reboot", "Used by: ml/train-0",
		"docs/runbooks.md#gpufailed")
	onCall.await(t, `"alertname":"GPUFailed"`)
	discord.await(t, `"title":"[TICKET] GPUXIDOther`, "XID 159 on GPU 5 of ", "NVIDIA H100", "on "+strings.TrimPrefix(e.url, "http://"), "XID 159: Robust Channel CHI Non-Data Error")
	// When the count's window ends, the alert ends. The verdict stays, because there was no reset.
	discord.await(t, `"title":"[OK] GPUXIDOther`)
	testkit.Equal(t, "the GPU is well again although it was not reset", false, discord.has(`"title":"[OK] GPUFailed`))
}

// receiver collects the messages posted to it.
type receiver struct {
	url    string
	mu     sync.Mutex
	bodies []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		r.bodies = append(r.bodies, string(b))
		r.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

// has reports whether a message has all of the texts.
func (r *receiver) has(texts ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.bodies, func(body string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(body, text) })
	})
}

func (r *receiver) await(t *testing.T, texts ...string) {
	t.Helper()
	eventually.OK(t, texts[0], func() error {
		if !r.has(texts...) {
			return fmt.Errorf("no message has %q: %q", texts, r.bodies)
		}
		return nil
	})
}

// startAlertmanager runs Alertmanager with the shipped configuration, except for its receivers and
// waiting times. It returns its address.
func startAlertmanager(t *testing.T, discord, onCall string) (address string) {
	t.Helper()
	exe, err := exec.LookPath("alertmanager")
	if err != nil {
		exe = programtest.Find(t, "prometheus-alertmanager") // Debian's name
	}
	root := testkit.Get(filepath.Abs("../../deploy/alertmanager"))(t)
	shipped := testkit.Get(os.ReadFile(filepath.Join(root, "alertmanager.yml")))(t)
	config := string(shipped)
	for _, change := range [][2]string{
		{"/etc/prometheus/alertmanager_templates/warpgauge.tmpl", filepath.Join(root, "warpgauge.tmpl")},
		{"https://discord.com/api/webhooks/ID/TOKEN", discord},
		{"http://127.0.0.1:9096/alerts", onCall},
		{"group_wait: 30s", "group_wait: 0s"},
		{"group_wait: 10s", "group_wait: 0s"},
		{"group_interval: 5m", "group_interval: 1s"},
	} {
		if !strings.Contains(config, change[0]) {
			t.Fatalf("alertmanager.yml lacks %q, which the test replaces", change[0])
		}
		config = strings.ReplaceAll(config, change[0], change[1])
	}
	p := launch(t, exe, "--config.file="+file(t, "alertmanager.yml", config), "--storage.path="+t.TempDir(),
		"--web.listen-address=127.0.0.1:0", "--cluster.listen-address=")
	return strings.TrimPrefix(p.AwaitReady(t, "/-/ready"), "http://")
}
