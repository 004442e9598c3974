package session

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// collected is a prometheus.Collector of states and costs.
type collected struct {
	CollectorStatus
	Costs
}

func (collected) Describe(chan<- *prometheus.Desc) {}

func (c collected) Collect(ch chan<- prometheus.Metric) {
	CollectStates(ch, c.CollectorStatus)
	c.Costs.Collect(ch)
}

// A device with two sources is one series, and links are only counted.
func TestSeries(t *testing.T) {
	gpu := DeviceStatus{Device: collector.Device{ID: "a", GPU: "0", Level: field.GPU}, State: Stalled, Cause: CauseStarting}
	link := DeviceStatus{Device: collector.Device{ID: "a/l", Parent: "a", Level: field.Link}}
	st := CollectorStatus{Name: "x", Cause: CauseError, Devices: []DeviceStatus{gpu, gpu, link}}
	costs := Costs{Collector: "x", Sources: map[string]SourceCost{"a": {Samples: 2, Time: time.Second, Failed: 1}}, Calls: map[string]collector.CallCost{"f": {Count: 3}}, Implausible: map[string]uint64{"y": 4}}
	text := testkit.Get(testutil.CollectAndFormat(collected{st, costs}, expfmt.TypeTextPlain, "warpgauge_collector_problem", "warpgauge_collector_up", "warpgauge_device_problem",
		"warpgauge_device_state", "warpgauge_devices_expected", "warpgauge_library_calls_total", "warpgauge_sample_errors_total"))(t)
	want := []string{
		`warpgauge_collector_problem{cause="error",collector="x"} 1`,
		`warpgauge_collector_up{collector="x"} 0`,
		`warpgauge_device_problem{cause="starting",collector="x",device="a",gpu="0"} 1`,
		`warpgauge_device_state{collector="x",device="a",gpu="0",state="stalled"} 1`,
		`warpgauge_devices_expected{collector="x"} 1`,
		`warpgauge_library_calls_total{call="f",collector="x"} 3`,
		`warpgauge_sample_errors_total{collector="x",source="a"} 1`,
	}
	got := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(line string) bool { return line[0] == '#' })
	testkit.Equal(t, "series", want, got)
	testkit.ErrorIf(t, Opened([]CollectorStatus{st}) || !Opened(nil), "a device that was not sampled counts as opened")
}
