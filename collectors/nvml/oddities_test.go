//go:build linux && cgo

package nvml

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"

	"warpgauge/collectors/internal/simulated"
	"warpgauge/pkg/dl"
	"warpgauge/pkg/field"
	"warpgauge/pkg/programtest"
)

// oddSource is a library of functions that answer what drivers should not. It
// declares nvmlFieldValue_t anew rather than include our header, so that a
// mistake there shows here.
const oddSource = `
#include <stdint.h>
struct value { unsigned id, scope; int64_t stamp, latency; unsigned type; int code; union { double d; int si; unsigned ui; uint64_t ull; int64_t sll; unsigned short us; } v; };

static void set(struct value *f, unsigned type) { f->type = type; f->code = 0; f->stamp = 1000000; }

int nvmlDeviceGetFieldValues(void *dev, int n, struct value *f) {
	for (int i = 0; i < n; i++, f++) {
		switch (f->id) {
		case 3: break;                                    // left as it was: ECC is off
		case 82: set(f, 0); f->v.ui = 57; break;          // an integer whose type says double
		case 83: set(f, 3); f->v.ull = ~0ull; break;      // not available
		case 186: set(f, 1); f->v.ui = ~0u; break;        // not available
		case 143: set(f, 6); f->v.us = 3; break;          // a short
		case 142: set(f, 5); f->v.si = 4; break;
		case 145: set(f, 4); f->v.sll = 1; break;
		case 144: set(f, 9); f->v.ull = 1; break;         // of a type to come
		case 74: set(f, 0); f->v.d = 1e9; break;          // a double indeed
		case 75: set(f, 2); f->v.ull = 1ull << 53; break;
		case 76: set(f, 3); f->code = 999; break;
		case 197: set(f, 1); f->v.ui = 5; break;          // a counter of 32 bits
		default: f->code = 2;                             // unknown to this driver
		}
	}
	return 0;
}
int nvmlDeviceGetPowerUsage(void *dev, unsigned *v) { *v = 0; return 0; }
int nvmlDeviceGetPerformanceState(void *dev, unsigned *v) { *v = 32; return 0; }
int nvmlDeviceGetClockInfo(void *dev, unsigned type, unsigned *v) { *v = type == 1 ? 0 : ~0u; return 0; }
int nvmlDeviceGetMaxClockInfo(void *dev, unsigned type, unsigned *v) { *v = 0; return 0; }
int nvmlDeviceGetUtilizationRates(void *dev, unsigned *v) { v[0] = 808530000; v[1] = ~0u; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *dev, uint64_t *v) { *v = ~0ull; return 0; }
int nvmlDeviceGetRetiredPages(void *dev, unsigned cause, unsigned *n, uint64_t *pages) { *n = 6; return 7; } // insufficient size
int nvmlDeviceValidateInforom(void *dev) { return 14; } // corrupted
int nvmlDeviceGetCpuAffinity(void *dev, unsigned n, unsigned long *words) {
	words[0] = ~0ul; words[1] = 0xffffffff; words[2] = 1ul << 63; words[3] = 0x8000000000000001;
	return n == 4 ? 0 : 2;
}
struct fabric { unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; unsigned mask; unsigned char summary; };
int nvmlDeviceGetGpuFabricInfoV(void *dev, struct fabric *f) { // knows the second version only
	if (f->version != (36 | 2 << 24)) return 25;
	f->state = 3; f->status = 0; f->clique = 11; f->mask = 2; // does not touch the summary
	return 0;
}
int nvmlDeviceGetMemoryInfo(void *dev, uint64_t *m) { m[0] = 0; m[1] = 0; m[2] = 0; return 0; }
`

// oddLibrary compiles and loads oddSource.
func oddLibrary(t *testing.T) *library {
	t.Helper()
	programtest.Find(t, "cc")
	dir := t.TempDir()
	source, file := filepath.Join(dir, "odd.c"), filepath.Join(dir, "odd.so")
	if err := os.WriteFile(source, []byte(oddSource), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := simulated.CC(dir, "-shared", "-fPIC", "-o", file, source); err != nil {
		t.Fatal(err)
	}
	d, err := dl.Open([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &library{dl: d, symbols: map[string]bool{}}
}

// TestOddities: what drivers answer that is no value does not become one.
func TestOddities(t *testing.T) {
	l := oddLibrary(t)
	var fields []field.Reading
	for _, name := range tabled() {
		d, _, _ := field.ByName(name)
		if d.ID != 201 && d.ID != 200 { // their fallback needs another function
			fields = append(fields, field.Reading{Desc: d})
		}
	}
	const someDevice = 0x1000
	p, err := newReadings(l, someDevice, []target{{raw: someDevice, level: field.GPU}}, fields, nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	row, due := make([]float64, len(p.columns())), make([]bool, len(p.columns()))
	for i := range due {
		due[i] = true
	}
	for range 2 {
		if err := p.sample(row, due); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]float64{}
	for i, c := range p.columns() {
		d, _ := field.ByID(c.Field)
		got[d.Name] = row[i]
	}
	want := map[string]float64{
		"DCGM_FI_DEV_MEMORY_TEMP":                         57,
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":            nan,
		"DCGM_FI_DEV_POWER_USAGE_INSTANT":                 nan,
		"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS":         3,
		"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS":           4,
		"DCGM_FI_DEV_ROW_REMAP_FAILURE":                   1,
		"DCGM_FI_DEV_ROW_REMAP_PENDING":                   nan,
		"DCGM_FI_DEV_POWER_VIOLATION":                     1e9,
		"DCGM_FI_DEV_THERMAL_VIOLATION":                   1 << 53,
		"DCGM_FI_DEV_SYNC_BOOST_VIOLATION":                nan,
		"DCGM_FI_DEV_POWER_USAGE":                         nan,
		"DCGM_FI_DEV_PSTATE":                              nan,
		"DCGM_FI_DEV_SM_CLOCK":                            0, // gated: that is what it runs at
		"DCGM_FI_DEV_MEM_CLOCK":                           nan,
		"DCGM_FI_DEV_VIDEO_CLOCK":                         nan,
		"DCGM_FI_DEV_MAX_SM_CLOCK":                        nan,
		"DCGM_FI_DEV_MAX_MEM_CLOCK":                       nan,
		"DCGM_FI_DEV_MAX_VIDEO_CLOCK":                     nan,
		"DCGM_FI_DEV_GPU_UTIL":                            808530000, // the sampler drops what is not plausible, and counts it
		"DCGM_FI_DEV_MEM_COPY_UTIL":                       nan,
		"DCGM_FI_DEV_CLOCKS_EVENT_REASONS":                nan,
		"DCGM_FI_DEV_RETIRED_SBE":                         6,
		"DCGM_FI_DEV_INFOROM_CONFIG_VALID":                0,
		"DCGM_FI_DEV_CPU_AFFINITY_0":                      -1,
		"DCGM_FI_DEV_CPU_AFFINITY_1":                      0xffffffff,
		"DCGM_FI_DEV_CPU_AFFINITY_2":                      math.MinInt64,
		"DCGM_FI_DEV_CPU_AFFINITY_3":                      nan,
		"DCGM_FI_DEV_FABRIC_MANAGER_STATUS":               3,
		"DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE":           0,
		"DCGM_FI_DEV_FABRIC_CLIQUE_ID":                    11,
		"DCGM_FI_DEV_FABRIC_HEALTH_MASK":                  2,
		"DCGM_FI_DEV_FB_TOTAL":                            nan,
		"DCGM_FI_DEV_FB_FREE":                             nan,
		"DCGM_FI_DEV_FB_USED":                             nan,
		"DCGM_FI_DEV_FB_USED_PERCENT":                     nan,
		"DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": 1e9,
		"DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS":   nan,
		"DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL":                5,
	}
	for name, v := range want {
		if g, ok := got[name]; !ok {
			t.Errorf("%s: no column, want %v", name, v)
		} else if g != v && !(math.IsNaN(g) && math.IsNaN(v)) {
			t.Errorf("%s: got %v, want %v", name, g, v)
		}
	}
	for name, v := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: a column, with %v, of what the library does not have", name, v)
		}
	}
}
