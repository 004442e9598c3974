//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"warpgauge/pkg/eventually"
)

// program finds a program or skips, and fails where it is required.
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

// realServer is a Prometheus that scrapes a fleet.
type realServer struct {
	url string
	pid int
}

// startPrometheus lets Prometheus find the fleet by HTTP or by a file.
func startPrometheus(t *testing.T, discovery, interval string, native bool) *realServer {
	t.Helper()
	exe, dir := program(t, "prometheus"), t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: %s, scrape_timeout: %s}\nscrape_configs:\n- {job_name: fleet, %s}\n", interval, interval, discovery)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0",
		"--web.console.libraries=" + dir, "--web.console.templates=" + dir, "--log.level=warn",
	}
	if native {
		args = append(args, "--enable-feature=native-histograms")
	}
	cmd := exec.Command(exe, args...)
	var log lines
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	p := &realServer{pid: cmd.Process.Pid}
	eventually.OK(t, "Prometheus that listens", func() error {
		select {
		case err := <-ended:
			t.Fatalf("Prometheus ended: %v\n%s", err, &log)
		default:
		}
		port, err := listensOn(p.pid)
		p.url = fmt.Sprintf("http://127.0.0.1:%d", port)
		return err
	})
	return p
}

// listensOn finds the port that a process chose: one that the test chose could be
// somebody else's by then.
func listensOn(pid int) (port int, err error) {
	var open []string
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return 0, err
	}
	for _, fd := range fds {
		name, _ := os.Readlink(fd) // closed meanwhile
		open = append(open, name)
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(table)) {
		// sl local_address rem_address st … uid timeout inode; 0A is LISTEN
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != "0A" || !slices.Contains(open, "socket:["+f[9]+"]") {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		n, err := strconv.ParseInt(hex, 16, 32)
		return int(n), err
	}
	return 0, errors.New("it does not listen yet")
}

// value is the only result of an instant query.
func (p *realServer) value(query string) (float64, error) {
	body, code, err := try(p.url + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return 0, err
	}
	if code != 200 {
		return 0, fmt.Errorf("%s: status %d: %s", query, code, body)
	}
	var reply struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil {
		return 0, fmt.Errorf("%s: %w in %s", query, err, body)
	}
	if len(reply.Data.Result) != 1 {
		return 0, fmt.Errorf("%s: %d results", query, len(reply.Data.Result))
	}
	return strconv.ParseFloat(fmt.Sprint(reply.Data.Result[0].Value[1]), 64)
}

func (p *realServer) await(t *testing.T, query string, want float64) {
	t.Helper()
	eventually.OK(t, "expected result", func() error {
		got, err := p.value(query)
		if err == nil && got != want {
			err = fmt.Errorf("%s is %v, want %v", query, got, want)
		}
		return err
	})
}

// TestPrometheus lets a real Prometheus discover and scrape a fleet, in both ways
// and both formats.
func TestPrometheus(t *testing.T) {
	program(t, "prometheus")
	file := filepath.Join(t.TempDir(), "targets.json")
	address := simulate(t, "--nodes=20", "--profiles=dgx-h100,rtx4090", "--pods-per-gpu=1", "--targets-file="+file,
		"--counters=recommended-counters.csv", "--interval=1s")
	f := func(discovery string, native bool) {
		t.Run(fmt.Sprintf("native=%v", native), func(t *testing.T) {
			t.Parallel()
			p := startPrometheus(t, discovery, "3s", native)
			p.await(t, `count(up == 1)`, 20)
			p.await(t, `count(count by (instance, profile) (up{simulated="true"}))`, 20)
			p.await(t, `count(DCGM_FI_DEV_GPU_TEMP{modelName=~".*[(]simulated[)]"})`, 10*8+10*2)
			p.await(t, `count(DCGM_FI_DEV_GPU_TEMP{pod=~"train-.*"})`, 10*8+10*2)
			p.await(t, `count(warpgauge_device_owner)`, 10*8+10*2)
			histograms := `count(DCGM_FI_DEV_GPU_UTIL_RATIO_count)`
			if native {
				histograms = `count(histogram_count(DCGM_FI_DEV_GPU_UTIL_RATIO))`
			}
			p.await(t, histograms, 10*8+10*2)
		})
	}
	f(fmt.Sprintf(`http_sd_configs: [{url: "http://%s/targets", refresh_interval: 5s}]`, address), false)
	f(fmt.Sprintf(`file_sd_configs: [{files: [%q]}]`, file), true)
}
