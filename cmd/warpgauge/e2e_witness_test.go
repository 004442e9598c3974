package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit/eventually"
)

const witnessCSV = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\nDCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since start.\n"

// kernelLine appends a record to a file or FIFO that is a kernel's log.
func kernelLine(t *testing.T, path string, priority, seq int, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = fmt.Fprintf(f, "%d,%d,%d,-;%s\n", priority, seq, 1000*seq, text)
	must(t, errors.Join(err, f.Close()))
}

// xidEvents are the XIDs of the API's events: GPU, code and who has reported it first.
func xidEvents(t *testing.T, client *http.Client, e *exporter) (out []string) {
	t.Helper()
	var events apiv1.Events
	must(t, json.Unmarshal(get(t, client, e.url+"/api/v1/events").body, &events))
	for _, x := range events.Events {
		if x.Kind == "xid" && x.Code != nil {
			out = append(out, fmt.Sprintf("%s %d", x.GPU, *x.Code))
		}
	}
	slices.Sort(out)
	return out
}

// testWitnesses raises an XID that the driver and the kernel's log report, and one that only one
// of them does. Each is counted once.
func testWitnesses(t *testing.T, exe string) {
	path := filepath.Join(t.TempDir(), "kmsg")
	must(t, syscall.Mkfifo(path, 0o600))
	both, driver := newTrouble(t), newTrouble(t)
	e := serve(t, exe, "--collect-interval=100", "--kernel-log="+path, "-f", file(t, "counters.csv", witnessCSV),
		"--fake-spec="+file(t, "spec.yaml", "faults:\n"+both.fault("kind: xid, device: 2, xid: 94")+driver.fault("kind: xid, device: 3, xid: 63")))
	client := newClient(t)
	eventually.OK(t, "8 GPUs", func() error { return eightGPUs(e.scrape(t, acceptText)) })
	both.begin(t)
	driver.begin(t)
	kernelLine(t, path, 3, 1, "NVRM: Xid (PCI:0000:52:00): 94, pid=7, name=train, Contained: SM (0x1).")
	kernelLine(t, path, 12, 2, "NVRM: Xid (PCI:0000:52:00): 79, pid=7, name=train, forged by a program")
	kernelLine(t, path, 3, 3, "NVRM: Xid (PCI:0000:1b:00): 79, pid=7, name=train, GPU has fallen off the bus.")
	eventually.OK(t, "each XID by its witnesses", func() error {
		p := e.scrape(t, acceptText)
		if n := len(p.family("warpgauge_xid_witness_total")); n != 3 {
			return fmt.Errorf("%d series of witnesses, want 3", n)
		}
		return errors.Join(
			p.want(1, "warpgauge_xid_witness_total", "gpu", "2", "xid", "94", "witness", "both"),
			p.want(1, "warpgauge_xid_witness_total", "gpu", "3", "xid", "63", "witness", "driver"),
			p.want(1, "warpgauge_xid_witness_total", "gpu", "0", "xid", "79", "witness", "kernel_log"),
			p.want(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", "94"), // the driver's, as ever
			p.want(0, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "0", "xid", "79"),
			p.want(1, "warpgauge_device_health", "gpu", "0", "state", "failed", "reason", "xid_79"))
	})
	if got, want := xidEvents(t, client, e), []string{"0 79", "2 94", "3 63"}; !slices.Equal(got, want) {
		t.Errorf("XIDs of /api/v1/events: %q, want %q", got, want)
	}
}

// testWitnessRestarts: an exporter that starts again reports what came meanwhile, and nothing
// twice.
func testWitnessRestarts(t *testing.T, exe string) {
	path, state := file(t, "kmsg", ""), filepath.Join(t.TempDir(), "health")
	start := func() *exporter {
		e := serve(t, exe, "--collect-interval=100", "--kernel-log="+path, "--health-directory="+state, "-f", file(t, "counters.csv", witnessCSV))
		e.Await(t, "the kernel's log to be read", func() error {
			if !strings.Contains(e.Output(), "reading the kernel's log") {
				return errors.New("not yet")
			}
			return nil
		})
		return e
	}
	client := newClient(t)
	kernelLine(t, path, 3, 5, "NVRM: Xid (PCI:0000:1b:00): 13, of the time before")
	e := start()
	kernelLine(t, path, 3, 6, "NVRM: Xid (PCI:0000:1b:00): 48, x")
	eventually.OK(t, "the first XID", func() error {
		if got := xidEvents(t, client, e); !slices.Equal(got, []string{"0 48"}) {
			return fmt.Errorf("events %q", got)
		}
		return nil
	})
	e.Signal(t, syscall.SIGTERM)
	e.ends(t)
	kernelLine(t, path, 3, 7, "NVRM: Xid (PCI:0000:1b:00): 95, x")
	e = start()
	eventually.OK(t, "what came meanwhile", func() error {
		if got := xidEvents(t, client, e); !slices.Equal(got, []string{"0 95"}) {
			return fmt.Errorf("events %q", got)
		}
		return nil
	})
}
