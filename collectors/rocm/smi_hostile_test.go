//go:build linux && cgo

package rocm

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
)

// TestAHostileSMI checks that absurd answers of ROCm SMI do not hide the GPUs of /sys, and that impossible values are blank.
func TestAHostileSMI(t *testing.T) {
	tree := radeons(t, 3)
	tree.GPUs[1].Set(t, "unique_id", "00000000deadbeef\n")
	tree.GPUs[2].Set(t, "unique_id", "00000000deadbeef\n")
	tree.GPUs[0].Set(t, "serial_number", "A\xff\x00B\n")
	fake := fakeFor(t, tree, smitest.ROCm7)
	fake.Set(t, "rsmi_num_monitor_devices", fmt.Sprint("ok ", uint32(math.MaxUint32)))
	fake.Set(t, "rsmi_dev_pci_id_get", fmt.Sprint("ok ", uint64(math.MaxUint64)))
	fake.Set(t, "rsmi_dev_temp_metric_get", fmt.Sprint("ok ", uint64(1<<63+1)))
	fake.Set(t, "rsmi_dev_power_cap_range_get", fmt.Sprint("ok ", uint64(math.MaxUint64), " ", uint64(math.MaxUint64-1)))
	fake.Set(t, "rsmi_dev_memory_busy_percent_get", fmt.Sprint("ok ", uint32(math.MaxUint32-1)))
	fake.Set(t, "rsmi_dev_memory_total_get", "status -1")
	fake.Set(t, "rsmi_dev_fan_rpms_get", "status 2147483647")
	fake.Set(t, "rsmi_dev_power_ave_get", fmt.Sprint("ok ", uint64(math.MaxUint64-1)))
	core, logs := observer.New(zap.WarnLevel)
	s := session.New(func() collector.Collector {
		return New(Options{Root: tree.Root, Source: SourceSMI, Library: fake.Path, Log: zap.New(core)})
	}, collectortest.Fields(), session.Options{Interval: 10 * time.Millisecond, RingSpan: time.Millisecond, Logger: zap.New(core)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	eventually.True(t, "rows of two GPUs", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("the session has ended: %v", err)
		default:
		}
		all := s.Sources()
		return len(all) == 2 && all[0].Ring.Head() > 3 && all[1].Ring.Head() > 3
	})
	var row ring.Row
	for _, src := range s.Sources() {
		src.Ring.Latest(&row)
		for c, v := range row.Cells {
			d, _ := field.ByID(src.Columns[c].Field)
			if math.IsInf(v, 0) || v < d.Min || v > d.Max {
				t.Errorf("%s of %s is %v", d.Name, src.Devices[0].ID, v)
			}
			switch d.Name {
			case "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEM_COPY_UTIL":
				testkit.ErrorIf(t, !math.IsNaN(v), "%s is %v", d.Name, v)
			}
		}
	}
	lines := logs.FilterMessageSnippet("library reports impossible").All()
	testkit.ErrorIf(t, len(lines) != 1 || lines[0].ContextMap()["devices"] != int64(1), "log %v, want one line, for one device", lines)
	cancel()
	must(t, <-ended)
}
