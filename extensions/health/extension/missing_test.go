package extension

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/extensions/health"
	"warpgauge/extensions/health/pci"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// machine is a node with three H100 on its bus and its own clock.
type machine struct {
	*testing.T
	fakeEngine
	boards   []pci.Board
	noBus    error
	unloaded bool
	now      time.Time
	watch    *health.Watch
	missing  *missing
}

func (m *machine) Boards() ([]pci.Board, error) { return m.boards, m.noBus }
func (m *machine) Module(*field.Vendor) bool    { return !m.unloaded }

func newMachine(t *testing.T, expected int) *machine {
	m := &machine{T: t, now: time.Now()}
	for bus, slot := range map[uint8]string{0x18: "5", 0x3b: "7", 0x4c: ""} {
		m.boards = append(m.boards, pci.Board{Address: pci.Address{Bus: bus}, Vendor: field.VendorNVIDIA, Driver: "nvidia", Slot: slot})
	}
	slices.SortFunc(m.boards, func(a, b pci.Board) int { return int(a.Address.Bus) - int(b.Address.Bus) })
	board := &events.Board{}
	m.watch = health.New(health.Options{Rows: rows.New(&view.Board{}, nil), Status: m.Status, Rules: health.Table(), Board: board, Logger: zap.NewNop()})
	m.missing = &missing{engine: m, bus: m, expected: expected, hidden: map[*field.Vendor]bool{}, verdicts: board, observe: m.watch.Observe}
	return m
}

// serve makes a collector serve the GPUs with these bus numbers; 0 means a GPU without an address.
func (m *machine) serve(buses ...uint8) {
	c := session.CollectorStatus{Name: "nvml", Up: true}
	for i, b := range buses {
		d := collector.Device{ID: fmt.Sprint("GPU-", b, ".", i), GPU: fmt.Sprint(i), Level: field.GPU}
		if b != 0 {
			d.ID, d.PCIBusID = fmt.Sprint("GPU-", b), pci.Address{Bus: b}.String()
		}
		c.Devices = append(c.Devices, session.DeviceStatus{Device: d, LastSample: m.now})
	}
	m.status = []session.CollectorStatus{c}
}

// down stops the collector.
func (m *machine) down() {
	m.status = []session.CollectorStatus{{Name: "nvml", Cause: session.CauseNotLoaded}}
}

func (m *machine) pass(d time.Duration) {
	for end := m.now.Add(d); m.now.Before(end); m.now = m.now.Add(time.Second) {
		if int(end.Sub(m.now).Seconds())%int(scanInterval.Seconds()) == 0 {
			m.missing.compare(m.now)
		}
		m.watch.Sync(m.now)
	}
}

// want compares the metric after a delay.
func (m *machine) want(what string, after time.Duration, series ...string) {
	m.Helper()
	m.pass(after)
	r := prometheus.NewRegistry()
	r.MustRegister(m.missing)
	families := testkit.Get(r.Gather())(m)
	var got []string
	for _, f := range families {
		for _, s := range f.GetMetric() {
			text := ""
			for _, l := range s.GetLabel() {
				text += l.GetValue() + " "
			}
			got = append(got, strings.Join(strings.Fields(text+fmt.Sprint(s.GetGauge().GetValue())), " "))
		}
	}
	slices.Sort(got)
	slices.Sort(series)
	testkit.Equal(m, what, series, got)
}

const none, known = "pci 0", "last_known 0"

// TestMissing: a GPU on the bus that no collector serves for two minutes is missing, with its slot, until it is served.
func TestMissing(t *testing.T) {
	m := newMachine(t, 0)
	m.serve(0x3b, 0x4c)
	m.want("not yet", time.Minute, none, known)
	m.want("missing", 2*time.Minute, "pci 00000000:18:00.0 5 1", known)
	m.down()
	m.want("its collector starts again", 3*time.Minute, "pci 00000000:18:00.0 5 1", known)
	m.serve(0x3b, 0x4c)
	m.boards[0].Driver = ""
	m.want("no driver is bound", time.Minute, "pci 00000000:18:00.0 5 1", known)
	if v := m.missing.verdicts.Load().Verdicts; len(v) != 3 || v[2].Reason != "missing" || !strings.HasSuffix(v[2].Text, "(slot: 5, driver: none), and no collector finds it") {
		t.Errorf("verdicts %+v", v)
	}
	m.boards[0].Driver = "nvidia"
	m.serve(0x18, 0x3b, 0x4c)
	m.want("it is back", time.Minute, none, known)
	m.serve(0x3b, 0x4c)
	m.want("a GPU that was served before", 3*time.Minute, "pci 00000000:18:00.0 5 1", known)
	m.boards = m.boards[1:]
	m.want("it leaves the bus", time.Minute, none, "last_known 00000000:18:00.0 1")
	m.want("it is written off", 8*24*time.Hour, none, known)
}

// TestNotMissing: GPUs that no collector needs to serve are not missing.
func TestNotMissing(t *testing.T) {
	f := func(what string, do func(m *machine, b *pci.Board), want ...string) {
		t.Helper()
		m := newMachine(t, 0)
		m.serve(0x3b, 0x4c)
		do(m, &m.boards[0])
		m.want(what, 12*time.Minute, want...)
	}
	f("given to a virtual machine", func(_ *machine, b *pci.Board) { b.Driver = "vfio-pci" }, none, known)
	f("hidden from the container, or left out by the driver", func(_ *machine, b *pci.Board) { b.Hidden = true }, none, known)
	f("the display without a driver", func(_ *machine, b *pci.Board) { b.Driver, b.Display = "", true }, none, known)
	f("a virtual function", func(_ *machine, b *pci.Board) { b.Virtual = true }, none, known)
	f("a switch", func(_ *machine, b *pci.Board) { b.Switch = true }, none, known)
	f("deselected, or hidden from the container", func(m *machine, _ *pci.Board) { m.missing.hidden[field.VendorNVIDIA] = true }, known)
	f("the driver is not loaded", func(m *machine, _ *pci.Board) { m.unloaded = true; m.serve() }, none)
	f("of another machine's host engine", func(m *machine, _ *pci.Board) { m.serve(0xaa, 0xab) })
	f("no bus in the container", func(m *machine, _ *pci.Board) { m.boards, m.noBus = nil, errors.New("no bus") })
	f("another vendor's, which no collector is up for", func(_ *machine, b *pci.Board) { b.Vendor, b.Driver = field.VendorAMD, "amdgpu" }, none, known)
	f("taken off the bus before a driver served it", func(m *machine, _ *pci.Board) {
		m.pass(5 * time.Minute)
		m.boards = m.boards[1:]
	}, none, known)
}

// TestExpected: the flag counts missing GPUs that no other check finds.
func TestExpected(t *testing.T) {
	m := newMachine(t, 8)
	m.serve(0x18, 0x3b, 0x4c)
	m.want("3 of 8", 3*time.Minute, none, known, "flag 5")
	m.serve(0x18, 0x3b, 0x4c, 0, 0, 0, 0, 0)
	m.want("5 more without an address", time.Minute, none, known, "flag 0")
	m.serve(0x18, 0x3b, 0, 0, 0, 0, 0)
	m.want("one of them is on the bus", 3*time.Minute, "pci 00000000:4C:00.0 1", known, "flag 0")
	m.boards = m.boards[:2]
	m.want("it leaves the bus", 3*time.Minute, "last_known 00000000:4C:00.0 1", "flag 0", none)
	m.down()
	m.want("nothing is served at all", 3*time.Minute, "last_known 00000000:4C:00.0 1", "flag 7")
}
