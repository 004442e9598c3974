//go:build linux && cgo

package nvml

import (
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// fakeEvents is an event set with the test's events. Its open returns the set itself.
type fakeEvents struct {
	waiting []nvml.EventData
	fail    nvml.Return // returned by Wait
	refuse  error       // returned by open
	opened  int
	freed   int
}

func (s *fakeEvents) open() (eventSet, error) {
	if s.refuse != nil {
		return nil, s.refuse
	}
	s.opened++
	return s, nil
}

func (s *fakeEvents) Wait(timeout uint32) (nvml.EventData, nvml.Return) {
	switch {
	case timeout != 0:
		panic("an event is waited for")
	case s.fail != nvml.SUCCESS:
		return nvml.EventData{}, s.fail
	case len(s.waiting) == 0:
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
	e := s.waiting[0]
	s.waiting = s.waiting[1:]
	return e, nvml.SUCCESS
}

func (s *fakeEvents) Free() nvml.Return {
	s.freed++
	return nvml.SUCCESS
}

func (s *fakeEvents) xid(code uint64, gi, ci uint32) {
	s.waiting = append(s.waiting, nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: code, GpuInstanceId: gi, ComputeInstanceId: ci})
}

func readings(ids ...field.ID) []field.Reading {
	var out []field.Reading
	for _, id := range ids {
		d, ok := field.ByID(id)
		if !ok {
			panic("no such field")
		}
		out = append(out, field.Reading{Desc: d, Default: true})
	}
	return out
}

// fakeXIDs returns a GPU's XIDs that reads from the event set.
func fakeXIDs(t *testing.T, s *fakeEvents, log *zap.Logger) *xids {
	t.Helper()
	x := testkit.Get(openXIDs(s.open, log, (*costs)(nil).meter("")))(t)
	return x
}

// fakeEventsPart returns the events part of a GPU with two MIG instances, 3/0 and 5/0.
func fakeEventsPart(t *testing.T, s *fakeEvents, log *zap.Logger) *eventsPart {
	t.Helper()
	g := &gpu{instances: []instance{{gi: 3, ci: 0}, {gi: 5, ci: 0}}}
	return newEventsPart(fakeXIDs(t, s, log), g, readings(field.XIDErrors, field.XIDEvent), unexplained())
}

// sampled holds a row's last XIDs and events, by device.
type sampled struct{ Last, Events map[int][]float64 }

// sampleEvents samples all columns.
func sampleEvents(t *testing.T, p *eventsPart) (sampled, error) {
	t.Helper()
	row, err := sampleAllOf(p)
	out := sampled{map[int][]float64{}, map[int][]float64{}}
	for i, c := range p.columns() {
		to := out.Events
		if c.Field == field.XIDErrors {
			to = out.Last
		}
		if !math.IsNaN(row[i]) && c.Field != field.XIDsSince {
			to[c.Device] = append(to[c.Device], row[i])
		}
	}
	return out, err
}

// wantEvents compares the row. While an event set is open, a device without a last XID must have 0.
func wantEvents(t *testing.T, when string, p *eventsPart, want sampled) {
	t.Helper()
	got, err := sampleEvents(t, p)
	testkit.ErrorIf(t, err != nil, "%s: %v", when, err)
	for _, m := range []*map[int][]float64{&want.Last, &want.Events} {
		if *m == nil {
			*m = map[int][]float64{}
		}
	}
	for d := range p.slots {
		if _, last := want.Last[d]; !last && p.set != nil {
			want.Last[d] = []float64{0}
		}
	}
	equal(t, want, got, "%s", when)
}

type byDevice = map[int][]float64

func TestEventsOfARow(t *testing.T) {
	s := &fakeEvents{}
	p := fakeEventsPart(t, s, zap.NewNop())
	wantEvents(t, "before any XID", p, sampled{})

	s.xid(31, noInstance, noInstance)
	row := make([]float64, len(p.columns()))
	must(t, p.sample(row, make([]bool, len(row))))
	testkit.ErrorIf(t, slices.ContainsFunc(row, func(v float64) bool { return v != 0 }), "a sample in which nothing is due wrote %v", row)
	s.xid(13, 3, 0)
	s.xid(43, 5, 7)          // a compute instance that is not a device here
	s.xid(94, 9, 0)          // an unknown instance
	s.xid(45, 3, noInstance) // a whole GPU instance
	last := byDevice{0: {94}, 1: {45}, 2: {43}}
	wantEvents(t, "after five XIDs", p, sampled{last, byDevice{0: {31, 94}, 1: {13, 45}, 2: {43}}})
	wantEvents(t, "one tick later", p, sampled{Last: last})

	for code := range uint64(6) {
		s.xid(100+code, noInstance, noInstance)
	}
	s.xid(109, 3, 0)
	last = byDevice{0: {105}, 1: {109}, 2: {43}}
	wantEvents(t, "the first row of a storm", p, sampled{last, byDevice{0: {100, 101, 102, 103}}})
	wantEvents(t, "the second row of a storm", p, sampled{last, byDevice{0: {104, 105}, 1: {109}}})
	wantEvents(t, "after a storm", p, sampled{Last: last})
	p.close()
	testkit.ErrorIf(t, s.opened != 1 || s.freed != 1, "%d event sets were opened, %d freed, want 1 and 1", s.opened, s.freed)
}

func TestEventsLost(t *testing.T) {
	core, logged := observer.New(zap.WarnLevel)
	s := &fakeEvents{}
	p := fakeEventsPart(t, s, zap.New(core))
	defer p.close()
	const more = 10
	for i := range uint64(maxWaiting + more) {
		s.xid(1+i%3, noInstance, noInstance)
	}
	total := 0
	for range maxWaiting {
		got := testkit.Get(sampleEvents(t, p))(t)
		total += len(got.Events[0])
	}
	var lost uint64
	for _, l := range logged.FilterMessageSnippet("too many XIDs").All() {
		n, _ := l.ContextMap()["lost"].(uint64)
		lost += n
	}
	testkit.ErrorIf(t, total+int(lost) != maxWaiting+more || lost == 0, "rows had %d XIDs and %d are logged to be lost, want %d together", total, lost, maxWaiting+more)
	testkit.Equal(t, "lines about XIDs of 3 codes", 3, logged.FilterMessage("XID").Len())
}

func TestEventsOfMIG(t *testing.T) {
	s := &fakeEvents{}
	p := fakeEventsPart(t, s, zap.NewNop())
	defer p.close()
	s.waiting = append(s.waiting, nvml.EventData{EventType: nvml.EventTypeClock})
	wantEvents(t, "another event", p, sampled{})
	s.waiting = append(s.waiting, nvml.EventData{EventType: nvml.EventMigConfigChange})
	for range 2 {
		_, err := sampleEvents(t, p)
		testkit.ErrorIf(t, !errors.Is(err, collector.ErrColumnsChanged), "sample after a change of the MIG configuration: got %v, want ErrColumnsChanged", err)
	}
}

// TestEventsInterrupted checks that a failed event set is reopened and that the last XID stays.
func TestEventsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.WarnLevel)
		s := &fakeEvents{}
		p := fakeEventsPart(t, s, zap.New(core))
		s.xid(79, noInstance, noInstance)
		wantEvents(t, "before the failure", p, sampled{byDevice{0: {79}}, byDevice{0: {79}}})
		s.fail, s.refuse = nvml.ERROR_UNKNOWN, errors.New("unknown error")
		for range 20 {
			wantEvents(t, "while the event set does not open", p, sampled{Last: byDevice{0: {79}}})
			time.Sleep(30 * time.Second)
		}
		n := logged.FilterMessageSnippet("missing the XIDs").Len()
		testkit.ErrorIf(t, n != 1, "got %d lines about one interruption, want 1: %v", n, logged.All())
		s.fail, s.refuse = nvml.SUCCESS, nil
		time.Sleep(lastPause)
		wantEvents(t, "when it is open again", p, sampled{Last: byDevice{0: {79}}})
		s.xid(31, noInstance, noInstance)
		wantEvents(t, "an XID after that", p, sampled{byDevice{0: {31}}, byDevice{0: {31}}})
		p.close()
		testkit.ErrorIf(t, s.opened != 2 || s.opened != s.freed, "%d event sets were opened and %d freed", s.opened, s.freed)
	})
}

// TestXIDOfALostGPU checks that the row in which a GPU is first reported as lost holds its XID.
func TestXIDOfALostGPU(t *testing.T) {
	events := &fakeEvents{}
	temperature := newStub(map[field.ID]float64{150: 40})
	s := newSource(nil, []collector.Device{{GPU: "0"}}, nil, newEventsPart(fakeXIDs(t, events, zap.NewNop()), &gpu{}, readings(field.XIDEvent), unexplained()), temperature)
	defer s.close()
	row, due := make([]float64, len(s.Columns())), slices.Repeat([]bool{true}, len(s.Columns()))
	f := func(when string, want error, code float64) {
		t.Helper()
		row[1] = math.NaN()
		err := s.Sample(row, due)
		testkit.ErrorIf(t, want == nil && err != nil || !errors.Is(err, want), "%s: got error %v, want %v", when, err, want)
		testkit.ErrorIf(t, row[1] != code && !(math.IsNaN(row[1]) && math.IsNaN(code)), "%s: the event's cell is %v, want %v", when, row[1], code)
	}
	nan := math.NaN()
	f("all is well", nil, nan)
	events.xid(79, noInstance, noInstance)
	temperature.err = collector.ErrDeviceLost
	f("lost", collector.ErrDeviceLost, 79)
	events.waiting = []nvml.EventData{{EventType: nvml.EventMigConfigChange}}
	f("lost, and MIG has changed", collector.ErrDeviceLost, nan)
	temperature.err = errors.New("some call failed")
	f("MIG has changed", collector.ErrColumnsChanged, nan)
}

// mockedEvents is a GPU that supports the given event types. It records the registered ones.
type mockedEvents struct {
	types      uint64
	typesCode  nvml.Return
	createCode nvml.Return
	register   map[uint64]nvml.Return // by type

	registered []uint64
	set        fakeEvents
}

func (m *mockedEvents) open(lacks string) (eventSet, error) {
	api := &mock.Interface{EventSetCreateFunc: func() (nvml.EventSet, nvml.Return) { return &mock.EventSet{FreeFunc: m.set.Free}, m.createCode }}
	gpu := &mock.Device{
		GetSupportedEventTypesFunc: func() (uint64, nvml.Return) { return m.types, m.typesCode },
		RegisterEventsFunc: func(types uint64, _ nvml.EventSet) nvml.Return {
			m.registered = append(m.registered, types)
			return m.register[types]
		},
	}
	return openEvents(func(symbol string) bool { return symbol != lacks }, api, gpu)
}

func TestOpenEvents(t *testing.T) {
	const xid, mig = nvml.EventTypeXidCriticalError, nvml.EventMigConfigChange
	x, err := openXIDs((&fakeEvents{refuse: errNoEvents}).open, zap.NewNop(), nil)
	testkit.ErrorIf(t, x != nil || !errors.Is(err, errNoEvents), "a GPU without events: %v, %v", x, err)
	for _, tt := range []struct {
		name       string
		mocked     mockedEvents
		lacks      string
		err        error
		registered []uint64
		freed      int
	}{
		{name: "all types", mocked: mockedEvents{types: nvml.EventTypeAll}, registered: []uint64{xid, mig}},
		{name: "no MIG", mocked: mockedEvents{types: xid | nvml.EventTypeClock}, registered: []uint64{xid}},
		{name: "MIG after all not", mocked: mockedEvents{types: xid | mig, register: map[uint64]nvml.Return{mig: nvml.ERROR_NOT_SUPPORTED}}, registered: []uint64{xid, mig}},
		{name: "no XIDs", mocked: mockedEvents{types: nvml.EventTypePState}, err: errNoEvents},
		{name: "XIDs after all not", mocked: mockedEvents{types: xid, register: map[uint64]nvml.Return{xid: nvml.ERROR_NOT_SUPPORTED}}, registered: []uint64{xid}, err: errNoEvents, freed: 1},
		{name: "no events", mocked: mockedEvents{typesCode: nvml.ERROR_NOT_SUPPORTED}, err: errNoEvents},
		{name: "lost", mocked: mockedEvents{typesCode: nvml.ERROR_GPU_IS_LOST}, err: nvml.ERROR_GPU_IS_LOST},
		{name: "no memory", mocked: mockedEvents{types: xid, createCode: nvml.ERROR_MEMORY}, err: nvml.ERROR_MEMORY},
		{name: "lost meanwhile", mocked: mockedEvents{types: xid, register: map[uint64]nvml.Return{xid: nvml.ERROR_GPU_IS_LOST}}, registered: []uint64{xid}, err: nvml.ERROR_GPU_IS_LOST, freed: 1},
		{name: "lost a moment later", mocked: mockedEvents{types: xid | mig, register: map[uint64]nvml.Return{mig: nvml.ERROR_UNKNOWN}}, registered: []uint64{xid, mig}, err: nvml.ERROR_UNKNOWN, freed: 1},
		{name: "an old library", mocked: mockedEvents{types: xid}, lacks: "nvmlEventSetWait_v2", err: errNoEvents},
	} {
		_, err := tt.mocked.open(tt.lacks)
		testkit.ErrorIf(t, !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil), "%s: got error %v, want %v", tt.name, err, tt.err)
		equal(t, tt.registered, tt.mocked.registered, "%s: registered for", tt.name)
		testkit.Equal(t, tt.name+": event sets that were freed", tt.freed, tt.mocked.set.freed)
	}
}

// TestXIDsSince checks that the time restarts when the event set is opened, when it is reopened, and when too many
// XIDs arrive at once.
func TestXIDsSince(t *testing.T) {
	s := &fakeEvents{}
	p := fakeEventsPart(t, s, zap.NewNop())
	clock := time.Unix(1_700_000_000, 0)
	p.now = func() time.Time { return clock }
	since := func() time.Time {
		t.Helper()
		row := testkit.Get(sampleAllOf(p))(t)
		if math.IsNaN(row[p.since]) {
			return time.Time{}
		}
		return time.UnixMicro(int64(row[p.since]))
	}
	opened := since()
	clock = clock.Add(time.Minute)
	got := since()
	testkit.ErrorIf(t, opened.IsZero() || !got.Equal(opened), "after a minute: since %v, want %v", got, opened)
	s.fail = nvml.ERROR_UNKNOWN
	got = since()
	testkit.ErrorIf(t, !got.IsZero(), "without an event set: since %v", got)
	s.fail = nvml.SUCCESS
	clock = clock.Add(time.Minute)
	got = since()
	testkit.ErrorIf(t, !got.Equal(clock), "opened again: since %v, want %v", got, clock)
	clock = clock.Add(time.Minute)
	for range maxWaiting + 1 {
		p.record(xid{13, noInstance, noInstance})
	}
	got = since()
	testkit.ErrorIf(t, !got.Equal(clock), "too many: since %v, want %v", got, clock)
}
