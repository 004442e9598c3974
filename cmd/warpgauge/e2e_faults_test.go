package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"warpgauge/internal/testkit/eventually"
)

const faultsCSV = `DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DEV_GPU_UTIL, gauge, Utilisation.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since start.
`

// testFaults follows the exporter through a bad day: the library cannot be opened
// at first; one GPU tells nonsense; one raises an XID, falls off the bus and comes
// back.
func testFaults(t *testing.T, exe string) {
	absent, xid, lost := newTrouble(t), newTrouble(t), newTrouble(t)
	absent.begin(t)
	spec := "faults:\n" + absent.fault("kind: open-fails, message: no such library") +
		"- {kind: value, device: 1, field: DCGM_FI_DEV_GPU_UTIL, value: 808000000}\n" +
		xid.fault("kind: xid, device: 2, xid: 79") + lost.fault("kind: lost, device: 2")
	e := serve(t, exe, "--collect-interval=100", "--stale-after=2s",
		"-f", file(t, "counters.csv", faultsCSV), "--fake-spec="+file(t, "spec.yaml", spec))
	client := newClient(t)

	eventually.OK(t, "the library that cannot be opened in the metrics", func() error {
		p := e.scrape(t, acceptText)
		return errors.Join(
			p.want(0, "warpgauge_collector_up", "collector", "fake"),
			p.want(1, "warpgauge_collector_problem", "collector", "fake", "cause", "not_loaded"))
	})
	if a := get(t, client, e.url+"/readyz"); a.code != http.StatusServiceUnavailable {
		t.Errorf("GET /readyz while nothing can be opened: status %d, want 503", a.code)
	}
	absent.end(t)
	eventually.OK(t, "8 GPUs once it can", func() error { return eightGPUs(e.scrape(t, acceptText)) })
	if a := get(t, client, e.url+"/readyz"); a.code != http.StatusOK {
		t.Errorf("GET /readyz with 8 GPUs: status %d, %q", a.code, a.body)
	}

	eventually.OK(t, "the nonsense to be counted", func() error {
		n, err := e.scrape(t, acceptText).one("warpgauge_implausible_values_total", "field", "DCGM_FI_DEV_GPU_UTIL")
		if err == nil && n < 1 {
			err = errors.New("none counted")
		}
		return err
	})
	util := e.scrape(t, acceptText).values("DCGM_FI_DEV_GPU_UTIL")
	if v, there := util["1"]; there || len(util) != 7 {
		t.Errorf("GPU 1 tells a utilisation of 808 million percent; the page has %v for it and %d others, want none and 7", v, len(util))
	}

	xid.begin(t)
	lost.begin(t)
	eventually.OK(t, "the lost GPU in the metrics, off the page", func() error {
		p := e.scrape(t, acceptText)
		var gone error
		if n := len(p.family("DCGM_FI_DEV_GPU_TEMP")); n != 7 {
			gone = fmt.Errorf("%d GPUs on the page, want 7", n)
		}
		return errors.Join(gone, p.want(1, "warpgauge_device_state", "gpu", "2", "state", "lost"))
	})
	lost.end(t)
	eventually.OK(t, "the GPU to come back", func() error {
		p := e.scrape(t, acceptText)
		return errors.Join(eightGPUs(p),
			p.want(1, "warpgauge_device_state", "gpu", "2", "state", "up"),
			p.want(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", "79"))
	})
}
