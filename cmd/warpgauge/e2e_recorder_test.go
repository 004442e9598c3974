package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/internal/testkit/programtest/prometheustest"
)

const recorderCSV = `DCGM_FI_DEV_POWER_USAGE, gauge, Power
DCGM_FI_DEV_SM_CLOCK, gauge, Clock
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy
DCGM_FI_DEV_XID_ERRORS, gauge, Last XID
DCGM_EXP_XID_ERRORS_COUNT, counter, XIDs
DCGM_FI_DEV_GPU_TEMP, histogram, Temperature, buckets=30|60|90
`

// TestE2ERecorder has a GPU report an XID, downloads what was recorded, replays it, and has
// the real promtool and Prometheus read it.
func TestE2ERecorder(t *testing.T) {
	t.Parallel()
	promtool := programtest.Find(t, "promtool")
	prometheus := prometheustest.Find(t)
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
	want := samplesOf(t, recorded)
	if len(want) < 100 || !strings.Contains(string(recorded), `err_code="79"`) {
		t.Fatalf("%d samples are recorded", len(want))
	}

	path, blocks := filepath.Join(t.TempDir(), "recording.om"), t.TempDir()
	must(t, os.WriteFile(path, recorded, 0o600))
	if out, err := exec.Command(promtool, "tsdb", "create-blocks-from", "openmetrics", path, blocks).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	must(t, os.Mkdir(filepath.Join(blocks, "wal"), 0o700)) // which promtool wants to read, too
	dump, err := exec.Command(promtool, "tsdb", "dump", blocks).Output()
	must(t, err)
	got := 0
	for line := range strings.Lines(string(dump)) {
		if got++; !want[dumped(t, line)] {
			t.Fatalf("Prometheus has the sample %q, which was not recorded", line)
		}
	}
	if got != len(want) {
		t.Errorf("Prometheus has %d samples, %d were recorded", got, len(want))
	}
	p := programtest.Start(t, prometheus, []string{
		"--config.file=" + file(t, "prometheus.yml", ""), "--storage.tsdb.path=" + blocks, "--web.listen-address=127.0.0.1:0", "--log.level=warn",
	}, programtest.Options{})
	result := get(t, client, p.AwaitReady(t, "/-/ready")+"/api/v1/query?query=count_over_time(DCGM_FI_DEV_SM_CLOCK{gpu=\"1\"}[1m])&time="+strconv.FormatInt(r.Until.Unix()+1, 10))
	if !strings.Contains(string(result.body), `"success"`) || !strings.Contains(string(result.body), `"gpu":"1"`) {
		t.Errorf("Prometheus answers %s", result.body)
	}

	testReplay(t, exe, recording, r, recorded)
}

// samplesOf returns the lines of OpenMetrics as dumped returns those of a dump.
func samplesOf(t *testing.T, text []byte) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "{")
		at := strings.LastIndexByte(rest, '}')
		fields := strings.Fields(rest[at+1:])
		out[normal(t, `__name__="`+name+`",`+rest[:at], fields[0], fields[1], 1000)] = true
	}
	return out
}

// dumped brings a line of promtool tsdb dump, {a="b", c="d"} VALUE MS, into one form.
func dumped(t *testing.T, line string) string {
	at := strings.LastIndexByte(line, '}')
	fields := strings.Fields(line[at+1:])
	return normal(t, line[1:at], fields[0], fields[1], 1)
}

func normal(t *testing.T, labels, value, at string, scale float64) string {
	v, err := strconv.ParseFloat(value, 64)
	ms, errAt := strconv.ParseFloat(at, 64)
	must(t, errors.Join(err, errAt))
	of := map[string]string{}
	for _, l := range strings.Split(strings.ReplaceAll(labels, `", `, `",`), `",`) {
		key, text, _ := strings.Cut(strings.TrimSuffix(l, `"`), `="`)
		of[key] = text
	}
	sorted, err := json.Marshal(of)
	must(t, err)
	return fmt.Sprint(string(sorted), v, int64(math.Round(ms*scale)))
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
