package supervisor

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/session/sessiontest"
	"warpgauge/pkg/view"
)

func TestPauses(t *testing.T) {
	p := pauses{longest: 3 * time.Second}
	f := func(served, want time.Duration) {
		t.Helper()
		testkit.Equal(t, fmt.Sprintf("pause after a session in service for %v", served), want, p.next(served))
	}
	for _, millis := range []int{100, 200, 400, 800, 1600, 3000, 3000, 3000} {
		f(0, time.Duration(millis)*time.Millisecond)
	}
	f(time.Hour, 100*time.Millisecond)
	for _, millis := range []int{200, 400, 800, 1000, 1000} {
		f(time.Millisecond, time.Duration(millis)*time.Millisecond)
	}
	f(2*time.Second, 400*time.Millisecond)
	f(0, 800*time.Millisecond)
}

// Every state is a series; the current state has the value 1.
func TestStateMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sessiontest.New(t, "a", "b")
		l.Failure["b"] = collector.ErrDeviceLost
		b := start(t, l, Options{})
		pass(3500 * time.Millisecond)
		f := func(want float64, name string, labels ...string) {
			t.Helper()
			testkit.Equal(t, fmt.Sprintf("%s%v", name, labels), want, value(t, b.Supervisor, name, labels...))
		}
		f(1, "warpgauge_device_state", "device", "a", "state", "up")
		f(1, "warpgauge_devices", "state", "lost")
		got := value(t, b.Supervisor, "warpgauge_sample_age_seconds", "device", "a")
		testkit.ErrorIf(t, got <= 0 || got >= 1, "the last sample is %v s old, want under a tick", got)
		f(1, "warpgauge_collector_opens_total", "result", "success")
		testkit.Equal(t, "lines of the lost device", 1, b.count("device is not up"))
		l.Set(func() { delete(l.Failure, "b") })
		pass(5 * time.Second)
		testkit.Equal(t, "lines that it is up again", 1, b.count("device is up again"))
	})
}

// TestIdentify: a GPU that does not answer keeps its former identity.
func TestIdentify(t *testing.T) {
	gpu := func(id, number, address string) collector.Device {
		return collector.Device{ID: id, Level: field.GPU, GPU: number, PCIBusID: address}
	}
	source := func(d collector.Device, columns int) *view.Source {
		return &view.Source{Devices: []collector.Device{d}, Columns: make([]collector.Column, columns)}
	}
	v := inventory{gpus: []collector.Device{gpu("a", "0", "A"), gpu("b", "2", "B"), gpu("c", "10", "C")}}
	f := func(what, want string, sources ...*view.Source) {
		t.Helper()
		var got []string
		for _, s := range v.identify(sources) {
			got = append(got, s.Devices[0].ID+s.Devices[0].GPU)
		}
		testkit.Equal(t, what, want, strings.Join(got, " "))
	}
	a, b, c := source(gpu("a", "0", "A"), 1), source(gpu("b", "1", "B"), 1), source(gpu("c", "2", "C"), 1)
	f("all answer", "a0 b1 c2", a, b, c)
	f("one does not", "a0 b1 c2", a, source(gpu("nvml1", "1", ""), 0), c)
	f("two do not, by the driver's numbers", "a0 c2 b1", a, source(gpu("nvml2", "2", ""), 0), source(gpu("nvml1", "1", ""), 0))
	f("one does not and one is gone", "a0 nvml11", a, source(gpu("nvml1", "1", ""), 0))
	f("one of an address does not, and one is gone", "a0 c1", a, source(gpu("C", "1", "C"), 0))
	f("another address", "a0 b1 X2", a, b, source(gpu("X", "2", "X"), 0))
	f("one more, which answers", "a0 b1 d2", a, b, source(gpu("d", "2", ""), 1))
	f("one that is known", "a0 b1 c2", a, b, source(gpu("c", "2", "C"), 0))
	testkit.ErrorIf(t, a.Devices[0].ID != "a" || b.Devices[0].GPU != "1", "the sources of the session were changed")
}

// TestNamelessIsNotAbsent: the stand-in for a GPU that did not answer is not absent when the GPU has answered.
func TestNamelessIsNotAbsent(t *testing.T) {
	f := func(what string, before, now collector.Device, want int) {
		t.Helper()
		v := inventory{absent: map[string]departed{}, numbers: map[string]string{}}
		before.Level, now.Level = field.GPU, field.GPU
		v.update([]*view.Source{{Devices: []collector.Device{now}}}, nil, []session.DeviceStatus{{Device: before}}, zap.NewNop(), time.Now())
		testkit.Equal(t, what+": absent", want, len(v.missing(time.Now())))
	}
	named := collector.Device{ID: "GPU-a", UUID: "GPU-a", PCIBusID: "A"}
	f("neither UUID nor address", collector.Device{ID: "nvml3", GPU: "3"}, named, 0)
	f("an address", collector.Device{ID: "A", UUID: "A", PCIBusID: "A"}, named, 0)
	f("another address", collector.Device{ID: "B", UUID: "B", PCIBusID: "B"}, named, 1)
	f("another board", collector.Device{ID: "GPU-b", UUID: "GPU-b", PCIBusID: "A"}, named, 1)
}

// TestAListWithoutSwitchesLosesNone: devices of a level that the new list does not need are not searched, so
// they are not absent; a missing GPU is.
func TestAListWithoutSwitchesLosesNone(t *testing.T) {
	board := func(id string, level field.Level) collector.Device {
		return collector.Device{ID: id, Level: level, UUID: id}
	}
	one, other := field.List{Fields: make([]field.Field, 1)}, field.List{Fields: make([]field.Field, 1)}
	old := []*view.Source{{Fields: one, Devices: []collector.Device{board("a", field.GPU), board("b", field.GPU), board("s", field.Switch)}}}
	var before []session.DeviceStatus
	for _, d := range old[0].Devices {
		before = append(before, session.DeviceStatus{Device: d})
	}
	for _, tt := range []struct {
		list field.List
		want int
	}{{other, 1}, {one, 2}} {
		v := inventory{absent: map[string]departed{}, numbers: map[string]string{}}
		v.update([]*view.Source{{Fields: tt.list, Devices: old[0].Devices[:1]}}, old, before, zap.NewNop(), time.Now())
		testkit.Equal(t, "devices that are absent", tt.want, len(v.missing(time.Now())))
	}
}

// readInput decodes what inputOf encodes.
func TestInputOfAChild(t *testing.T) {
	sent := map[string]int64{"GPU-a/1": 1763812345678901, "GPU 0": 0}
	given := collectortest.Gauges(t, temperature)
	given.Dialect = &field.Dialect{InPlace: true, Readings: []field.ID{155, 10001}, Texts: []field.ID{50}}
	list, until, err := readInput(inputOf(given, sent))
	testkit.ErrorIf(t, err != nil || len(list.Fields) != 1 || !maps.Equal(until, sent) || !reflect.DeepEqual(list.Dialect, given.Dialect), "got %v, %v, %v", list, until, err)
}

// A library that changes its boards' ids each time does not fill the memory with absent boards.
func TestIDsThatChange(t *testing.T) {
	v := inventory{absent: map[string]departed{}, numbers: map[string]string{}}
	now := bubbleStart
	var before []session.DeviceStatus
	for round := range 2 * maxAbsent {
		now = now.Add(time.Second)
		var devices []collector.Device
		for gpu := range 2 {
			devices = append(devices, collector.Device{ID: fmt.Sprintf("GPU-%d-%d", round, gpu), Level: field.GPU, GPU: fmt.Sprint(gpu), PCIBusID: fmt.Sprint(gpu)})
		}
		sources := v.renumber([]*view.Source{{Devices: devices}})
		v.update(sources, nil, before, zap.NewNop(), now)
		before = nil
		for _, d := range sources[0].Devices {
			before = append(before, session.DeviceStatus{Device: d})
			testkit.FatalIf(t, d.ID != fmt.Sprintf("GPU-%d-%s", round, d.GPU), "GPU %s has the number %s", d.ID, d.GPU)
		}
	}
	all := v.missing(now)
	testkit.ErrorIf(t, len(all) != maxAbsent || len(v.numbers) != 2, "%d absent GPUs and %d numbers are remembered, want %d and 2", len(all), len(v.numbers), maxAbsent)
	newest := fmt.Sprintf("GPU-%d-0", 2*maxAbsent-2)
	testkit.ErrorIf(t, !slices.ContainsFunc(all, func(d session.DeviceStatus) bool { return d.Device.ID == newest }), "%s is not among them", newest)
}
