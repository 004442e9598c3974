// Package collectortest is the conformance suite of the collector contract. Every collector runs it from its own tests:
//
//	func TestConformance(t *testing.T) {
//		collectortest.Run(t, collectortest.Harness{Name: "fake", New: newRig})
//	}
//
// The suite knows nothing about a vendor. The Rig has hooks that change the hardware (lose a board, make a call hang).
// Subtests whose hook is nil are skipped with a message. Subtests run one after another, because the leak checks cover
// the whole process.
package collectortest

import (
	"context"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Harness describes the tested collector.
type Harness struct {
	// Name is the expected result of Collector.Name.
	Name string
	// New returns real or simulated hardware without faults for one subtest. It cleans up with tb.Cleanup.
	New func(tb testing.TB) Rig
	// Fields is the list for Open. The zero List means Fields() with two fields as histograms.
	Fields field.List
	// Patience is how long the suite waits for a call before it reports that the call
	// hangs; 0 means eventually.Patience. Only failing runs wait that long.
	Patience time.Duration
	// Allocates says that the library's Go binding allocates in its calls.
	Allocates bool
}

// Rig is the hardware of one subtest. Devices are named by collector.Device.ID.
type Rig struct {
	// Factory makes collectors that see this hardware.
	Factory collector.Factory

	// LoseDevice takes a board off the bus, RestoreDevice brings it back.
	LoseDevice, RestoreDevice func(id string)
	// Hang makes every Sample that touches the board block until release.
	Hang func(id string) (release func())
	// ChangeColumns makes open sources outdated, for example by adding or removing a board, or by changing MIG instances.
	ChangeColumns func()
	// FailOpen makes Open fail until restore.
	FailOpen func() (restore func())
	// RaiseEvent raises one event of a device's event field, for example an XID.
	RaiseEvent func(id string, f field.ID, value float64)
}

// Run runs every check as a subtest.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) { c.run(newSubtest(t, h.withDefaults())) })
	}
}

// subtest is the environment of a check: the reporter, the tested collector and its hardware.
type subtest struct {
	testing.TB
	h   Harness
	rig Rig
}

func newSubtest(tb testing.TB, h Harness) *subtest {
	tb.Helper()
	return &subtest{tb, h, h.New(tb)}
}

// check is one property of the contract. It reports only through its subtest, so
// that the suite's own tests can observe its failure.
type check struct {
	name string
	run  func(tb *subtest)
}

func checks() []check {
	return []check{
		{"name", checkName},
		{"device identity", checkDevices},
		{"identity is stable", checkStable},
		{"facts", checkFacts},
		{"columns", checkColumns},
		{"unknown field", checkUnknownField},
		{"reasons", checkReasons},
		{"reasons of blanks", checkBlanks},
		{"fixed and shared", checkFixed},
		{"due cells are filled", checkDueFilled},
		{"other cells keep their value", checkKept},
		{"values", checkValues},
		{"events", checkEvents},
		{"event raised", checkEventRaised},
		{"ownership", checkOwnership},
		{"allocations", checkAllocations},
		{"open is cancelled", checkCancel},
		{"open is cancelled midway", checkCancelMidway},
		{"open fails", checkFailOpen},
		{"close twice", checkCloseTwice},
		{"open again", checkAgain},
		{"rescan", checkRescan},
		{"leaks", checkLeaks},
		{"device lost", checkLost},
		{"device hangs", checkHang},
		{"columns changed", checkChanged},
	}
}

func (h Harness) withDefaults() Harness {
	if len(h.Fields.Fields) == 0 {
		h.Fields = withHistograms(Fields())
	}
	if h.Patience == 0 {
		h.Patience = eventually.Patience
	}
	return h
}

// open opens a collector.
func (tb *subtest) open() (collector.Collector, []collector.Source) {
	tb.Helper()
	return tb.openFor(tb.h.Fields)
}

// openFor opens a collector and closes it when the subtest ends. To open another one
// before that, call closeNow first: only one may be open at a time.
func (tb *subtest) openFor(fields field.List) (collector.Collector, []collector.Source) {
	tb.Helper()
	c := tb.rig.Factory()
	ctx, cancel := context.WithTimeout(context.Background(), tb.h.Patience)
	defer cancel()
	sources, err := c.Open(ctx, fields)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.TB.Cleanup(func() { closeNow(tb, c) })
	if len(sources) == 0 {
		tb.Fatalf("open returned neither a source nor an error")
	}
	return c, sources
}

// closeNow closes a collector before another is opened.
func closeNow(tb testing.TB, c collector.Collector) {
	tb.Helper()
	if err := c.Close(); err != nil {
		tb.Errorf("close: %v", err)
	}
}
