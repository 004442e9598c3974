//go:build linux && cgo

package dcgm

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/collector"
)

// TestReconnect: a lost connection ends the session, and the next Open works.
// Nothing is left of either.
func TestReconnect(t *testing.T) {
	f := func(name string, lose func(*dcgmtest.Engine)) {
		t.Helper()
		e := simulate(t, dcgmtest.Config{GPUs: 2})
		c := open1(t, remote(e), everyKind...)
		c.mustSample(t)
		lose(e)
		for i := range c.sources {
			if err := c.sample(i); !errors.Is(err, collector.ErrColumnsChanged) || !errors.Is(err, collector.ErrNotLoaded) {
				t.Errorf("%s: source %d: %v, want %v for %v", name, i, err, collector.ErrColumnsChanged, collector.ErrNotLoaded)
			}
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: close what is lost: %v", name, err)
		}
		again := open1(t, remote(e), everyKind...)
		again.mustSample(t)
		if err := again.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
		if diff := cmp.Diff(dcgmtest.Counts{Inits: 1}, e.Counts()); diff != "" {
			t.Errorf("%s: left over (-want +got):\n%s", name, diff)
		}
	}
	f("engine restarted", func(e *dcgmtest.Engine) { e.Restart() })
	f("engine away for a while", func(e *dcgmtest.Engine) { e.Stop(-21); e.Start() })
}

// TestStopped: while the engine is away Open says so each time and takes nothing.
func TestStopped(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 1})
	c := open1(t, remote(e), everyKind...)
	e.Stop(-21)
	if err := c.sample(0); !errors.Is(err, collector.ErrColumnsChanged) {
		t.Errorf("got %v", err)
	}
	for range 3 {
		if _, err := openAs(t, remote(e), everyKind...); !errors.Is(err, collector.ErrNotLoaded) {
			t.Errorf("open: %v", err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(dcgmtest.Counts{Inits: 1}, e.Counts()); diff != "" {
		t.Errorf("left over (-want +got):\n%s", diff)
	}
}

// TestEmbeddedFails: an engine in this process that fails can be started again once
// the collector that has it is closed.
func TestEmbeddedFails(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, embedded(e), temperature)
	e.Restart()
	if err := c.sample(0); !errors.Is(err, collector.ErrColumnsChanged) {
		t.Errorf("sample: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	open1(t, embedded(e), temperature).mustSample(t)
}

// TestTimeout: a call that the library gives up is an error of the source, which
// continues when the engine does.
func TestTimeout(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), temperature)
	e.Return("dcgmEntitiesGetLatestValues", -11)
	if err := c.sample(0); err == nil || errors.Is(err, collector.ErrColumnsChanged) {
		t.Errorf("got %v, want an error that asks for no new Open", err)
	}
	e.Return("dcgmEntitiesGetLatestValues", 0)
	c.mustSample(t)
}

// TestCalls: what the library's calls cost is reported.
func TestCalls(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 8})
	c := open1(t, remote(e), temperature, xidCount)
	e.XID(0, 13)
	for range 3 {
		c.mustSample(t)
	}
	got := map[string]uint64{}
	for _, cost := range c.sources[0].(collector.CallMeter).Calls() {
		got[cost.Call] += cost.Count
		if cost.Time <= 0 {
			t.Errorf("%s took %v", cost.Call, cost.Time)
		}
	}
	if got["dcgmEntitiesGetLatestValues"] != 6 || got["dcgmGetMultipleValuesForField"] != 1 { // of values and of XIDs
		t.Errorf("calls: %v", got)
	}
}
