package main_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"warpgauge/extensions/health/consumer/amdplugin/gpumetricssvc"
	"warpgauge/extensions/health/healthrpc/healthv1"
	"warpgauge/internal/testkit/eventually"
)

// socketClient connects to a socket of the real binary.
func socketClient(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// socketDirectory has a short name: a socket's path has 107 bytes at most.
func socketDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wg") //nolint:usetesting // the test's own can be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestE2EHealthStream watches a simulated node lose a GPU, and the exporter stop.
func TestE2EHealthStream(t *testing.T) {
	t.Parallel()
	dir := socketDirectory(t)
	path, lost, spec := filepath.Join(dir, "health", "s"), filepath.Join(dir, "lost"), filepath.Join(dir, "spec.yaml")
	write(t, spec, "faults:\n  - {device: 2, kind: lost, while: "+lost+"}\n")
	e := serve(t, build(t), "--fake-spec="+spec, "--health-socket="+path, "--health-socket-group="+fmt.Sprint(os.Getegid()), "--collect-interval=100")
	watch, err := healthv1.NewHealthServiceClient(socketClient(t, path)).Watch(t.Context(), &healthv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// await reads until the GPU with index 2 has a state.
	await := func(state healthv1.State) *healthv1.DeviceHealth {
		t.Helper()
		for {
			m, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range m.GetSnapshot().GetDevices() {
				if d.GetDevice().GetIndex() == "2" && d.GetState() == state {
					return d
				}
			}
		}
	}
	if d := await(healthv1.State_STATE_OK); d.GetDevice().GetKind() != healthv1.Kind_KIND_GPU || !strings.HasPrefix(d.GetDevice().GetUuid(), "GPU-") || d.GetDevice().GetPciBusId() == "" {
		t.Errorf("device %v", d)
	}
	write(t, lost, "")
	d := await(healthv1.State_STATE_FAILED)
	if d.GetReason() != "lost" || d.GetRecommendedAction() != healthv1.RecommendedAction_RECOMMENDED_ACTION_REBOOT || len(d.GetConditions()) != 1 || d.GetSince() == nil {
		t.Errorf("verdict %v", d)
	}
	if code, out := runToEnd(t, build(t), "health", "--url="+e.url, "--output=line"); code != 1 || out != "GPU 2 lost: reboot\n" {
		t.Errorf("warpgauge health: code %d, %q", code, out)
	}
	e.Signal(t, syscall.SIGTERM)
	for err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	if code := e.ExitCode(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if code, out := runToEnd(t, build(t), "--address=127.0.0.1:0", "--enable-fake", "--health-socket="+spec); code != 1 || !strings.Contains(out, "--health-socket: socket \""+spec+"\": it is there and not a socket") {
		t.Errorf("with a file in the place of the socket: code %d, %q", code, out)
	}
}

// TestE2EAMDHealth asks the real binary as AMD's device plugin does, about GPUs that lie
// over /sys.
func TestE2EAMDHealth(t *testing.T) {
	t.Parallel()
	exe := build(t)
	script, err := filepath.Abs("../../collectors/rocm/rocmtest/fake-amd-sysfs.sh")
	if err != nil {
		t.Fatal(err)
	}
	namespaces(t, script)
	path := filepath.Join(socketDirectory(t), "amd.socket")
	_, sys := serveAMD(t, exe, script, []string{"-n", "2", "-m", "mi300x", "-f", "1.7"}, "--rocm-source=sysfs", "--health-amd-socket="+path)
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
}
