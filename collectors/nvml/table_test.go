//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/pkg/field"
)

// TestTable: every row is of a number of the catalogue, has calls, and the rows
// of one field do not repeat one another.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range allReadings() {
		d, ok := field.ByID(r.id)
		if !ok || d.Kind != field.Int64 && d.Kind != field.Double || d.Factor != 0 {
			t.Errorf("field %d: no number of the catalogue", r.id)
			continue
		}
		if len(r.terms) == 0 {
			t.Errorf("%s: no call", d.Name)
			continue
		}
		if key := fmt.Sprint(d.Name, r.terms, r.how, r.mul, r.div); seen[key] {
			t.Errorf("%s has a row twice: %v", d.Name, r.terms)
		} else {
			seen[key] = true
		}
		for _, term := range r.terms {
			if g := (*term.call)[0]; term.pick >= g.results && term.call != getFieldValues {
				t.Errorf("%s: result %d of %s, which gives %d", d.Name, term.pick, g.symbol, g.results)
			}
		}
		level := d.Level
		if at := r.levelOf(); (at == field.Link) != (level == field.Link) {
			t.Errorf("%s is of level %s in the catalogue, of %s in the table", d.Name, level, at)
		}
		whole := d.Kind == field.Int64
		if (r.how == perSecond || r.how == perSecondWide) && !strings.HasSuffix(d.Unit, "/s") {
			t.Errorf("%s is a rate in %q", d.Name, d.Unit)
		}
		if r.how == asBitErrors && whole {
			t.Errorf("%s is a small fraction and would be cut off", d.Name)
		}
	}
}

// TestShippedRows: of what dcgm-exporter's files ask for, the table or another
// part has everything.
func TestShippedRows(t *testing.T) {
	for _, name := range strings.Fields(`SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION PCIE_REPLAY_COUNTER GPU_UTIL
		MEM_COPY_UTIL ENC_UTIL DEC_UTIL FB_FREE FB_USED FB_RESERVED UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE
		NVLINK_BANDWIDTH_TOTAL VGPU_LICENSE_STATUS POWER_VIOLATION THERMAL_VIOLATION SYNC_BOOST_VIOLATION BOARD_LIMIT_VIOLATION LOW_UTIL_VIOLATION
		RELIABILITY_VIOLATION ECC_SBE_VOL_TOTAL ECC_DBE_VOL_TOTAL ECC_SBE_AGG_TOTAL ECC_DBE_AGG_TOTAL RETIRED_SBE RETIRED_DBE RETIRED_PENDING
		NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL NVLINK_CRC_DATA_ERROR_COUNT_TOTAL NVLINK_REPLAY_ERROR_COUNT_TOTAL NVLINK_RECOVERY_ERROR_COUNT_TOTAL NVLINK_BANDWIDTH_L0`) {
		d, _, ok := field.ByName("DCGM_FI_DEV_" + name)
		if !ok || len(byField()[d.ID]) == 0 {
			t.Errorf("DCGM_FI_DEV_%s is not in the table", name)
		}
	}
}

func TestFirstDriver(t *testing.T) {
	f := func(name string, row, want int) {
		t.Helper()
		d, _, _ := field.ByName(name)
		if got := byField()[d.ID][row].since; got != want {
			t.Errorf("%s, row %d: driver %d, want %d", name, row, got, want)
		}
	}
	f("DCGM_FI_DEV_FB_USED", 0, 0)
	f("DCGM_FI_DEV_FB_RESERVED", 0, 510)
	f("DCGM_FI_DEV_FB_USED_PERCENT", 0, 510)
	f("DCGM_FI_DEV_FB_USED_PERCENT", 1, 0)
	f("DCGM_FI_DEV_POWER_USAGE_INSTANT", 0, 535)
	f("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 0, 0)
	f("DCGM_FI_DEV_FABRIC_CLIQUE_ID", 0, 525)
	f("DCGM_FI_DEV_FABRIC_HEALTH_MASK", 0, 550)
	f("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", 0, 580)
	f("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", 0, 555)
	f("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", 1, 0)
	f("DCGM_FI_DEV_NVLINK_ERROR_DL_CRC", 0, 520)
	f("DCGM_FI_DEV_NVLINK_COUNT_FEC_HISTORY_15", 0, 570)
	f("DCGM_FI_DEV_C2C_LINK_ERROR_REPLAY", 0, 575)
	f("DCGM_FI_DEV_PWR_SMOOTHING_ENABLED", 0, 570)
	f("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 0, 570)
}

func TestConvert(t *testing.T) {
	nan := math.NaN()
	f := func(c convert, want float64, in ...float64) {
		t.Helper()
		if got := c.apply(in); !cmp.Equal(got, want, cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-12, 0)) {
			t.Errorf("conversion %q of %v: got %v, want %v", c, in, got, want)
		}
	}
	f(asIs, 5, 5)
	f(asIs, 0, 0)
	f(asIs, 12, 5, 7)
	f(asIs, nan, 5, nan)
	f(unlessZero, 5, 5)
	f(unlessZero, nan, 0)
	f(unlessNone, 3, 3, 10)
	f(unlessNone, 0, 0, 10)
	f(unlessNone, nan, 0, 0)
	f(unlessNone, nan, 3, nan)
	f(usedShare, 0.25, 100, 20, 20)
	f(usedShare, 0.2, 100, 20)
	f(usedShare, nan, 100, 20, 100)
	f(usedShare, nan, 0, 0)
	f(usedShare, nan, 100, nan, 20)
	f(asCapability, 8<<16|9, 8, 9)
	f(asPState, 8, 8)
	f(asPState, 0, 0)
	f(asPState, nan, 32)
	f(asComputeMode, 0, 0)
	f(asComputeMode, 1, 2)
	f(asComputeMode, 2, 3)
	f(asFabricStatus, 0, 0, 0)
	f(asFabricStatus, 2, 2, 999)
	f(asFabricStatus, 3, 3, 0)
	f(asFabricStatus, 4, 3, 5)
	f(asFabricStatus, 5, 9, 0)
	f(asFabricStatus, nan, nan, 0)
	f(asFabricError, nan, 2, 5)
	f(asFabricError, 0, 3, 0)
	f(asFabricError, -11, 3, 10)
	f(asFabricError, -8, 3, 999)
	f(asFabricError, nan, nan, nan)
	f(asBitErrors, 0, 15<<8|255)
	f(asBitErrors, 15e-9, 15<<8|9)
	f(asBitErrors, 0, 0<<8|12)
	f(asBitErrors, 3e-15, 3<<8|15)
	f(asBitErrors, nan, nan)
}

func TestScale(t *testing.T) {
	f := func(r reading, v float64, whole bool, want float64) {
		t.Helper()
		if got := r.scale(v, whole); got != want {
			t.Errorf("scale %v by %v/%v: got %v, want %v", v, r.mul, r.div, got, want)
		}
	}
	f(reading{}, 7.5, false, 7.5)
	f(reading{div: milliwatts}, 123456, false, 123.456)
	f(reading{div: mebibyte}, 3*mebibyte-1, true, 2)
	f(reading{mul: kibibyte}, 3, false, 3072)
	f(reading{}, -3, true, -3)
}
