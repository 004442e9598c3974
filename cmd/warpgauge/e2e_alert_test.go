package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/internal/testkit/programtest/prometheustest"
	kubelet "warpgauge/pkg/kube/kubetest"
)

// TestE2EAlerts lets two XIDs travel the whole way, one of which is a verdict and one of which passes: exporter, Prometheus with the
// rules of deploy/prometheus, Alertmanager with the routes and templates of
// deploy/alertmanager, and receivers on loopback that stand for Discord and for
// the people on call.
func TestE2EAlerts(t *testing.T) {
	prometheustest.Find(t)
	alertmanager := alertmanagerProgram(t)
	exe := build(t)
	discord, onCall := newReceiver(t), newReceiver(t)
	am := startAlertmanager(t, alertmanager, discord.url, onCall.url)

	xid := newTrouble(t)
	kube := kubelet.Start(t)
	e := serve(t, exe, withKubelet(kube.Socket(), "--collect-interval=100", "--xid-count-window-size=10000",
		"-f", file(t, "counters.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\nDCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs.\n"),
		"--fake-spec="+file(t, "spec.yaml", "faults:\n"+xid.fault("kind: xid, device: 3, xid: 79")+xid.fault("kind: xid, device: 5, xid: 121")))...)
	kube.Set(pod("train-0", e.uuids(t)["3"]))
	server := startAlerting(t, e.url, am)
	server.Await(t, "8 GPUs", 8, `DCGM_FI_DEV_GPU_TEMP`)
	server.Await(t, "the pod", 1, `warpgauge_device_owner{owner_pod="train-0"}`)
	if got := server.Query(t, `ALERTS{alertname=~"GPU.*"}`); len(got) != 0 {
		t.Errorf("alerts about GPUs before anything has happened: %v", got)
	}

	xid.begin(t)
	var firing discordMessage
	eventually.OK(t, "the message in the channel", func() error { return discord.last(&firing, "[PAGE] GPUFailed") })
	for _, want := range []string{
		"GPU 3 of ", " has failed", "Reason: xid_79: GPU has fallen off the bus", "Do: reboot", "Used by: ml/train-0",
		"Runbook: https://wiki.example.com/warpgauge/runbooks#gpufailed",
	} {
		if !strings.Contains(firing.Embeds[0].Description, want) {
			t.Errorf("the message lacks %q:\n%s", want, firing.Embeds[0].Description)
		}
	}
	eventually.OK(t, "the alert at the receiver of those on call", func() error {
		if body := onCall.newest(); !strings.Contains(body, `"alertname":"GPUFailed"`) {
			return fmt.Errorf("last heard %q", body)
		}
		return nil
	})
	eventually.OK(t, "the other XID", func() error { return discord.last(&firing, "[TICKET] GPUXIDOther") })
	for _, want := range []string{"XID 121 on GPU 5 of ", "NVIDIA H100", "on " + hostname(t), "XID 121: C2C Link Error"} {
		if !strings.Contains(firing.Embeds[0].Description, want) {
			t.Errorf("the message lacks %q:\n%s", want, firing.Embeds[0].Description)
		}
	}
	// The window of the count ends, and with it the alert. The verdict stays: there was no reset.
	var over discordMessage
	eventually.OK(t, "the all-clear", func() error { return discord.last(&over, "[OK] GPUXIDOther") })
	if err := discord.last(&over, "[OK] GPUFailed"); err == nil {
		t.Error("the GPU is well again although it was not reset")
	}
}

// discordMessage is what Alertmanager posts to Discord.
type discordMessage struct {
	Content string
	Embeds  []struct {
		Title, Description string
		Color              int
	}
}

// receiver collects what is posted to it.
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

func (r *receiver) newest() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bodies) == 0 {
		return ""
	}
	return r.bodies[len(r.bodies)-1]
}

// last finds the newest message whose title begins so.
func (r *receiver) last(m *discordMessage, title string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var titles []string
	for _, body := range r.bodies {
		var got discordMessage
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			return fmt.Errorf("decode %q: %w", body, err)
		}
		for _, e := range got.Embeds {
			titles = append(titles, e.Title)
			if strings.HasPrefix(e.Title, title) {
				*m = got
				return nil
			}
		}
	}
	return fmt.Errorf("no message %q; there are %q", title, titles)
}

// alertmanagerProgram is called prometheus-alertmanager by Debian.
func alertmanagerProgram(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("alertmanager"); err == nil {
		return path
	}
	return programtest.Find(t, "prometheus-alertmanager")
}

// startAlertmanager runs Alertmanager with the shipped configuration: only where
// messages go, and how long it waits for more of them, is the test's. It returns
// its address.
func startAlertmanager(t *testing.T, exe, discord, onCall string) (address string) {
	t.Helper()
	root := filepath.Join("..", "..", "deploy", "alertmanager")
	shipped, err := os.ReadFile(filepath.Join(root, "alertmanager.yml"))
	must(t, err)
	templates, err := filepath.Abs(filepath.Join(root, "warpgauge.tmpl"))
	must(t, err)
	config := string(shipped)
	for _, change := range [][2]string{
		{"/etc/prometheus/alertmanager_templates/warpgauge.tmpl", templates},
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

// startAlerting runs Prometheus with the shipped rules over one exporter.
func startAlerting(t *testing.T, exporter, alertmanager string) *prometheustest.Server {
	t.Helper()
	rules, err := filepath.Abs(filepath.Join("..", "..", "deploy", "prometheus", "rules"))
	must(t, err)
	config := fmt.Sprintf(`global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}
scrape_configs:
- {job_name: warpgauge, honor_labels: true, static_configs: [{targets: [%q]}]}
`, rules+"/*.yml", alertmanager, strings.TrimPrefix(exporter, "http://"))
	return prometheustest.Start(t, config)
}

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(errors.Join(errors.New("name of this host"), err))
	}
	return name
}
