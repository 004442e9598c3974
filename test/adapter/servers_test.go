package adapter

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// program finds a program. If it is missing, the test is skipped, or fails if the program is required.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case slices.Contains(strings.Split(os.Getenv("WARPGAUGE_REQUIRE"), ","), name):
		t.Fatalf("%s is required by WARPGAUGE_REQUIRE but missing", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// start runs a program until the test ends and returns the address on loopback that its log names.
func start(t *testing.T, address *regexp.Regexp, name string, args ...string) (found string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	defer log.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	eventually(t, name+" to listen", func() error {
		text, err := os.ReadFile(log.Name())
		if m := address.FindSubmatch(text); m != nil {
			found = string(m[1])
			return nil
		}
		select {
		case <-ended:
			t.Fatalf("%s ended:\n%s", name, text)
		default:
		}
		return errors.Join(fmt.Errorf("it says:\n%s", text), err)
	})
	return found
}

// eventually polls until f returns no error.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s: %v", what, err)
		}
	}
}

// build builds the exporter of this tree, or returns the one that WARPGAUGE_BINARY names.
func build(t *testing.T) string {
	t.Helper()
	if exe := os.Getenv("WARPGAUGE_BINARY"); exe != "" {
		return exe
	}
	exe := filepath.Join(t.TempDir(), "warpgauge")
	cmd := exec.Command("go", "build", "-o", exe, "./cmd/warpgauge")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build warpgauge: %v\n%s", err, out)
	}
	return exe
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

var (
	exporterAddress   = regexp.MustCompile(`serving http://([^/]+)/metrics`)
	prometheusAddress = regexp.MustCompile(`msg="Listening on" address=(\S+)`)
	uuidOfGPU         = regexp.MustCompile(`(?m)^DCGM_FI_DEV_GPU_UTIL\{gpu="(\d)",UUID="([^"]+)"`)
)

// simulated holds the simulated readings of the node's GPUs by index.
const simulated = `profile: dgx-h100
faults:
- {device: 0,   kind: value, field: DCGM_FI_DEV_GPU_UTIL, value: 77}
- {device: 1,   kind: value, field: DCGM_FI_DEV_GPU_UTIL, value: 95}
- {device: 2,   kind: value, field: DCGM_FI_DEV_GPU_UTIL, value: 5}
- {device: 3,   kind: value, field: DCGM_FI_DEV_GPU_UTIL, value: 95}
- {device: 4-7, kind: value, field: DCGM_FI_DEV_GPU_UTIL, value: 10}
- {device: 0,   kind: value, field: DCGM_FI_PROF_GR_ENGINE_ACTIVE, value: 0.6}
- {device: 1,   kind: value, field: DCGM_FI_PROF_GR_ENGINE_ACTIVE, value: 0.9}
- {device: 2,   kind: value, field: DCGM_FI_PROF_GR_ENGINE_ACTIVE, value: 0.2}
- {device: 0,   kind: value, field: DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, value: 0.31}
- {device: 1,   kind: value, field: DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, value: 0.5}
- {device: 2,   kind: value, field: DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, value: 0.1}
- {device: 0,   kind: value, field: DCGM_FI_DEV_FB_USED, value: 20480}
- {device: 0,   kind: value, field: DCGM_FI_DEV_FB_FREE, value: 61440}
- {device: 1-2, kind: value, field: DCGM_FI_DEV_FB_USED, value: 40960}
- {device: 1-2, kind: value, field: DCGM_FI_DEV_FB_FREE, value: 40960}
`

// startExporter runs the real exporter. GPU 0 belongs to ml/inference-a, 1 and 2 to ml/inference-b, 3 to web/chat-0,
// the others to no pod. names is the value of --field-names.
func startExporter(t *testing.T, exe, names string) (address string) {
	t.Helper()
	fake := []string{
		"--enable-only=fake",
		"--fake-spec=" + file(t, "spec.yml", simulated), "-f", "../../etc/recommended-counters.csv", "--collect-interval=200",
	}
	page, err := exec.Command(exe, append(slices.Clone(fake), "once")...).Output()
	if err != nil {
		t.Fatalf("warpgauge once: %v", err)
	}
	var gpus [8]string
	for _, m := range uuidOfGPU.FindAllSubmatch(page, -1) {
		gpus[m[1][0]-'0'] = string(m[2])
	}
	socket := startKubelet(t, pods(gpus))
	return start(t, exporterAddress, exe, append(fake, "--field-names="+names, "--address=127.0.0.1:0", "--kubernetes",
		"--pod-resources-kubelet-socket="+socket, "--pod-resources-interval=1s")...)
}

// startPrometheus runs a real Prometheus. Its target has the labels that a ServiceMonitor adds.
func startPrometheus(t *testing.T, exporter string, honor, native bool) (url string) {
	t.Helper()
	exe, dir := program(t, "prometheus"), t.TempDir()
	rules, err := os.ReadFile("../../deploy/prometheus/rules/recording.yml")
	must(t, err)
	often := regexp.MustCompile(`(?m)^    interval: .*$`).ReplaceAll(rules, []byte("    interval: 2s"))
	pod, drop := "exported_pod", ""
	if honor {
		// As in docs/autoscaling.md, so that GPUs without an owner are not attributed to the exporter.
		pod, drop = "pod", "  relabel_configs: [{action: labeldrop, regex: namespace|pod|container}]\n"
	}
	// The last rule stands for --kubernetes-enable-pod-labels, which needs an API server.
	config := fmt.Sprintf(`global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 2s}
rule_files: [%q]
scrape_configs:
- job_name: warpgauge
  honor_labels: %v
  static_configs: [{targets: [%q], labels: {namespace: monitoring, pod: warpgauge-x7k2p, container: exporter}}]
%s  metric_relabel_configs: [{source_labels: [%s], regex: '([a-z]+)-[a-z0-9]', target_label: app_kubernetes_io_name}]
`, file(t, "recording.yml", string(often)), honor, exporter, drop, pod)
	args := []string{
		"--config.file=" + file(t, "prometheus.yml", config), "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0", "--web.console.libraries=" + dir, "--web.console.templates=" + dir,
	}
	if native {
		args = append(args, "--enable-feature=native-histograms")
	}
	return "http://" + start(t, prometheusAddress, exe, args...)
}
