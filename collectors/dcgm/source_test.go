//go:build linux && cgo

package dcgm

import (
	"errors"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/collector"
)

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
	if got["dcgmEntitiesGetLatestValues"] != 7 || got["dcgmGetValuesSince_v2"] != 1 { // of values, of XIDs, and once of what shows that the engine lives
		t.Errorf("calls: %v", got)
	}
}
