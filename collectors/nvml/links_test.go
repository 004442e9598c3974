//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

// fabric is a GPU with links of NVLink 5. Counter id of link n is id × 1000 + n; bit error rates are (n + 1) × 10^−15.
type fabric struct {
	links   int
	total   bool         // it reports totals over all links
	down    map[int]bool // links that report nothing now
	refuses nvml.Return  // code of a link that is down
}

func (f *fabric) value(id, scope uint32) (float64, nvml.Return) {
	switch {
	case id < 201 || id > 250:
		return 0, nvml.ERROR_NOT_SUPPORTED
	case scope == AllLinks && f.total:
		return float64(id), nvml.SUCCESS
	case scope >= uint32(f.links):
		return 0, nvml.ERROR_INVALID_ARGUMENT
	case f.down[int(scope)]:
		return 0, f.refuses
	case id == 220 || id == 222:
		return float64((scope+1)%16<<8 | 15), nvml.SUCCESS
	}
	return float64(id*1000 + scope), nvml.SUCCESS
}

// open binds fields of the GPU and its links.
func (f *fabric) open(t *testing.T, ids ...field.ID) (part, *fakeDevice) {
	t.Helper()
	d := &fakeDevice{branch: 590, scoped: f.value}
	targets := []target{{reader: d, level: field.GPU}}
	for n := range f.links {
		targets = append(targets, target{device: n + 1, reader: d, level: field.Link, link: uint32(n)})
	}
	p := testkit.Get(newReadings(d, targets, readings(ids...), nil, unexplained(), nil))(t)
	return p, d
}

// cellsOf returns a part's newest values by device, field and label.
func cellsOf(t *testing.T, p part) map[string]float64 {
	t.Helper()
	row := testkit.Get(sampleAllOf(p))(t)
	out := map[string]float64{}
	for i, c := range p.columns() {
		key := fmt.Sprintf("%d/%d", c.Device, c.Field)
		for _, l := range c.Labels {
			key += "/" + l.Value
		}
		_, twice := out[key]
		testkit.ErrorIf(t, twice, "two columns are %s", key)
		out[key] = row[i]
	}
	return out
}

func wantCells(t *testing.T, when string, got, want map[string]float64) {
	t.Helper()
	some := map[string]float64{}
	for key := range want {
		v, ok := got[key]
		if !ok {
			v = noColumn
		}
		some[key] = v
	}
	equal(t, want, some, "%s", when)
}

// TestLinkCounters checks that each link has its counters and that the GPU has the driver's totals. If the driver
// refuses a total, the GPU has the links' sum, or the worst link's error rate.
func TestLinkCounters(t *testing.T) {
	ids := []field.ID{1204, 1213, 1216, 1404, 1419, field.NVLinkErrors, field.NVLinkRecoveries, field.NVLinkRecoveryEvents, field.NVLinkBER, field.NVLinkFEC}
	for _, f := range []*fabric{{links: 18, total: true}, {links: 18}, {links: 36}} {
		last := f.links - 1
		sum := func(id int) float64 { return float64(f.links*id*1000 + last*f.links/2) }
		want := map[string]float64{
			"0/1204": sum(206), "0/1213": sum(215), "0/1404": sum(235), "0/1419": sum(250), "0/1216": 15e-15,
			"1/9506/malformed_packet": 206000, "1/9506/symbol": 221000, "1/9506/effective": 219000,
			"1/9507/successful": 213000, "1/9507/failed": 214000, "1/9508": 215000, "1/9509/symbol": 1e-15, "1/9509/effective": 1e-15, "1/9510/0": 235000, "1/9510/15": 250000,
		}
		want[fmt.Sprintf("%d/9506/remote", f.links)] = float64(209000 + last)
		want[fmt.Sprintf("%d/9506/remote", f.links+1)] = noColumn
		if f.total {
			want["0/1204"], want["0/1213"], want["0/1404"], want["0/1419"] = 206, 215, 235, 250
			delete(want, "0/1216")
		}
		p, d := f.open(t, ids...)
		wantCells(t, fmt.Sprintf("%d links, totals %t", f.links, f.total), cellsOf(t, p), want)
		most := slices.Max(d.asked)
		testkit.ErrorIf(t, most > fieldsAtOnce, "%d field values are asked for in one call", most)
	}
}

// TestFlappingLinks checks that a link without answers is blank. So is a sum over links, which would go back without
// that link. The other links keep their values.
func TestFlappingLinks(t *testing.T) {
	for _, code := range []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_UNKNOWN, nvml.ERROR_TIMEOUT} {
		f := &fabric{links: 36, refuses: code, down: map[int]bool{}}
		p, _ := f.open(t, 1213, field.NVLinkRecoveryEvents)
		whole := map[string]float64{"0/1213": 36*215000 + 35*18}
		for n := range f.links {
			whole[fmt.Sprintf("%d/9508", n+1)] = float64(215000 + n)
		}
		wantCells(t, "all are up", cellsOf(t, p), whole)
		for tick := range 100 {
			clear(f.down)
			want := map[string]float64{}
			for n := range f.links {
				key := fmt.Sprintf("%d/9508", n+1)
				if want[key] = whole[key]; (tick+n)%7 == 0 && tick%2 == 0 {
					f.down[n], want[key] = true, math.NaN()
				}
			}
			if want["0/1213"] = whole["0/1213"]; len(f.down) > 0 {
				want["0/1213"] = math.NaN()
			}
			wantCells(t, fmt.Sprintf("tick %d, links say %v", tick, code), cellsOf(t, p), want)
		}
	}
}

// TestCountersThatMayWrap checks that 32-bit counters are not shown, and that a 64-bit counter is shown only after it
// has exceeded 32 bits.
func TestCountersThatMayWrap(t *testing.T) {
	d := &fakeDevice{fields: map[uint32]float64{197: 1000}}
	p := bind(t, d, 200, 1009, 1091)
	wantCells(t, "a counter that 32 bits could hold", cellsOf(t, p), map[string]float64{"0/200": nan, "0/1009": nan, "0/1091": nan})
	d.fields[197] = math.MaxUint32
	wantCells(t, "nearly", cellsOf(t, p), map[string]float64{"0/1009": nan, "0/1091": nan})
	d.fields[197] = math.MaxUint32 + 1
	got := cellsOf(t, p)
	wantCells(t, "more", got, map[string]float64{"0/1091": math.MaxUint32 + 1})
	testkit.ErrorIf(t, !(got["0/1009"] > 0), "rate of a counter that has passed 32 bits: %v", got["0/1009"])
	d.fields[197] = 5
	cellsOf(t, p) // held back
	wantCells(t, "after a restart of the counter", cellsOf(t, p), map[string]float64{"0/1091": 5})
}

// TestMarksOfTheUnknown checks the numbers that mean "unknown" to NVML.
func TestMarksOfTheUnknown(t *testing.T) {
	if nvmltest.OwnProcess(t) { // for a newer driver
		return
	}
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2, Lines: []string{
		"gpu * platform 255", "gpu 1 platform 3", "gpu 0 mig.max 0", "gpu 1 memory.unrepairable 1", "gpu 0 memory.unrepairable 0",
	}, Driver: "610"})
	names := []string{"DCGM_FI_DEV_PLATFORM_CHASSIS_SLOT_NUMBER", "DCGM_FI_DEV_PLATFORM_TRAY_INDEX", "DCGM_FI_DEV_PLATFORM_MODULE_ID", "DCGM_FI_DEV_MIG_MAX_SLICES", "DCGM_FI_DEV_MEMORY_UNREPAIRABLE_FLAG"}
	sources := openReadings(t, n, names...)
	sources[0].want(t, "unknown", 0, map[string]float64{names[0]: nan, names[1]: nan, names[2]: nan, names[3]: nan, names[4]: 0})
	sources[1].want(t, "known", 0, map[string]float64{names[0]: 3, names[1]: 3, names[2]: 3, names[3]: 7, names[4]: 1})
}
