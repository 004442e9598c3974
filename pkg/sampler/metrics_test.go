package sampler

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"warpgauge/pkg/collector"
)

func TestOwnMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(3)
		reg := prometheus.NewPedanticRegistry()
		s := start(t, n, oneField, Options{Deadline: 2 * time.Second, Registerer: reg})
		time.Sleep(1500 * time.Millisecond)
		release := make(chan struct{})
		n.devices[1].set(func(d *device) { d.hang = release })
		n.devices[2].set(func(d *device) { d.err = collector.ErrDeviceLost })
		time.Sleep(10500 * time.Millisecond)
		synctest.Wait()
		want := `
# HELP warpgauge_collector_up 1 if the collector is open and its devices are sampled.
# TYPE warpgauge_collector_up gauge
warpgauge_collector_up{collector="scripted"} 1
# HELP warpgauge_devices Devices of the collector, links and cores included, by state.
# TYPE warpgauge_devices gauge
warpgauge_devices{collector="scripted",state="lost"} 1
warpgauge_devices{collector="scripted",state="released"} 0
warpgauge_devices{collector="scripted",state="stalled"} 1
warpgauge_devices{collector="scripted",state="up"} 1
# HELP warpgauge_device_problem 1 for the reason why the device is not up.
# TYPE warpgauge_device_problem gauge
warpgauge_device_problem{cause="hung_call",collector="scripted",device="GPU-1",gpu=""} 1
warpgauge_device_problem{cause="lost",collector="scripted",device="GPU-2",gpu=""} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "warpgauge_collector_up", "warpgauge_devices", "warpgauge_device_problem"); err != nil {
			t.Error(err)
		}
		ages := func() map[string]float64 {
			out := make(map[string]float64)
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			problems, err := promlint.NewWithMetricFamilies(families).Lint()
			if err != nil || len(problems) > 0 {
				t.Errorf("lint: %v %v", problems, err)
			}
			for _, f := range families {
				if f.GetName() == "warpgauge_sample_age_seconds" {
					for _, m := range f.GetMetric() {
						out[m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
					}
				}
			}
			return out
		}()
		if ages["GPU-0"] > 1 || ages["GPU-1"] < 9 || ages["GPU-2"] < 9 {
			t.Errorf("sample ages %v, want under 1 s for GPU-0 and over 9 s for the others", ages)
		}
		n.devices[1].set(func(d *device) { d.hang = nil })
		close(release)
		_ = s
	})
}

type metered struct {
	stub
	calls []collector.CallCost
}

func (m *metered) Calls() []collector.CallCost { return m.calls }

func TestCallCostsSurviveANewBinding(t *testing.T) {
	bound := func(count uint64, d time.Duration) *binding {
		src := &metered{stub: stub{devices: devices(1)}, calls: []collector.CallCost{{Call: "read", Count: count, Time: d}}}
		b, err := newBinding((&conn{node: newNode(0)}), []collector.Source{src}, oneField, 1, Options{}.withDefaults(), newMetrics())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var totals callTotals
	var current atomic.Pointer[binding]
	f := func(next *binding, count uint64, d time.Duration) {
		t.Helper()
		totals.swap(&current, next)
		got := totals.with(&current)
		if len(got) != 1 || got[0] != (collector.CallCost{Call: "read", Count: count, Time: d}) {
			t.Errorf("got %v, want %d calls of %v", got, count, d)
		}
	}
	f(bound(3, time.Second), 3, time.Second)
	f(bound(1, time.Millisecond), 4, 1001*time.Millisecond)
	f(nil, 4, 1001*time.Millisecond)
}
