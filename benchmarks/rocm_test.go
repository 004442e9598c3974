package benchmarks

import (
	"bytes"
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/rocm"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/etc"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/supervisor"
)

const amdGPUs = 8

// amdFields is the default list and the one for AMD.
func amdFields(b *testing.B) field.List {
	b.Helper()
	amd, err := etc.Files().ReadFile("amd-counters.csv")
	if err != nil {
		b.Fatal(err)
	}
	list, _, err := field.Parse(bytes.NewReader(append(etc.DefaultCounters(), amd...)), field.ParseOptions{File: "both.csv"})
	if err != nil {
		b.Fatal(err)
	}
	return list
}

// amdNode is a simulated node, and options of a collector that reads it in a mode.
func amdNode(b *testing.B, mode string) (*rocmtest.Tree, rocm.Options) {
	b.Helper()
	tree := rocmtest.NewTree(b, rocmtest.Options{Model: rocmtest.MI250X, GPUs: amdGPUs})
	o := rocm.Options{Root: tree.Root, Source: mode}
	if mode == rocm.SourceSysfs {
		return tree, o
	}
	library := smitest.NewReal(b, tree)
	if mode == rocm.SourceAMDSMI {
		library = smitest.NewRealAMD(b, tree)
	}
	b.Chdir(library.Dir) // its paths are relative
	o.Library = library.Path
	return tree, o
}

// BenchmarkAMDTick samples eight GPUs once: what is fast each time, what is slow
// every thirtieth time, as at a tick of a second. With AMD SMI a tick has the values of /sys, and
// what the library has said in its own goroutine, whose calls are counted apart.
func BenchmarkAMDTick(b *testing.B) {
	for _, mode := range []string{rocm.SourceSysfs, rocm.SourceSMI, rocm.SourceAMDSMI} {
		b.Run(mode, func(b *testing.B) {
			_, o := amdNode(b, mode)
			c := rocm.New(o)
			sources, err := c.Open(b.Context(), amdFields(b))
			if err != nil {
				b.Fatal(err)
			}
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
					if err := s.Sample(rows[i], due[i]); err != nil {
						b.Fatal(err)
					}
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

// gpuMetricsProgram calls rsmi_dev_gpu_metrics_info_get for each device in turns
// and prints the nanoseconds that a turn takes.
const gpuMetricsProgram = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int main(int argc, char **argv) {
	static char out[65536];
	void *lib = argc > 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!lib) return 1;
	int (*init)(uint64_t) = (int (*)(uint64_t))dlsym(lib, "rsmi_init");
	int (*get)(uint32_t, void *) = (int (*)(uint32_t, void *))dlsym(lib, "rsmi_dev_gpu_metrics_info_get");
	if (!init || !get || init(0)) return 2;
	int devices = atoi(argv[2]), turns = atoi(argv[3]);
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int n = 0; n < turns; n++)
		for (int i = 0; i < devices; i++)
			if (get((uint32_t)i, out)) return 3;
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("%.0f\n", ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / turns);
}
`

// BenchmarkAMDGPUMetrics is what the library's own call costs for eight GPUs.
func BenchmarkAMDGPUMetrics(b *testing.B) {
	_, o := amdNode(b, rocm.SourceSMI)
	dir := b.TempDir()
	src, exe := filepath.Join(dir, "gm.c"), filepath.Join(dir, "gm")
	if err := os.WriteFile(src, []byte(gpuMetricsProgram), 0o600); err != nil {
		b.Fatal(err)
	}
	if out, err := exec.CommandContext(b.Context(), "cc", "-O2", "-o", exe, src, "-ldl").CombinedOutput(); err != nil {
		b.Skipf("needs a C compiler: %v\n%s", err, out)
	}
	for b.Loop() {
		out, err := exec.CommandContext(b.Context(), exe, o.Library, strconv.Itoa(amdGPUs), "2000").Output()
		if err != nil {
			b.Fatal(err)
		}
		ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(ns, "ns/tick")
	}
}

// BenchmarkAMDCPU is how much of a core sampling takes at an interval, timers and
// rings included.
func BenchmarkAMDCPU(b *testing.B) {
	for _, mode := range []string{rocm.SourceSysfs, rocm.SourceSMI} {
		for _, interval := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
			b.Run(mode+"/"+interval.String(), func(b *testing.B) {
				_, o := amdNode(b, mode)
				factory := func() collector.Collector { return rocm.New(o) }
				s := supervisor.New(supervisor.Wanted{List: amdFields(b)}, supervisor.Options{Name: "rocm", Open: factory, Session: session.Options{Interval: interval}})
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.Run(ctx) }()
				for len(s.Board().Load().Sources) == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				for b.Loop() {
					before, from := cpuTime(b), time.Now()
					time.Sleep(2 * time.Second)
					b.ReportMetric(100*float64(cpuTime(b)-before)/float64(time.Since(from)), "%core")
				}
				cancel()
				<-ended
			})
		}
	}
}
