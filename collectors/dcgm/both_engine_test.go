//go:build linux && cgo

package dcgm

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
)

// gpuKinds ask for something of each part of the source of GPUs.
var gpuKinds = []string{
	temperature, power, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_NVLINK_GET_STATE", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
	xidCount, peersName, healthName, "DCGM_EXP_CLOCK_EVENTS_COUNT", "label DCGM_FI_DRIVER_VERSION",
}

// TestEngineEndsAndReturns: a lost connection is reported by every source, an engine
// that is not there is an error each time, and with the next one all is well. Nothing is
// left of either.
func TestEngineEndsAndReturns(t *testing.T) {
	for name, h := range map[string]hardware{"Unix socket": {gpus: 2}, "TCP": {gpus: 2, tcp: true}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				lost := started(t, m, gpuKinds...)
				for range 2 {
					m.stop()
					for i := range lost.sources {
						lost.until(t, i, "a lost connection", func(err error) bool {
							return errors.Is(err, collector.ErrColumnsChanged) && errors.Is(err, collector.ErrNotLoaded)
						})
					}
					if err := lost.Close(); err != nil {
						t.Errorf("close what is lost: %v", err)
					}
					o := m.options()
					o.ConnectTimeout = 100 * time.Millisecond
					for range 3 {
						if _, err := openAs(t, o, gpuKinds...); !errors.Is(err, collector.ErrNotLoaded) || !strings.Contains(err.Error(), "start nv-hostengine") {
							t.Errorf("open without an engine: %v", err)
						}
					}
					m.start()
					lost = started(t, m, gpuKinds...)
					lost.mustSample(t)
				}
				if err := lost.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				nothingLeft(t, m)
			})
		})
	}
}

// TestEngineFallsSilent: a sample waits for an engine that does not answer, and all
// is well when the engine continues.
func TestEngineFallsSilent(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		c := started(t, m, temperature, power)
		release := m.silence()
		sampled := make(chan error, 1)
		go func() { sampled <- c.sample(0) }()
		select {
		case err := <-sampled:
			t.Fatalf("a sample of an engine that does not answer: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		release()
		if err := <-sampled; err != nil && !errors.Is(err, collector.ErrStalled) {
			t.Errorf("the sample that waited: %v", err)
		}
		c.until(t, 0, "values again", func(err error) bool { return err == nil })
	})
}

// TestGroupsGivenBack: an engine has 64 groups and 64 field groups for all its clients,
// and those of collectors that were closed are free again.
func TestGroupsGivenBack(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		for taken := 0; taken <= 64; {
			c := open1(t, m.options(), gpuKinds...)
			taken += len(c.readings(0).blocks)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		started(t, m, power).keepsReading(t, m, []string{power})
	})
}

// TestWaysToAnEngine: each way to write where it is leads there.
func TestWaysToAnEngine(t *testing.T) {
	f := func(h hardware, write func(address string) string) {
		onBoth(t, h, func(t *testing.T, m machine) {
			o := m.options()
			o.Engine = write(o.Engine)
			c := open1(t, o, temperature)
			c.until(t, 0, "a temperature", func(error) bool { return c.has(t, nvmltest.UUID(0), temperature) })
		})
	}
	f(hardware{gpus: 1, tcp: true}, func(a string) string { return "tcp://" + a })
	f(hardware{gpus: 1, tcp: true}, func(a string) string { return strings.Replace(a, "127.0.0.1", "localhost", 1) })
	f(hardware{gpus: 1}, func(a string) string {
		if filepath.IsAbs(a) {
			return "unix://" + a
		}
		return a
	})
}

// TestNothingToRead: an engine without GPUs is an error that callers know.
func TestNothingToRead(t *testing.T) {
	onBoth(t, hardware{gpus: 1}, func(t *testing.T, m machine) {
		m.remove(0)
		if _, err := openAs(t, m.options(), temperature); !errors.Is(err, collector.ErrNoDevices) {
			t.Errorf("got %v, want %v", err, collector.ErrNoDevices)
		}
		nothingLeft(t, m)
	})
}
