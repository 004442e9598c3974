//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// TestLinks checks that existing links are devices if the list has link fields.
func TestLinks(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1, Lines: []string{"gpu * nvlink.crc.flit[3] 44", "gpu * nvlink.state[7] 0"}})
	plain := openReadings(t, n, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_NVLINK_BANDWIDTH_L3")[0]
	testkit.Equal(t, "devices for a list without fields of links", 1, len(plain.Devices()))
	s := openReadings(t, n, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_NVLINK_GET_STATE", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L3")[0]
	s.want(t, "the field with the link in its name", 0, map[string]float64{"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L3": 44})
	devices := s.Devices()
	testkit.FatalIf(t, len(devices) != 19, "%d devices, want a board and 18 links", len(devices))
	link := devices[4]
	if link.Level != field.Link || link.Label("nvlink") != "3" || link.Parent != devices[0].ID || link.ID != devices[0].ID+"/link3" || link.GPU != "0" || link.UUID != devices[0].UUID {
		t.Errorf("link 3: %+v", link)
	}
	s.want(t, "link 3", 4, map[string]float64{"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL": 44, "DCGM_FI_DEV_NVLINK_GET_STATE": 1, "DCGM_FI_DEV_GPU_TEMP": noColumn})
	s.want(t, "link 7", 8, map[string]float64{"DCGM_FI_DEV_NVLINK_GET_STATE": 0})
}

// TestAllocations checks that a tick allocates no more than go-nvml does: a few times per call.
func TestAllocations(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	s := openReadings(t, n, tabled()...)[0]
	testkit.ErrorIf(t, len(s.Columns()) < 300, "only %d columns", len(s.Columns()))
	must(t, s.sample())
	n.ResetCalls()
	must(t, s.sample())
	calls := 0
	for _, c := range n.AllCalls() {
		calls += int(c)
	}
	if got := testing.AllocsPerRun(100, func() {
		must(t, s.Sample(s.row, s.due))
	}); got > 3*float64(calls) {
		t.Errorf("%v allocations a sample of %d columns in %d calls", got, len(s.Columns()), calls)
	}
}

// TestHangs checks that a GPU that hangs, when it is found or when it is bound, does not delay the others, is identified,
// and is noticed when it answers.
func TestHangs(t *testing.T) {
	for _, function := range []string{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPowerUsage"} {
		n := nvmltest.New(t, nvmltest.Config{GPUs: 3})
		release := n.Hang(1, function)
		defer release()
		o := at(n)
		o.Patience = 500 * time.Millisecond
		c, sources := openList(t, o, listOf(t, csvOf([]string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"})))
		for i, row := range sampleAll(t, []collector.Source{sources[0], sources[2]}) {
			testkit.Equal(t, fmt.Sprintf("%s: columns of well GPU %d", function, i), 2, len(row))
		}
		err := sources[1].Sample(nil, nil)
		testkit.ErrorIf(t, !errors.Is(err, errHangs) || len(sources[1].Columns()) != 0, "%s: the GPU that hangs: %v, %d columns", function, err, len(sources[1].Columns()))
		equal(t, []collector.Device{h100(1)}, sources[1].Devices(), "%s: the GPU that hangs", function)
		sources[1].(*silentSource).since = time.Now().Add(-attaching)
		if err := sources[1].Sample(nil, nil); !errors.Is(err, collector.ErrHung) || !errors.Is(err, errHangs) {
			t.Errorf("%s: after %v: %v", function, attaching, err)
		}
		release()
		quick := n.Delay(1, "nvmlDeviceGetHandleByIndex_v2", 2*brisk)
		eventually.True(t, "the GPU that is slow", func() bool {
			return strings.Contains(sources[1].Sample(nil, nil).Error(), "GPU 1 is slow: a call takes ")
		})
		quick()
		eventually.True(t, "the GPU that hung", func() bool { return errors.Is(sources[1].Sample(nil, nil), collector.ErrColumnsChanged) })
		must(t, c.Close())
	}
}

// TestSourceOfParts checks that a part's error only costs its own cells, unless it concerns the whole GPU.
func TestSourceOfParts(t *testing.T) {
	plain := errors.New("a part's own")
	f := func(err error, rest bool) {
		t.Helper()
		first, failing, last := newStub(map[field.ID]float64{150: 1}), newStub(map[field.ID]float64{150: 2}), newStub(map[field.ID]float64{150: 3})
		failing.err = err
		s := newSource(nil, []collector.Device{{GPU: "3"}}, nil, nil, first, nil, failing, last)
		row := []float64{nan, nan, nan}
		got := s.Sample(row, []bool{true, true, true})
		testkit.ErrorIf(t, !errors.Is(got, err), "got %v, want %v", got, err)
		testkit.ErrorIf(t, row[0] != 1 || (row[2] == 3) != rest, "%v: row %v", err, row)
		if s.close(); first.closed+failing.closed+last.closed != 3 {
			t.Error("not every part is closed")
		}
	}
	f(nil, true)
	f(plain, true)
	f(&collector.DeviceError{Device: 1, Err: plain}, true)
	f(collector.ErrDeviceLost, false)
	f(collector.ErrOutdated, false)
	f(collector.ErrColumnsChanged, false)
}

// TestOneCallHangs checks that a source names the call that hangs, and that others can be made meanwhile.
func TestOneCallHangs(t *testing.T) {
	const power, temperature, utilization = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature", "nvmlDeviceGetUtilizationRates"
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	s := openReadings(t, n, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE")[0]
	p := s.Source.(collector.Prober)
	for _, c := range []struct{ hangs, fails string }{{power, ""}, {temperature, ""}, {temperature, power}} {
		let := n.Hang(0, c.hangs)
		if c.fails != "" {
			n.Return(0, c.fails, "GPU_IS_LOST")
			n.Return(0, utilization, "GPU_IS_LOST")
		}
		var all sync.WaitGroup
		all.Go(func() { _ = s.sample() })
		eventually.OK(t, "the call that hangs", func() error {
			var running []string
			for _, call := range s.Source.(collector.CallMeter).Calls() {
				if call.Running {
					running = append(running, call.Call)
				}
			}
			if !slices.Equal(running, []string{c.hangs}) {
				return fmt.Errorf("%q run", running)
			}
			return nil
		})
		testkit.Equal(t, "whether another call than "+c.hangs+" succeeds", c.fails == "", p.Probe(c.hangs))
		if c.fails == "" {
			testkit.Equal(t, "the same, of calls with the one that hangs", true, p.Probe(""))
		}
		let()
		all.Wait()
	}
}
