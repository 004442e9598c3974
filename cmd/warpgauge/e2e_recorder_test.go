package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

const recorderCSV = `DCGM_FI_DEV_POWER_USAGE, gauge, Power
DCGM_FI_DEV_SM_CLOCK, gauge, Clock
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy
DCGM_FI_DEV_XID_ERRORS, gauge, Last XID
DCGM_EXP_XID_ERRORS_COUNT, counter, XIDs
DCGM_FI_DEV_GPU_TEMP, histogram, Temperature, buckets=30|60|90
`

// TestE2ERecorder lets a GPU report an XID, downloads the recording and replays it. extensions/recorder tests
// the content of recordings and replays.
func TestE2ERecorder(t *testing.T) {
	t.Parallel()
	xid := newTrouble(t)
	e := serve(t, build(t), "--collect-interval=100", "--fake-devices=2", "-f", file(t, "counters.csv", recorderCSV), faults(t, xid.fault("kind: xid, device: 1, xid: 79")),
		"--recorder-directory="+filepath.Join(t.TempDir(), "recordings"), "--recorder-before=3s", "--recorder-after=1s", "--enable-record-endpoint")
	e.await(t, "a page", count(2, "DCGM_FI_DEV_POWER_USAGE"))
	client := newClient(t)
	answerOf := func(url string, out any) {
		t.Helper()
		must(t, json.Unmarshal(get(t, client, url).body, out))
	}
	xid.begin(t)
	var list apiv1.Recordings
	eventually.True(t, "a recording", func() bool {
		answerOf(e.url+"/api/v1/recordings", &list)
		return len(list.Recordings) == 1
	})
	r := list.Recordings[0]
	// The recording begins 3 s earlier, or at the exporter's start.
	if before := r.Time.Sub(r.From); r.Cause != "xid" || r.Device == "" || before <= 0 || before > 3*time.Second || r.Until.Sub(r.Time) != time.Second {
		t.Errorf("recording %+v", r)
	}
	if a := request(t, client, http.MethodPost, e.url+"/-/record"); a.code != http.StatusInternalServerError || !strings.Contains(string(a.body), "at most one") {
		t.Errorf("another recording at once: %d %s", a.code, a.body)
	}
	a := get(t, client, e.url+"/api/v1/recordings/"+r.Name)
	recording := filepath.Join(t.TempDir(), r.Name)
	must(t, os.WriteFile(recording, a.body, 0o600))

	e = &exporter{Process: programtest.Start(t, buildControl(t), []string{"replay", "--listen=127.0.0.1:0", recording}, programtest.Options{})}
	e.url = e.AwaitReady(t, "/readyz")
	var devices apiv1.Devices
	answerOf(e.url+"/api/v1/devices", &devices)
	testkit.ErrorIf(t, devices.Recording != r.Name || len(devices.Devices) != 2 || devices.Devices[0].State != "up" || !devices.Time.Equal(r.Until), "devices of the replay: %+v", devices)
	e.await(t, "the XID on the page", is(79, "DCGM_FI_DEV_XID_ERRORS", "gpu", "1"), count(2, "DCGM_FI_DEV_POWER_USAGE"))
	var events apiv1.Events
	answerOf(e.url+"/api/v1/events?since="+r.From.Format(time.RFC3339Nano), &events)
	testkit.Has(t, "events of the replay", fmt.Sprint(events), "XID 79")
}
