//go:build linux && cgo

package dcgm

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
)

// TestAHostileEngine checks that absurd answers of an engine do not hide the GPUs that can be distinguished, that their
// labels are valid, and that the rest is counted.
func TestAHostileEngine(t *testing.T) {
	e := dcgmtest.New(t, dcgmtest.Config{GPUs: 4})
	e.Behave("counts", math.MaxUint32)
	e.Add(dcgmtest.GPU(0), true)
	e.Set(dcgmtest.GPU(1), fieldUUID, dcgmtest.Text("GPU-twice"))
	e.Set(dcgmtest.GPU(2), fieldUUID, dcgmtest.Text("GPU-twice"))
	e.Set(dcgmtest.GPU(3), fieldUUID, dcgmtest.Text("GPU-\xff\xfe"))
	e.Set(dcgmtest.GPU(0), fieldName, dcgmtest.Text(strings.Repeat("\xff", 300)))
	e.Set(dcgmtest.GPU(0), fieldMinor, dcgmtest.Number(1<<40))
	e.Set(dcgmtest.GPU(1), fieldMinor, dcgmtest.Number(-1))
	for id, v := range map[int]float64{155: math.Inf(1), 150: -1, 140: 1 << 62, 190: -1, 230: 1 << 62, 112: -1, 157: math.Inf(-1)} {
		e.Set(dcgmtest.GPU(0), id, dcgmtest.Number(v))
	}
	e.SetPeer(0, 1, -1)
	e.SetPeer(0, 2, math.MaxInt32)
	for i := range 2 * len(errorCodes) {
		e.Incident(dcgmtest.GPU(0), 1<<(i%10), math.MaxInt32-i, math.MaxInt32-i, "\xff")
	}
	core, logs := observer.New(zap.WarnLevel)
	o := remote(e)
	o.Interval = 10 * time.Millisecond
	o.Log = zap.New(core)
	names := []string{}
	for _, d := range field.All() {
		prefix := ""
		if d.Kind == field.String {
			prefix = "label "
		}
		names = append(names, prefix+d.Name)
	}
	s := session.New(func() collector.Collector { return New(o) }, list(t, names...), session.Options{
		Interval: o.Interval, RingSpan: time.Millisecond, Logger: zap.New(core),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var row ring.Row
	eventually.True(t, "rows of the GPUs", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("the session has ended: %v, %v", err, logs.All())
		default:
		}
		all := s.Sources()
		return len(all) > 0 && all[0].Ring.Latest(&row) && row.Stamps[0] != 0
	})
	e.XID(0, -1)
	e.XID(0, math.MaxInt32)
	src := s.Sources()[0]
	head := src.Ring.Head()
	eventually.True(t, "more rows", func() bool { return src.Ring.Head() > head+3 })
	var gpus []string
	for _, d := range src.Devices {
		if d.Level == field.GPU {
			gpus = append(gpus, d.ID)
			testkit.ErrorIf(t, d.Node != "nvidia"+d.GPU || len(d.Model) > 256 || strings.ContainsRune(d.Model, '\xff'), "GPU %+v", d)
		}
	}
	testkit.ErrorIf(t, len(gpus) != 3 || gpus[1] != "GPU-twice" || gpus[2] != "GPU-\uFFFD", "GPUs %q", gpus)
	src.Ring.Latest(&row)
	for c, v := range row.Cells {
		if math.IsInf(v, 0) {
			t.Errorf("column %+v has %v", src.Columns[c], v)
		}
	}
	lines := logs.FilterMessageSnippet("library reports impossible").All()
	testkit.ErrorIf(t, len(lines) != 1 || lines[0].ContextMap()["devices"].(int64) < math.MaxUint32-collector.MaxGPUs, "log %v, want one line", lines)
	n := logs.FilterMessageSnippet("health reason has no label").Len()
	testkit.ErrorIf(t, n > len(errorCodes), "%d lines about reasons", n)
	cancel()
	must(t, <-ended)
}
