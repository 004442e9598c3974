package recorder

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

// shared is a recording of a GPU with two users: a field with two names and scales, a field of a histogram only,
// XIDs, simultaneous events, and samples from a driver's buffer.
func shared() (h *Header, samples map[int][]Sample) {
	blank := math.NaN()
	h = &Header{
		Format: format, Recording: rows.Recording{Name: "x", From: time.UnixMilli(1e12).UTC(), Until: time.UnixMilli(1e12 + 4000).UTC()},
		Text: `a "quoted" text with a \ and` + "\na second line",
		Lists: []string{`DCGM_FI_DEV_SM_CLOCK, gauge, Clock
DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, Clock
DCGM_FI_DEV_XID_ERRORS, gauge, XID
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs
DCGM_FI_DEV_POWER_USAGE, gauge, Power
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy
DCGM_FI_DEV_GPU_TEMP, histogram, Temperature, buckets=30|60
`},
		Devices: []Device{{Collector: "nvml", Interval: time.Second, Device: collector.Device{ID: "GPU-a", UUID: "GPU-a", GPU: "0", Level: field.GPU}}},
	}
	samples = make(map[int][]Sample)
	add := func(name string, buffered bool, labels []collector.Label, pairs ...float64) {
		d, _, ok := field.ByName(name)
		if !ok {
			panic(name)
		}
		for i := 0; i < len(pairs); i += 2 {
			samples[len(h.Series)] = append(samples[len(h.Series)], Sample{1e12 + int64(pairs[i]), pairs[i+1]})
		}
		h.Series = append(h.Series, rows.Series{Device: "GPU-a", Field: d.ID, Buffered: buffered, Labels: labels})
	}
	add("DCGM_FI_DEV_SM_CLOCK", false, nil, 0, 1980, 1000, 1981, 2001, 345)
	add("DCGM_FI_DEV_XID_ERRORS", false, nil, 0, 0, 1000, 79, 2001, 79, 3000, 31)
	add("DCGM_FI_DEV_POWER_USAGE", false, nil, 0, 100.25, 1000, blank, 2001, math.Inf(1), 3000, 1e-9)
	add("DCGM_FI_DEV_POWER_USAGE", true, []collector.Label{{Name: "l", Value: `a "b" \`}}, 100, 99.5, 120, 98.5)
	add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", false, nil, 0, 1<<52, 1000, 1<<52+1)
	add("DCGM_FI_DEV_GPU_TEMP", false, nil, 0, 40, 1000, 41)
	h.Series = append(h.Series, rows.Series{Device: "GPU-a", Field: field.XIDEvent})
	samples[len(h.Series)-1] = []Sample{{1e12 + 900, 79}, {1e12 + 900, 31}, {1e12 + 3999, 31}, {1e12 + 3999, 45}}
	h.Series = append(h.Series, rows.Series{Device: "GPU-a", Field: 60000}) // from a later version
	samples[len(h.Series)-1] = []Sample{{1e12, 7}}
	return h, samples
}

// twoPods implements exposition.Owners.
type twoPods struct{}

func (twoPods) Version() uint64                        { return 1 }
func (twoPods) Split(*collector.Device, field.ID) bool { return false }
func (twoPods) Shares() *view.Shares                   { return nil }
func (twoPods) Owners(*collector.Device) (out []view.Owner) {
	for _, pod := range [][2]string{{"c", "p"}, {"c d", `q "\`}} {
		out = append(out, view.Owner{Labels: []collector.Label{{Name: "container", Value: pod[0]}, {Name: "namespace", Value: "ns"}, {Name: "pod", Value: pod[1]}}})
	}
	return out
}

// TestWhatIsReadIsWhatWasWritten: a recording keeps everything except blanks; simultaneous events get times 1 ms apart.
func TestWhatIsReadIsWhatWasWritten(t *testing.T) {
	h, samples := shared()
	file := written(t, h, exposition.Options{Hostname: "node", Owners: twoPods{}}, samples)
	got := testkit.Get(Read(bytes.NewReader(file)))(t)
	testkit.Equal(t, "header", *h, got.Header)
	samples[2] = append(samples[2][:1], samples[2][2:]...)
	events := samples[6]
	events[1].Time, events[3].Time = events[1].Time+1, events[3].Time+1
	for i := range h.Series {
		testkit.Equal(t, fmt.Sprintf("series %d of\n%s", i, text(t, file)), samples[i], got.Samples[i])
	}
}

// TestNamesOfARecording: series have their names from the page; other series have a family of their own.
func TestNamesOfARecording(t *testing.T) {
	h, samples := shared()
	got := text(t, written(t, h, exposition.Options{Hostname: "node", Owners: twoPods{}}, samples))
	const labels = `{gpu="0",UUID="GPU-a",pci_bus_id="",device="",modelName="",hostname="node",container="c",`
	for _, want := range []string{
		"# HELP DCGM_FI_DEV_SM_CLOCK Clock\n# TYPE DCGM_FI_DEV_SM_CLOCK gauge\nDCGM_FI_DEV_SM_CLOCK" + labels + `namespace="ns",pod="p"} 1980 1000000000.000` + "\n",
		"DCGM_FI_DEV_SM_CLOCK_HERTZ" + labels + `namespace="ns",pod="p"} 1981000000 1000000001.000` + "\n",
		`DCGM_FI_DEV_XID_ERRORS` + labels + `err_code="79",err_msg="` + field.XIDText(79) + `",namespace="ns",pod="p"} 79 1000000002.001` + "\n",
		`warpgauge_recording_reading{device="GPU-a",field="DCGM_FI_DEV_POWER_USAGE",l="a \"b\" \\",buffered="true"} 99.5 1000000000.100` + "\n",
		`warpgauge_recording_reading{device="GPU-a",field="DCGM_FI_DEV_GPU_TEMP"} 40 1000000000.000` + "\n",
		`a \u0022quoted\u0022 text with a \u005c and\u000aa second line`,
	} {
		testkit.Equal(t, fmt.Sprintf("times that %q is in\n%s", want, got), 1, strings.Count(got, want))
	}
	testkit.ErrorIf(t, strings.Count(got, "warpgauge_recording_reading{") != 9 || !strings.HasSuffix(got, "\n# EOF\n"), "recording:\n%s", got)
}

// TestPrometheusReadsARecording: promtool creates blocks from a recording decompressed with zstd -d.
func TestPrometheusReadsARecording(t *testing.T) {
	promtool := programtest.Find(t, "promtool")
	h, samples := shared()
	all := text(t, written(t, h, exposition.Options{Hostname: "node", Owners: twoPods{}}, samples))
	path, blocks := filepath.Join(t.TempDir(), "recording.om"), t.TempDir()
	must(t, os.WriteFile(path, []byte(all), 0o600))
	out, err := exec.Command(promtool, "tsdb", "create-blocks-from", "openmetrics", path, blocks).CombinedOutput()
	testkit.FatalIf(t, err != nil, "promtool: %v\n%s\n%s", err, out, all)
	must(t, os.Mkdir(filepath.Join(blocks, "wal"), 0o700)) // promtool also reads the WAL
	dump := testkit.Get(exec.Command(promtool, "tsdb", "dump", blocks).Output())(t)
	want := 0
	for line := range strings.Lines(all) {
		if !strings.HasPrefix(line, "#") {
			want++
		}
	}
	testkit.Equal(t, fmt.Sprintf("samples of the recording that Prometheus has:\n%s\n%s", dump, all), want, bytes.Count(dump, []byte("\n")))
}
