//go:build linux && cgo

package nvml

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/internal/simulated"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/etc"
	"warpgauge/pkg/field"
)

// BenchmarkNode takes rows of 8 GPUs × default CSV from the simulated library, in
// turns with the same calls made one by one through go-nvml, and compares with a C
// program that makes them. Everything is due, slow and static fields as well.
func BenchmarkNode(b *testing.B) {
	n := nvmltest.New(b, nvmltest.Config{Lines: []string{"gpu * gpm.supported 0"}})
	list := defaultReadings(b)
	c := New(at(n))
	sources, err := c.Open(b.Context(), list)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	}()
	rows, due := make([][]float64, len(sources)), make([][]bool, len(sources))
	columns := 0
	for i, s := range sources {
		rows[i], due[i] = make([]float64, len(s.Columns())), slices.Repeat([]bool{true}, len(s.Columns()))
		columns += len(s.Columns())
	}
	ours := func() {
		for i, s := range sources {
			if err := s.Sample(rows[i], due[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
	theirs := oneByOne(b, len(sources))
	calls := callsOf(n, ours)
	events := uint64(len(sources)) // ours reads the event set of each GPU, too
	if got := callsOf(n, theirs); got != calls-events {
		b.Fatalf("%d calls through go-nvml, %d of ours, %d of them for events", got, calls, events)
	}

	var mine, rival []time.Duration
	took := func(f func()) time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
	for first := true; b.Loop(); first = !first { // the second finds warmer caches
		if first {
			mine = append(mine, took(ours))
		}
		rival = append(rival, took(theirs))
		if !first {
			mine = append(mine, took(ours))
		}
	}
	floor := inC(b, n, len(sources))
	b.ReportMetric(0, "ns/op") // of both together
	b.ReportMetric(float64(columns), "columns")
	b.ReportMetric(float64(calls), "calls")
	b.ReportMetric(median(mine), "ours-ns")
	b.ReportMetric(median(rival), "gonvml-ns")
	b.ReportMetric(floor, "c-ns")
	b.ReportMetric(median(rival)/median(mine), "gonvml/ours")
	b.ReportMetric(mean(rival)/mean(mine), "gonvml/ours-mean") // with what collecting garbage costs
	b.ReportMetric(median(mine)/floor, "ours/c")
	b.ReportMetric(testing.AllocsPerRun(20, ours), "ours-allocs")
	b.ReportMetric(testing.AllocsPerRun(20, theirs), "gonvml-allocs")
}

// median of times in ns: others share the machine, and one of their time slices is
// worth a hundred rows.
func median(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds())
}

func mean(times []time.Duration) float64 {
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	return float64(sum.Nanoseconds()) / float64(len(times))
}

// defaultReadings is the default CSV without XIDs, which come by themselves.
func defaultReadings(tb testing.TB) field.List {
	tb.Helper()
	list, _, err := field.Parse(strings.NewReader(string(etc.DefaultCounters())), field.ParseOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	list.Fields = slices.DeleteFunc(slices.Clone(list.Fields), func(f field.Field) bool { return f.Desc.ID == field.XIDErrors })
	return list
}

// callsOf counts NVML's calls in f.
func callsOf(n *nvmltest.Node, f func()) (calls uint64) {
	n.ResetCalls()
	f()
	for _, c := range n.AllCalls() {
		calls += c
	}
	return calls
}

// defaultFields are the field values that the default CSV needs: memory
// temperature, energy, PCIe and NVLink traffic, remapped rows.
var defaultFields = [...]struct{ id, scope uint32 }{
	{82, 0}, {83, 0}, {143, 0}, {142, 0}, {145, 0}, {138, AllLinks}, {139, AllLinks}, {197, 0}, {198, 0},
}

// oneByOne makes the calls of a row as one would through go-nvml.
func oneByOne(tb testing.TB, gpus int) func() {
	tb.Helper()
	handles := make([]nvml.Device, gpus)
	for i := range handles {
		var code nvml.Return
		if handles[i], code = nvml.DeviceGetHandleByIndex(i); code != nvml.SUCCESS {
			tb.Fatal(code)
		}
	}
	must := func(code nvml.Return) {
		if code != nvml.SUCCESS {
			tb.Fatal(code)
		}
	}
	row := make([]float64, 0, 64)
	return func() {
		for _, h := range handles {
			sm, code := h.GetClockInfo(nvml.CLOCK_SM)
			must(code)
			mem, code := h.GetClockInfo(nvml.CLOCK_MEM)
			must(code)
			celsius, code := h.GetTemperature(nvml.TEMPERATURE_GPU)
			must(code)
			milliwatts, code := h.GetPowerUsage()
			must(code)
			replays, code := h.GetPcieReplayCounter()
			must(code)
			rates, code := h.GetUtilizationRates()
			must(code)
			encoder, _, code := h.GetEncoderUtilization()
			must(code)
			decoder, _, code := h.GetDecoderUtilization()
			must(code)
			memory, code := h.GetMemoryInfo_v2()
			must(code)
			licence, code := h.GetGridLicensableFeatures()
			must(code)
			values := make([]nvml.FieldValue, len(defaultFields))
			for i, f := range defaultFields {
				values[i].FieldId, values[i].ScopeId = f.id, f.scope
			}
			must(h.GetFieldValues(values))
			row = append(row[:0], float64(sm), float64(mem), float64(celsius), float64(milliwatts)/1000, float64(replays), float64(rates.Gpu), float64(rates.Memory),
				float64(encoder), float64(decoder), float64(memory.Free/mebibyte), float64(memory.Used/mebibyte), float64(memory.Reserved/mebibyte), float64(licence.IsGridLicenseSupported))
			for i := range values {
				row = append(row, float64(values[i].Timestamp))
			}
		}
	}
}

// floorSource is a C program that makes the same calls: library, GPUs, rows.
const floorSource = `
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
typedef void *device;
struct value { unsigned id, scope; int64_t stamp, latency; unsigned type; int code; uint64_t v; };
static void *lib;
#define GET(name) name = dlsym(lib, #name); if (!name) { fprintf(stderr, "no %s\n", #name); return 1; }
static int (*nvmlInit_v2)(void), (*nvmlDeviceGetHandleByIndex_v2)(unsigned, device *), (*nvmlDeviceGetClockInfo)(device, int, unsigned *),
	(*nvmlDeviceGetTemperature)(device, int, unsigned *), (*nvmlDeviceGetPowerUsage)(device, unsigned *), (*nvmlDeviceGetPcieReplayCounter)(device, unsigned *),
	(*nvmlDeviceGetUtilizationRates)(device, void *), (*nvmlDeviceGetEncoderUtilization)(device, unsigned *, unsigned *), (*nvmlDeviceGetDecoderUtilization)(device, unsigned *, unsigned *),
	(*nvmlDeviceGetMemoryInfo_v2)(device, void *), (*nvmlDeviceGetGridLicensableFeatures_v4)(device, void *), (*nvmlDeviceGetFieldValues)(device, int, void *);
static int order(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }
int main(int argc, char **argv) {
	if (argc != 4 || !(lib = dlopen(argv[1], RTLD_NOW))) return 2;
	GET(nvmlInit_v2) GET(nvmlDeviceGetHandleByIndex_v2) GET(nvmlDeviceGetClockInfo) GET(nvmlDeviceGetTemperature) GET(nvmlDeviceGetPowerUsage)
	GET(nvmlDeviceGetPcieReplayCounter) GET(nvmlDeviceGetUtilizationRates) GET(nvmlDeviceGetEncoderUtilization) GET(nvmlDeviceGetDecoderUtilization)
	GET(nvmlDeviceGetMemoryInfo_v2) GET(nvmlDeviceGetGridLicensableFeatures_v4) GET(nvmlDeviceGetFieldValues)
	if (nvmlInit_v2()) return 3;
	device dev[64];
	int gpus = atoi(argv[2]), rows = atoi(argv[3]), bad = 0;
	for (int g = 0; g < gpus && g < 64; g++) bad |= nvmlDeviceGetHandleByIndex_v2(g, &dev[g]);
	struct timespec a, z;
	double *took = calloc(rows, sizeof *took);
	for (int r = 0; r < rows; r++) {
		clock_gettime(CLOCK_MONOTONIC, &a);
		for (int g = 0; g < gpus; g++) {
			static const unsigned fields[][2] = {FIELDS};
			unsigned u, w, pair[2];
			uint64_t memory[5] = {40 | 2 << 24};
			char licence[860];
			struct value v[sizeof fields / sizeof *fields];
			memset(v, 0, sizeof v);
			for (size_t i = 0; i < sizeof v / sizeof *v; i++) v[i].id = fields[i][0], v[i].scope = fields[i][1];
			bad |= nvmlDeviceGetClockInfo(dev[g], 1, &u) | nvmlDeviceGetClockInfo(dev[g], 2, &u) | nvmlDeviceGetTemperature(dev[g], 0, &u) | nvmlDeviceGetPowerUsage(dev[g], &u)
				| nvmlDeviceGetPcieReplayCounter(dev[g], &u) | nvmlDeviceGetUtilizationRates(dev[g], pair) | nvmlDeviceGetEncoderUtilization(dev[g], &u, &w)
				| nvmlDeviceGetDecoderUtilization(dev[g], &u, &w) | nvmlDeviceGetMemoryInfo_v2(dev[g], memory) | nvmlDeviceGetGridLicensableFeatures_v4(dev[g], licence)
				| nvmlDeviceGetFieldValues(dev[g], sizeof v / sizeof *v, v);
		}
		clock_gettime(CLOCK_MONOTONIC, &z);
		took[r] = (z.tv_sec - a.tv_sec) * 1e9 + (z.tv_nsec - a.tv_nsec);
	}
	qsort(took, rows, sizeof *took, order);
	printf("%.1f\n", took[rows / 2]);
	return bad ? 4 : 0;
}
`

// inC is the median time that a C program needs for a row, in ns: the least of three runs.
func inC(b *testing.B, n *nvmltest.Node, gpus int) float64 {
	b.Helper()
	dir := b.TempDir()
	var fields strings.Builder
	for _, f := range defaultFields {
		fields.WriteString("{" + strconv.Itoa(int(f.id)) + "u, " + strconv.Itoa(int(f.scope)) + "u}, ")
	}
	source, program := filepath.Join(dir, "floor.c"), filepath.Join(dir, "floor")
	if err := os.WriteFile(source, []byte(strings.Replace(floorSource, "FIELDS", fields.String(), 1)), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := simulated.CC(dir, "-O2", "-o", program, source, "-ldl"); err != nil {
		b.Fatal(err)
	}
	best := 0.0
	for range 3 {
		out, err := exec.CommandContext(b.Context(), program, n.Library(), strconv.Itoa(gpus), "500").Output()
		if err != nil {
			b.Fatal(err)
		}
		ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			b.Fatal(err)
		}
		if best == 0 || ns < best {
			best = ns
		}
	}
	return best
}
