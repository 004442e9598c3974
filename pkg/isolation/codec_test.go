package isolation

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/sampler"
)

// examples are one message of each kind, with something in every part.
func examples() map[kind]message {
	device := collector.Device{
		ID: "GPU-1", Parent: "GPU-0", Level: field.Instance, GPU: "0", UUID: "u", PCIBusID: "00000000:3B:00.0", Node: "nvidia0",
		Model: "Größe", InstanceProfile: "1g.10gb", InstanceID: "7", ComputeID: "1", MIGUUID: "MIG-1", Alias: "xcp", Link: "3", Switch: "s", CPU: "c", Core: "o", ConnectX: "x",
		Facts: []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "550"}},
	}
	return map[kind]message{
		kindHello: &hello{build: "v1 abc", pid: 7},
		kindSetup: &setup{
			version: 3, list: []byte("a, gauge, b\n"), start: 12, level: "info", interval: time.Second, slow: 2, static: 3,
			deadline: 4, open: 5, rescan: 6, retry: 7, lost: 8, stop: 9, span: 10,
		},
		kindSource: &source{
			id: 9, rows: 16, devices: []collector.Device{device, {ID: "x"}},
			columns: []collector.Column{{Device: 1, Field: 150, Labels: []collector.Label{{Name: "peer_gpu", Value: "1"}}}, {Field: 203}},
		},
		kindMemory:  &memory{id: 9, problem: "none left"},
		kindService: &service{sources: []inService{{9, 3}, {10, 3}}},
		kindRelease: &release{ids: []uint64{1, 2}},
		kindStatus: &status{
			up: true, cause: "opening", reason: "r",
			devices: []deviceState{{source: 9, device: 1, state: sampler.Lost, cause: "lost", reason: "gone"}},
			missing: []sampler.DeviceStatus{{Device: device, State: sampler.Lost, Cause: sampler.CauseVanished, Reason: "v", LastSample: time.Unix(0, 99)}},
		},
		kindLog: &logEntry{level: 1, time: 5, name: "n", text: "t", fields: []logField{{key: "pid", value: "3", number: true}}, dropped: 2},
		kindMetrics: &metricSet{families: []countedFamily{
			{name: "warpgauge_a_total", help: "h", bounds: []float64{}, series: []counted{{labels: []dtoLabel{{"collector", "x"}}, value: 3}}},
			{name: "warpgauge_b", help: "h", histogram: true, bounds: []float64{1, 2}, series: []counted{
				{labels: []dtoLabel{}, value: 3, count: 4, counts: []uint64{1, 4}},
			}},
		}},
		kindList:     &listChange{version: 4, list: []byte("x")},
		kindReloaded: &reloaded{version: 4, problem: "p"},
	}
}

// blank returns an empty message of that kind, nil for one without content.
func blank(k kind) message {
	switch k {
	case kindHello:
		return &hello{}
	case kindSetup:
		return &setup{}
	case kindSource:
		return &source{}
	case kindMemory:
		return &memory{}
	case kindService:
		return &service{}
	case kindRelease:
		return &release{}
	case kindStatus:
		return &status{}
	case kindLog:
		return &logEntry{}
	case kindMetrics:
		return &metricSet{}
	case kindList:
		return &listChange{}
	case kindReloaded:
		return &reloaded{}
	}
	return nil
}

var exported = cmp.Exporter(func(reflectType) bool { return true })

func TestMessagesComeBackEqual(t *testing.T) {
	for k, m := range examples() {
		got := blank(k)
		if err := unmarshal(marshal(m), got); err != nil {
			t.Errorf("message %d: %v", k, err)
			continue
		}
		if diff := cmp.Diff(m, got, exported); diff != "" {
			t.Errorf("message %d changed (-sent +received):\n%s", k, diff)
		}
	}
}

func TestCutOffMessagesAreErrors(t *testing.T) {
	for k, m := range examples() {
		whole := marshal(m)
		for n := range whole {
			if err := unmarshal(whole[:n], blank(k)); !errors.Is(err, errMessage) {
				t.Errorf("message %d cut to %d of %d bytes: error %v, want %v", k, n, len(whole), err, errMessage)
			}
		}
		if err := unmarshal(append(whole, 0), blank(k)); !errors.Is(err, errMessage) {
			t.Errorf("message %d with a byte too many: error %v, want %v", k, err, errMessage)
		}
	}
}

func TestBoundsOfMessages(t *testing.T) {
	f := func(name string, m, into message) {
		t.Helper()
		if err := unmarshal(marshal(m), into); !errors.Is(err, errMessage) {
			t.Errorf("%s: error %v, want %v", name, err, errMessage)
		}
	}
	one := []collector.Device{{ID: "a"}}
	f("no rows", &source{id: 1, devices: one}, &source{})
	f("too many rows", &source{id: 1, rows: maxRows + 1, devices: one}, &source{})
	f("device without id", &source{id: 1, rows: 1, devices: []collector.Device{{}}}, &source{})
	f("device twice", &source{id: 1, rows: 1, devices: []collector.Device{{ID: "a"}, {ID: "a"}}}, &source{})
	f("column of no device", &source{id: 1, rows: 1, devices: one, columns: []collector.Column{{Device: 1}}}, &source{})
	f("unknown state", &status{devices: []deviceState{{state: sampler.LastState + 1}}}, &status{})
	f("cause that is no word", &status{cause: "a\nb"}, &status{})
	family := func(name string, s counted) message {
		return &metricSet{families: []countedFamily{{name: name, series: []counted{s}}}}
	}
	f("metric of somebody else", family("up", counted{}), &metricSet{})
	f("metric with a bad name", family("warpgauge_ü", counted{}), &metricSet{})
	f("NaN", family("warpgauge_a", counted{value: math.NaN()}), &metricSet{})
	f("negative count", family("warpgauge_a", counted{value: -1}), &metricSet{})
	f("label twice", family("warpgauge_a", counted{labels: []dtoLabel{{"a", ""}, {"a", ""}}}), &metricSet{})
	f("reserved label", family("warpgauge_a", counted{labels: []dtoLabel{{"__name__", ""}}}), &metricSet{})
	f("bounds that do not ascend", &metricSet{families: []countedFamily{{name: "warpgauge_a", bounds: []float64{2, 1}}}}, &metricSet{})
	f("buckets that go down", &metricSet{families: []countedFamily{{
		name: "warpgauge_a", histogram: true, bounds: []float64{1, 2}, series: []counted{{count: 3, counts: []uint64{2, 1}}},
	}}}, &metricSet{})
}

// TestListsAreBoundedBeforeMemoryIsTaken says that there are more items than
// bytes for them.
func TestListsAreBoundedBeforeMemoryIsTaken(t *testing.T) {
	for _, n := range []uint64{100, maxColumns + 1, math.MaxInt64, math.MaxUint64} {
		var e encoder
		e.uint(1) // id
		e.uint(1) // rows
		e.uint(n) // devices
		e.uint(0)
		allocs := testing.AllocsPerRun(1, func() {
			if err := unmarshal(e.b, &source{}); !errors.Is(err, errMessage) {
				t.Errorf("%d devices in no bytes: error %v, want %v", n, err, errMessage)
			}
		})
		if allocs > 20 {
			t.Errorf("%d devices in no bytes: %v allocations", n, allocs)
		}
	}
}

func TestFrames(t *testing.T) {
	var stream []byte
	want := [][]byte{[]byte("one"), nil, bytes.Repeat([]byte("x"), 200<<10), []byte("four")}
	for i, p := range want {
		var err error
		if stream, err = appendFrame(stream, kind(i+1), p); err != nil {
			t.Fatal(err)
		}
	}
	f := frames{r: bytes.NewReader(stream)}
	for i, p := range want {
		k, got, err := f.next()
		if err != nil || k != kind(i+1) || !bytes.Equal(got, p) {
			t.Fatalf("frame %d: type %d with %d bytes and error %v, want %d bytes", i, k, len(got), err, len(p))
		}
	}
	if _, _, err := f.next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: error %v, want %v", err, io.EOF)
	}
	if _, err := appendFrame(nil, 1, make([]byte, maxFrame+1)); err == nil {
		t.Error("a frame over the limit can be made")
	}
}

func TestDamagedFramesAreErrors(t *testing.T) {
	whole, err := appendFrame(nil, kindLog, []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		for bit := range 8 {
			damaged := bytes.Clone(whole)
			damaged[i] ^= 1 << bit
			f := frames{r: bytes.NewReader(damaged)}
			if k, p, err := f.next(); err == nil {
				t.Errorf("bit %d of byte %d flipped: type %d, payload %q, no error", bit, i, k, p)
			}
		}
	}
	for n := range whole[1:] {
		f := frames{r: bytes.NewReader(whole[:n+1])}
		if _, _, err := f.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: error %v, want %v", n+1, len(whole), err, io.ErrUnexpectedEOF)
		}
	}
}

// TestALongFrameThatDoesNotComeTakesNoMemory announces 4 MiB and sends none.
func TestALongFrameThatDoesNotComeTakesNoMemory(t *testing.T) {
	header, err := appendFrame(nil, kindLog, nil)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(header[8:], maxFrame)
	f := frames{r: bytes.NewReader(header)}
	if _, _, err := f.next(); err == nil {
		t.Error("no error")
	}
	if cap(f.buf) > 128<<10 {
		t.Errorf("%d bytes taken for a frame that never came", cap(f.buf))
	}
}
