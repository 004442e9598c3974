package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"warpgauge/extensions/health/consumer/amdplugin/gpumetricssvc"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit/eventually"
)

// socketClient connects to a socket of the real binary.
func socketClient(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// socketDirectory has a short name: a socket's path has 107 bytes at most.
func socketDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wg") //nolint:usetesting // the test's own can be too long
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestE2EHealthStream follows a simulated node's verdicts in the API's stream while it loses a GPU, until the exporter stops.
func TestE2EHealthStream(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lost, spec := filepath.Join(dir, "lost"), filepath.Join(dir, "spec.yaml")
	write(t, spec, "faults:\n  - {device: 2, kind: lost, while: "+lost+"}\n")
	e := serve(t, build(t), "--fake-spec="+spec, "--collect-interval=100")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+"/api/v1/stream?field=DCGM_FI_DEV_GPU_TEMP", http.NoBody)
	must(t, err)
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	// next returns the data of the next event of a name; "" at the end of the stream.
	next := func(name string) string {
		for lines.Scan() {
			if lines.Text() == "event: "+name && lines.Scan() {
				return strings.TrimPrefix(lines.Text(), "data: ")
			}
		}
		return ""
	}
	if next("columns") == "" {
		t.Fatal("the stream sent no columns")
	}
	write(t, lost, "")
	var d apiv1.DeviceHealth
	for d.GPU != "2" || d.State != "failed" {
		d = apiv1.DeviceHealth{}
		must(t, json.Unmarshal([]byte(next("health")), &d))
	}
	if d.Reason != "lost" || d.Action != "reboot" || len(d.Conditions) != 1 || len(d.Conditions[0].Evidence) == 0 || d.Since == nil || !strings.HasPrefix(d.ID, "GPU-") {
		t.Errorf("verdict %+v", d)
	}
	if code, out := runToEnd(t, build(t), "health", "--url="+e.url, "--output=line"); code != 1 || out != "GPU 2 lost: reboot\n" {
		t.Errorf("warpgauge health: code %d, %q", code, out)
	}
	e.Signal(t, syscall.SIGTERM)
	if why := next("problem"); !strings.Contains(why, "shutting down") {
		t.Errorf("the stream ended with %q", why)
	}
	e.ends(t)
}

// TestE2EAMDHealth asks the real binary as AMD's device plugin does, about GPUs that lie
// over /sys.
func TestE2EAMDHealth(t *testing.T) {
	t.Parallel()
	exe := build(t)
	script, err := filepath.Abs("../../collectors/rocm/rocmtest/fake-amd-sysfs.sh")
	must(t, err)
	namespaces(t, script)
	path := filepath.Join(socketDirectory(t), "amd.socket")
	if code, out := runToEnd(t, exe, "--address=127.0.0.1:0", "--enable-fake", "--health-amd-socket="+script); code != 1 || !strings.Contains(out, "--health-amd-socket: socket \""+script+"\": it is there and not a socket") {
		t.Errorf("with a file in the place of the socket: code %d, %q", code, out)
	}
	e, sys := serveAMD(t, exe, script, []string{"-n", "2", "-m", "mi300x", "-f", "1.7"}, "--rocm-source=sysfs", "--health-amd-socket="+path)
	want, err := filepath.Glob(filepath.Join(sys, "bus/pci/drivers/amdgpu/*:*:*.*"))
	if err != nil || len(want) != 2 {
		t.Fatalf("GPUs of the tree: %q, %v", want, err)
	}
	conn := socketClient(t, path)
	eventually.OK(t, "both GPUs to be healthy", func() error {
		var answer gpumetricssvc.GPUStateResponse
		if err := conn.Invoke(t.Context(), "/metricssvc.MetricsService/List", &emptypb.Empty{}, &answer); err != nil {
			return err
		}
		if n := len(answer.GetGPUState()); n != 2 {
			return fmt.Errorf("%d GPUs: %v", n, &answer)
		}
		for i, g := range answer.GetGPUState() {
			if g.GetHealth() != "healthy" || g.GetDevice() != filepath.Base(want[i]) || g.GetID() != fmt.Sprint(i) {
				return fmt.Errorf("GPU %d: %v, want %q", i, g, filepath.Base(want[i]))
			}
		}
		return nil
	})
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	e.Signal(t, syscall.SIGTERM)
	e.ends(t)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
