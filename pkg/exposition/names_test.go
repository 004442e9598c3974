package exposition

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view/viewtest"
)

// namedCounters has fields with the old unit and with a new one, a label, a field that kept its name, a field
// listed under both names, and a name that a histogram already has.
const namedCounters = `DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).
DCGM_FI_DEV_SM_CLOCK, gauge, SM clock frequency (in MHz).
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy since boot (in mJ).
DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).
DCGM_FI_DEV_ENC_UTIL, gauge, Encoder utilization (in %).
DCGM_FI_DEV_ENC_UTIL_RATIO, gauge, Encoder utilization.
DCGM_FI_DEV_GPU_UTIL_RATIO, histogram, Every sample.
DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB).
DCGM_FI_DEV_XID_ERRORS, gauge, Value of the last XID error encountered.
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, counter, NVLink bandwidth.
DCGM_FI_PROF_PCIE_TX_BYTES, gauge, Bytes sent over PCIe.
DCGM_FI_DRIVER_VERSION, label, Driver Version
`

// TestFieldNames shows one row of readings under the names of either generation, or both.
func TestFieldNames(t *testing.T) {
	list, problems, err := field.Parse(strings.NewReader(namedCounters), field.ParseOptions{Strict: true})
	if err != nil {
		t.Fatal(err, problems)
	}
	values := map[field.ID]float64{150: 41, 100: 1980, 156: 5_000_001, 203: 70, 206: 7, 252: 40_960, 230: 79, 449: 18, 1009: 12_345}
	for _, names := range []field.Names{field.NamesAsWritten, field.NamesOld, field.NamesNew, field.NamesBoth} {
		named, _ := list.Named(names, "names.csv")
		readings := named.Readings()
		testkit.Equal(t, fmt.Sprintf("%s: readings, however many names", names), len(values), len(readings))
		device := gpu(0)
		device.Facts = nil
		for _, l := range named.Labels() {
			device.Facts = append(device.Facts, collector.Label{Name: l.Name, Value: "570.1"})
		}
		var columns []collector.Column
		for _, r := range readings {
			columns = append(columns, collector.Column{Field: r.Desc.ID})
		}
		f := viewtest.Simple(named, []collector.Device{device}, columns)
		for i, c := range columns {
			f.Row[i] = values[c.Field]
		}
		f.Tick(time.Now())
		r := New(viewtest.Board(1, f), Options{Hostname: "node-1"})
		golden.Check(t, filepath.Join("testdata", "names-"+string(names)+".prom"), pageOf(t, r, Text))
		got := r.layout.stats
		testkit.Equal(t, fmt.Sprint(names, ": series left out"), 0, got.duplicates+got.misfits+got.labels)
	}
}
