package benchmarks

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"

	"warpgauge/collectors/rocm"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/etc"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// BenchmarkAMDTick samples eight GPUs once. Fast values are read each time and slow values every thirtieth time, as
// with a tick of one second. With AMD SMI a tick reads /sys and the library's last answers; the library runs in its own
// goroutine, whose calls are counted separately.
func BenchmarkAMDTick(b *testing.B) {
	amd, err := etc.Files().ReadFile("amd-counters.csv")
	must(b, err)
	list, _, err := field.Parse(bytes.NewReader(append(etc.DefaultCounters(), amd...)), field.ParseOptions{File: "both.csv"})
	must(b, err)
	for _, mode := range []string{rocm.SourceSysfs, rocm.SourceSMI, rocm.SourceAMDSMI} {
		b.Run(mode, func(b *testing.B) {
			tree := rocmtest.NewTree(b, rocmtest.Options{Model: rocmtest.MI250X, GPUs: 8})
			o := rocm.Options{Root: tree.Root, Source: mode}
			if mode != rocm.SourceSysfs {
				library := smitest.NewReal
				if mode == rocm.SourceAMDSMI {
					library = smitest.NewRealAMD
				}
				l := library(b, tree)
				b.Chdir(l.Dir) // its paths are relative
				o.Library = l.Path
			}
			c := rocm.New(o)
			sources := testkit.Get(c.Open(b.Context(), list))(b)
			defer c.Close()
			var rows [][]float64
			var all, fast [][]bool
			columns := 0
			for _, s := range sources {
				rows = append(rows, make([]float64, len(s.Columns())))
				due := make([]bool, len(s.Columns()))
				for i, col := range s.Columns() {
					d, _ := field.ByID(col.Field)
					due[i] = d.Cost == field.EachTick
				}
				all, fast = append(all, slices.Repeat([]bool{true}, len(due))), append(fast, due)
				columns += len(due)
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				due := fast
				if n%30 == 0 {
					due = all
				}
				for i, s := range sources {
					must(b, s.Sample(rows[i], due[i]))
				}
			}
			b.ReportMetric(float64(columns), "columns")
			if mode == rocm.SourceAMDSMI {
				sum := time.Duration(0)
				for _, c := range sources[0].(collector.CallMeter).Calls() {
					sum += c.Time
				}
				b.ReportMetric(sum.Seconds()*1e3, "ms-of-calls")
			}
			if math.IsNaN(rows[0][0]) {
				b.Error("no value")
			}
		})
	}
}
