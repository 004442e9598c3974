//go:build linux && cgo

package nvml

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/internal/simulated"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
)

// hostileOptions returns options for the library of testdata/hostile.
func hostileOptions(t *testing.T) Options {
	t.Helper()
	programtest.Find(t, "cc")
	l := simulated.Library{Name: "NVML", File: "libnvidia-ml.so.1", Sources: os.DirFS("testdata/hostile")}
	path := testkit.Get(l.Build(nil))(t)
	return Options{Library: path, Root: t.TempDir(), Getenv: noVariables, Patience: eventually.Patience}
}

// TestAHostileLibrary checks that, whatever NVML answers, the page shows the GPUs that can be distinguished, with
// valid labels, and that the rest is counted.
func TestAHostileLibrary(t *testing.T) {
	if nvmltest.OwnProcess(t) {
		return
	}
	o := hostileOptions(t)
	for name, open := range map[string]collector.Factory{
		"readings":  func() collector.Collector { return New(o) },
		"processes": func() collector.Collector { return NewProcesses(o) },
	} {
		core, logs := observer.New(zap.WarnLevel)
		s := session.New(open, everything(t), session.Options{Interval: 10 * time.Millisecond, RingSpan: time.Millisecond, Logger: zap.New(core)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		eventually.True(t, "rows of two GPUs", func() bool {
			all := s.Sources()
			return len(all) == 2 && all[0].Ring.Head() > 3 && all[1].Ring.Head() > 3
		})
		var row ring.Row
		for i, src := range s.Sources() {
			d := src.Devices[0]
			testkit.ErrorIf(t, i == 0 && d.ID != "GPU-0\uFFFD" || d.GPU != []string{"0", "2"}[i] || d.Node != "nvidia"+d.GPU, "%s: GPU %d is %+v", name, i, d)
			for _, f := range d.Facts {
				testkit.ErrorIf(t, strings.ContainsRune(f.Value, '\xff') || len(f.Value) > 256, "%s: label %s is %q", name, f.Name, f.Value)
				testkit.ErrorIf(t, f.Name == "DCGM_FI_DEV_BRAND" && f.Value != "Unknown", "%s: the brand is %q", name, f.Value)
			}
			testkit.FatalIf(t, !src.Ring.Latest(&row), "%s: no row", name)
			for c, v := range row.Cells {
				if math.IsInf(v, 0) {
					t.Errorf("%s: column %+v has %v", name, src.Columns[c], v)
				}
			}
		}
		lines := logs.FilterMessageSnippet("skipping them").All()
		if len(lines) != 1 {
			t.Errorf("%s: log %v, want one line", name, logs.All())
		} else if n := lines[0].ContextMap()["devices"].(int64); n <= math.MaxUint32-collector.MaxGPUs || n > math.MaxUint32 { // includes the links of the second GPU
			t.Errorf("%s: %d devices are left out", name, n)
		}
		cancel()
		err := <-ended
		testkit.ErrorIf(t, err != nil, "%s: %v", name, err)
	}
}
