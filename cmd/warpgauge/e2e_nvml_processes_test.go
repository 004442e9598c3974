//go:build linux && cgo

package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/eventually"
)

// TestE2ENVMLProcesses: who is on the GPUs is looked at in a process of its own,
// which goes with that of the GPUs, and nothing of it is on the page.
func TestE2ENVMLProcesses(t *testing.T) {
	t.Parallel()
	exe := build(t)
	for _, isolation := range []string{"process", "none"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			testNVMLProcesses(t, &nvmlNode{exe: exe, isolation: isolation})
		})
	}
}

const processList = "nvmlDeviceGetComputeRunningProcesses_v3"

func testNVMLProcesses(t *testing.T, n *nvmlNode) {
	n.start(t, nvmltest.Config{}, "--kubernetes", "--kubernetes-virtual-gpus", "--enable-release-endpoint", "--sample-deadline=500ms")
	children := map[string]int{"process": 2, "none": 0}[n.isolation]
	inUse := func(p page) error {
		err := errors.Join(gpus(allGPUs...)(p),
			p.want(1, "warpgauge_collector_up", "collector", "nvml-processes"),
			p.want(8, "warpgauge_devices", "collector", "nvml", "state", "up"),
			p.want(0, "warpgauge_devices", "collector", "nvml-processes", "state", "up"))
		if c := n.children(t); len(c) != children {
			err = errors.Join(err, fmt.Errorf("%d children, want %d", len(c), children))
		}
		if n.Calls(processList) == 0 {
			err = errors.Join(err, errors.New("processes have not been asked for"))
		}
		return err
	}
	n.page(t, "GPUs and processes", inUse)

	client := newClient(t)
	n.letGo(t, client, "?collector=nvml")
	n.page(t, "the state of the collectors", func(p page) error {
		return errors.Join(
			p.want(1, "warpgauge_collector_problem", "collector", "nvml", "cause", "released"),
			p.want(1, "warpgauge_collector_problem", "collector", "nvml-processes", "cause", "released"))
	})
	if a := get(t, client, n.url+"/readyz"); a.code != http.StatusOK {
		t.Errorf("readyz while released: %d %s", a.code, a.body)
	}
	n.ResetCalls()
	n.resume(t, client)
	n.page(t, "GPUs and processes again", inUse)

	n.Signal(t, syscall.SIGUSR1)
	eventually.OK(t, "nothing to be held", func() error {
		if held := n.devices(t); len(held) > 0 {
			return fmt.Errorf("open: %v", held)
		}
		return nil
	})
	n.ResetCalls()
	n.Signal(t, syscall.SIGUSR2)
	n.page(t, "GPUs and processes again", inUse)

	// A GPU that hangs: its processes alone are not known, and it can be released.
	let := n.Hang(3, nvmltest.Every)
	defer let()
	n.page(t, "the state of the GPU that hangs", func(p page) error {
		return p.want(1, "warpgauge_device_problem", "collector", "nvml", "gpu", "3", "cause", "hung_call")
	})
	if n.isolation == "process" {
		n.letGo(t, client, "")
	}
}

// TestE2EDCGMProcesses: while DCGM supplies the GPUs, NVML rests, and its
// processes do not. Both know the GPUs by the same ids.
func TestE2EDCGMProcesses(t *testing.T) {
	t.Parallel()
	exe := build(t)
	for _, isolation := range []string{"process", "none"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			n := &twoNode{exe: exe, isolation: isolation}
			n.prepare(t)
			n.install(t, dcgmtest.Config{})
			n.start(t, "--kubernetes", "--kubernetes-virtual-gpus")
			eventually.OK(t, "DCGM to speak and NVML to rest", func() error {
				p := n.scrape(t, acceptText)
				return errors.Join(
					p.want(1, "warpgauge_gpu_speaker", "collector", "dcgm"),
					p.want(1, "warpgauge_collector_problem", "collector", "nvml", "cause", "standby"),
					p.want(1, "warpgauge_collector_up", "collector", "nvml-processes"),
					p.want(41, "DCGM_FI_DEV_GPU_TEMP", "gpu", "3", "UUID", nvmltest.UUID(3)))
			})
			n.nvml.ResetCalls()
			eventually.OK(t, "processes to be asked for, and nothing else", func() error {
				if n.nvml.Calls(processList) < 16 {
					return errors.New("not yet")
				}
				return nil
			})
			if calls := n.nvml.Calls("nvmlDeviceGetTemperature"); calls > 0 {
				t.Errorf("%d calls of a collector that rests", calls)
			}
		})
	}
}
