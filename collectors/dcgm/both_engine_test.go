//go:build linux && cgo

package dcgm

import (
	"context"
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

// TestEngineEndsAndReturns: a lost connection is told by every source, an engine that
// is not there is an error each time, and with the next one all is well, beside the
// collector that lost its own. Nothing is left of either.
func TestEngineEndsAndReturns(t *testing.T) {
	for name, h := range map[string]hardware{"Unix socket": {gpus: 2}, "TCP": {gpus: 2, tcp: true}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				lost := settled(t, m, gpuKinds...)
				for range 2 {
					m.stop()
					for i := range lost.sources {
						lost.until(t, i, "a lost connection", func(err error) bool {
							return errors.Is(err, collector.ErrColumnsChanged) && errors.Is(err, collector.ErrNotLoaded)
						})
					}
					o := m.options()
					o.ConnectTimeout = 100 * time.Millisecond
					for range 3 {
						if _, err := openAs(t, o, gpuKinds...); !errors.Is(err, collector.ErrNotLoaded) || !strings.Contains(err.Error(), "start nv-hostengine") {
							t.Errorf("open without an engine: %v", err)
						}
					}
					m.start()
					again := settled(t, m, gpuKinds...)
					if err := lost.Close(); err != nil {
						t.Errorf("close what is lost: %v", err)
					}
					again.mustSample(t)
					lost = again
				}
				if err := lost.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				nothingLeft(t, m)
			})
		})
	}
}

// TestEngineFallsSilent: an engine that answers nobody holds up its source alone; Open
// and Rescan end when their context does; and all goes on when the engine does.
func TestEngineFallsSilent(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		c := settled(t, m, temperature, power)
		release := m.silence()
		sampled := make(chan error, 1)
		go func() { sampled <- c.sample(0) }()
		for name, call := range map[string]func(context.Context) error{
			"open": func(ctx context.Context) error {
				_, err := New(m.options()).Open(ctx, list(t, temperature))
				return err
			},
			"rescan": func(ctx context.Context) error { _, err := c.Rescan(ctx); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
		select {
		case err := <-sampled:
			t.Errorf("a sample of an engine that does not answer: %v", err)
			sampled <- err
		default:
		}
		release()
		if err := <-sampled; err != nil && !errors.Is(err, collector.ErrStalled) {
			t.Errorf("the sample that waited: %v", err)
		}
		c.until(t, 0, "values again", func(err error) bool { return err == nil })
		settled(t, m, temperature, power)
	})
}

// TestOneConnection: what collectors share stays while one of them has it, and the
// engine of this process can be started again.
func TestOneConnection(t *testing.T) {
	for name, h := range map[string]hardware{"embedded": {gpus: 2, embedded: true}, "remote": {gpus: 2}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				for range 3 {
					first := settled(t, m, temperature)
					second := settled(t, m, power)
					if first.session != second.session {
						t.Error("two collectors have two connections")
					}
					if err := first.Close(); err != nil {
						t.Error(err)
					}
					second.goesOn(t, m, []string{power})
					for range 2 {
						if err := second.Close(); err != nil {
							t.Error(err)
						}
					}
					nothingLeft(t, m)
				}
			})
		})
	}
}

// TestGroupsGivenBack: an engine has 64 groups and 64 field groups for all its clients,
// and a connection that lives on takes no more of them with each collector.
func TestGroupsGivenBack(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		holder := settled(t, m, power)
		for taken := 0; taken <= 64; {
			c := open1(t, m.options(), gpuKinds...)
			taken += len(c.readings(0).blocks)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		holder.goesOn(t, m, []string{power})
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
