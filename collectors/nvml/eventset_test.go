//go:build linux && cgo

package nvml

import (
	"errors"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"
)

// lacking are the symbols that a library lacks.
type lacking []string

func (l lacking) has(symbol string) bool { return !slices.Contains(l, symbol) }

// mockedEvents is a GPU with those event types, an event set, and what was done
// with them.
type mockedEvents struct {
	types      uint64
	typesCode  nvml.Return
	createCode nvml.Return
	register   map[uint64]nvml.Return // by type

	registered []uint64
	freed      int
	waits      []mockedWait
}

type mockedWait struct {
	data nvml.EventData
	code nvml.Return
}

func (m *mockedEvents) open(l lacking) (eventSet, error) {
	set := &mock.EventSet{
		FreeFunc: func() nvml.Return { m.freed++; return nvml.SUCCESS },
		WaitFunc: func(timeout uint32) (nvml.EventData, nvml.Return) {
			if timeout != 0 || len(m.waits) == 0 {
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}
			w := m.waits[0]
			m.waits = m.waits[1:]
			return w.data, w.code
		},
	}
	api := &mock.Interface{EventSetCreateFunc: func() (nvml.EventSet, nvml.Return) { return set, m.createCode }}
	gpu := &mock.Device{
		GetSupportedEventTypesFunc: func() (uint64, nvml.Return) { return m.types, m.typesCode },
		RegisterEventsFunc: func(types uint64, _ nvml.EventSet) nvml.Return {
			m.registered = append(m.registered, types)
			return m.register[types]
		},
	}
	return openEvents(l, api, gpu)
}

func TestOpenEvents(t *testing.T) {
	const xid, mig = nvml.EventTypeXidCriticalError, nvml.EventMigConfigChange
	for _, tt := range []struct {
		name       string
		mocked     mockedEvents
		lacking    lacking
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
		{name: "an old library", mocked: mockedEvents{types: xid}, lacking: lacking{"nvmlEventSetWait_v2"}, err: errNoEvents},
	} {
		set, err := tt.mocked.open(tt.lacking)
		if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("%s: got error %v, want %v", tt.name, err, tt.err)
		}
		if diff := cmp.Diff(tt.registered, tt.mocked.registered); diff != "" {
			t.Errorf("%s: registered for (-want +got):\n%s", tt.name, diff)
		}
		if tt.mocked.freed != tt.freed {
			t.Errorf("%s: %d event sets were freed, want %d", tt.name, tt.mocked.freed, tt.freed)
		}
		if err == nil {
			set.close()
			if tt.mocked.freed != tt.freed+1 {
				t.Errorf("%s: close does not free the event set", tt.name)
			}
		}
	}
}

func TestNextEvent(t *testing.T) {
	m := &mockedEvents{types: nvml.EventTypeAll, waits: []mockedWait{
		{nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 79, GpuInstanceId: noInstance, ComputeInstanceId: noInstance}, nvml.SUCCESS},
		{nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 31, GpuInstanceId: 3}, nvml.SUCCESS},
		{nvml.EventData{EventType: nvml.EventMigConfigChange}, nvml.SUCCESS},
		{nvml.EventData{EventType: nvml.EventTypeClock}, nvml.SUCCESS},
		{nvml.EventData{}, nvml.ERROR_TIMEOUT},
		{nvml.EventData{}, nvml.ERROR_GPU_IS_LOST},
	}}
	set, err := m.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer set.close()
	for i, want := range []heardEvent{
		{xidEvent, event{code: 79, gi: noInstance, ci: noInstance}}, {xidEvent, event{code: 31, gi: 3}}, {kind: migEvent}, {kind: otherEvent}, {},
	} {
		if got, err := set.next(); got != want || err != nil {
			t.Errorf("event %d is %+v, %v, want %+v", i, got, err, want)
		}
	}
	if _, err := set.next(); !errors.Is(err, nvml.ERROR_GPU_IS_LOST) {
		t.Errorf("event of a lost GPU: got error %v", err)
	}
}
