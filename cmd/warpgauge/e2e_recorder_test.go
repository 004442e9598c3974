package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"warpgauge/extensions/live/apiv1"
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

// TestE2ERecorder has a GPU report an XID, downloads what was recorded, and replays it.
func TestE2ERecorder(t *testing.T) {
	t.Parallel()
	exe := build(t)
	xid := newTrouble(t)
	e := serve(t, exe, "--collect-interval=100", "--fake-devices=2", "-f", file(t, "counters.csv", recorderCSV),
		"--fake-spec="+file(t, "spec.yaml", "faults:\n"+xid.fault("kind: xid, device: 1, xid: 79")),
		"--recorder-directory="+filepath.Join(t.TempDir(), "recordings"), "--recorder-before=3s", "--recorder-after=1s", "--enable-record-endpoint")
	eventually.OK(t, "a page", func() error {
		if n := len(e.scrape(t, acceptText).values("DCGM_FI_DEV_POWER_USAGE")); n != 2 {
			return fmt.Errorf("%d GPUs", n)
		}
		return nil
	})
	client := newClient(t)
	var devices apiv1.Devices
	must(t, json.Unmarshal(get(t, client, e.url+"/api/v1/devices").body, &devices))
	eventually.OK(t, "some history", func() error {
		if n := strings.Count(string(get(t, client, e.url+"/api/v1/samples?device="+devices.Devices[0].ID+"&field=DCGM_FI_DEV_POWER_USAGE").body), ","); n < 50 {
			return fmt.Errorf("%d commas", n)
		}
		return nil
	})
	xid.begin(t)
	var list apiv1.Recordings
	eventually.OK(t, "a recording", func() error {
		if err := json.Unmarshal(get(t, client, e.url+"/api/v1/recordings").body, &list); err != nil {
			return err
		}
		if len(list.Recordings) != 1 {
			return fmt.Errorf("%d recordings", len(list.Recordings))
		}
		return nil
	})
	r := list.Recordings[0]
	// It begins 3 s before, or when the exporter did.
	if before := r.Time.Sub(r.From); r.Cause != "xid" || r.Device == "" || before <= 0 || before > 3*time.Second || r.Until.Sub(r.Time) != time.Second {
		t.Errorf("recording %+v", r)
	}
	if a := request(t, client, http.MethodPost, e.url+"/-/record"); a.code != http.StatusInternalServerError || !strings.Contains(string(a.body), "at most one") {
		t.Errorf("another recording at once: %d %s", a.code, a.body)
	}
	recording := filepath.Join(t.TempDir(), r.Name)
	answered, err := http.Get(e.url + "/api/v1/recordings/" + r.Name)
	must(t, err)
	defer answered.Body.Close()
	body, err := io.ReadAll(answered.Body)
	must(t, errors.Join(err, os.WriteFile(recording, body, 0o600)))
	if got := answered.Header.Get("Content-Type"); got != "application/zstd" || answered.Header.Get("Content-Encoding") != "" || !strings.HasSuffix(r.Name, ".om.zst") {
		t.Errorf("recording %s has type %q", r.Name, got)
	}

	z, err := zstd.NewReader(nil)
	must(t, err)
	recorded, err := z.DecodeAll(body, nil)
	must(t, err)
	if strings.Count(string(recorded), "\n") < 100 || !strings.Contains(string(recorded), `err_code="79"`) {
		t.Fatalf("recorded:\n%s", recorded)
	}

	testReplay(t, exe, recording, r, recorded)
}

// testReplay compares what a replay serves with what was recorded.
func testReplay(t *testing.T, exe, recording string, r apiv1.Recording, recorded []byte) {
	e := &exporter{Process: programtest.Start(t, buildControl(t), []string{"replay", "--listen=127.0.0.1:0", recording}, programtest.Options{})}
	e.url = e.AwaitReady(t, "/readyz")
	client := newClient(t)
	var devices apiv1.Devices
	body := get(t, client, e.url+"/api/v1/devices").body
	must(t, json.Unmarshal(body, &devices))
	if devices.Recording != r.Name || len(devices.Devices) != 2 || devices.Devices[0].State != "up" || !devices.Time.Equal(r.Until) {
		t.Errorf("devices of the replay: %s", body)
	}
	var samples apiv1.Samples
	for _, d := range devices.Devices {
		must(t, json.Unmarshal((get(t, client, fmt.Sprintf("%s/api/v1/samples?device=%s&field=DCGM_FI_DEV_POWER_USAGE&since=%s&until=%s",
			e.url, d.ID, r.From.Format(time.RFC3339Nano), r.Until.Format(time.RFC3339Nano))).body), &samples))
		if len(samples.Series) != 1 || len(samples.Series[0].Times) < 20 {
			t.Fatalf("samples of the replay: %+v", samples)
		}
		for i, at := range samples.Series[0].Times {
			want := fmt.Sprintf(" %v %.3f\n", *samples.Series[0].Values[i], float64(at)/1000)
			if !strings.Contains(string(recorded), want) {
				t.Errorf("the replay has a sample %q, which was not recorded", want)
			}
		}
	}
	// Each power on the page is one that GPU had.
	for gpu, v := range e.scrape(t, acceptText).values("DCGM_FI_DEV_POWER_USAGE") {
		if !strings.Contains(string(recorded), fmt.Sprintf(" %v ", v)) {
			t.Errorf("the replay shows a power of %v for GPU %s, which it never had", v, gpu)
		}
	}
	eventually.OK(t, "the XID on the page", func() error {
		return e.scrape(t, acceptText).want(1, "DCGM_EXP_XID_ERRORS_COUNT", "gpu", "1", "xid", "79")
	})
	if n := len(e.scrape(t, acceptText).values("DCGM_FI_DEV_GPU_TEMP_count")); n != 2 {
		t.Errorf("%d histograms", n)
	}
	var events apiv1.Events
	must(t, json.Unmarshal((get(t, client, e.url+"/api/v1/events?since="+r.From.Format(time.RFC3339Nano)).body), &events))
	if !strings.Contains(fmt.Sprint(events), "XID 79") {
		t.Errorf("events of the replay: %v", events)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
