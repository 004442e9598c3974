//go:build linux && cgo

package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/eventually"
)

// TestE2ENVMLRelease lets the driver go: what stands for a reset, a change of MIG
// mode or an upgrade may happen when the exporter has answered, because neither it
// nor its child has a device open any more.
func TestE2ENVMLRelease(t *testing.T) {
	t.Parallel()
	exe := build(t)
	for _, isolation := range []string{"process", "none"} {
		for name, run := range map[string]func(*testing.T, *nvmlNode){
			"Reset":   testNVMLReset,
			"Nothing": testNVMLNothing,
		} {
			t.Run(isolation+"/"+name, func(t *testing.T) {
				t.Parallel()
				run(t, &nvmlNode{exe: exe, isolation: isolation})
			})
		}
	}
	t.Run("process/Hung", func(t *testing.T) {
		t.Parallel()
		testNVMLReleaseHung(t, &nvmlNode{exe: exe, isolation: "process"})
	})
}

// devices are those of the node that the exporter or a child of it has open.
func (n *nvmlNode) devices(t *testing.T) []string {
	t.Helper()
	return n.holds(t, filepath.Join(n.Root(), "dev"))
}

// letGo releases and checks at once that nothing is held.
func (n *nvmlNode) letGo(t *testing.T, client *http.Client, query string) {
	t.Helper()
	begin := time.Now()
	a := request(t, client, http.MethodPost, n.url+"/-/release"+query)
	took, held := time.Since(begin), n.devices(t)
	if a.code != http.StatusOK || len(held) > 0 {
		t.Fatalf("release: %d %s; open afterwards: %v", a.code, a.body, held)
	}
	t.Logf("released after %v", took)
}

func (n *nvmlNode) resume(t *testing.T, client *http.Client) {
	t.Helper()
	if a := request(t, client, http.MethodPost, n.url+"/-/resume"); a.code != http.StatusOK {
		t.Fatalf("resume: %d %s", a.code, a.body)
	}
}

func testNVMLReset(t *testing.T, n *nvmlNode) {
	n.start(t, nvmltest.Config{}, "--enable-release-endpoint")
	client := newClient(t)
	for range 3 {
		n.page(t, "8 GPUs", gpus(allGPUs...))
		if held := n.devices(t); len(held) < 2 {
			t.Fatalf("open while sampling: %v; the test sees nothing", held)
		}
		n.letGo(t, client, "?collector=nvml")
		if err := gpus()(n.scrape(t, acceptText)); err != nil {
			t.Error(err)
		}
		// The driver is gone and comes back, and nothing has called it.
		n.ResetCalls()
		n.Unload()
		n.page(t, "the state of the GPUs", func(p page) error {
			return errors.Join(
				p.want(1, "warpgauge_device_state", "collector", "nvml", "gpu", "7", "state", "released"),
				p.want(8, "warpgauge_devices", "collector", "nvml", "state", "released"))
		})
		n.LoadDriver("")
		if calls := n.AllCalls(); len(calls) > 0 {
			t.Errorf("calls while released: %v", calls)
		}
		n.resume(t, client)
	}
	n.page(t, "8 GPUs", gpus(allGPUs...))
	if r := n.scrape(t, acceptText).restarts(""); r != 0 {
		t.Errorf("%v restarts, want none", r)
	}
}

// testNVMLReleaseHung releases while a call hangs: its process is ended, and the
// kernel closes what it has open.
func testNVMLReleaseHung(t *testing.T, n *nvmlNode) {
	n.start(t, nvmltest.Config{}, "--enable-release-endpoint", "--sample-deadline=500ms")
	n.page(t, "8 GPUs", gpus(allGPUs...))
	let := n.Hang(3, nvmltest.Every)
	defer let()
	n.page(t, "the state of the GPU that hangs", func(p page) error {
		return p.want(1, "warpgauge_device_problem", "collector", "nvml", "gpu", "3", "cause", "hung_call")
	})
	n.letGo(t, newClient(t), "")
}

// testNVMLNothing: a list that asks for nothing that a GPU has keeps nothing open.
func testNVMLNothing(t *testing.T, n *nvmlNode) {
	csv := file(t, "counters.csv", "DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, Of a CPU.\n")
	n.start(t, nvmltest.Config{}, "-f", csv)
	n.page(t, "the reason", func(p page) error {
		return p.want(1, "warpgauge_collector_problem", "collector", "nvml", "cause", "nothing_to_read")
	})
	eventually.OK(t, "no device to be open", func() error {
		if held := n.devices(t); len(held) > 0 {
			return fmt.Errorf("open: %v", held)
		}
		return nil
	})
	// A list that asks for something is used, and so is the next that does not.
	write(t, csv, "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n")
	n.page(t, "8 GPUs", gpus(allGPUs...))
	write(t, csv, "DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, Of a CPU.\n")
	eventually.OK(t, "no device to be open", func() error {
		if held := n.devices(t); len(held) > 0 {
			return fmt.Errorf("open: %v", held)
		}
		return nil
	})
}
