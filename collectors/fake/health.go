package fake

import (
	"cmp"
	"strconv"
	"time"

	"warpgauge/pkg/field"
)

// healthWatches lists DCGM's watches in the spelling of the exporter's label.
func healthWatches() []string {
	return []string{"PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL"}
}

// healthCodes are suitable error codes of watches, in dcgm-exporter's spelling.
var healthCodes = map[string]string{
	"PCIE": "DCGM_FR_PCI_REPLAY_RATE", "NVLINK": "DCGM_FR_NVLINK_DOWN", "MEM": "DCGM_FR_VOLATILE_DBE_DETECTED",
	"INFOROM": "DCGM_FR_CORRUPT_INFOROM", "THERMAL": "DCGM_FR_CLOCK_THROTTLE_THERMAL", "POWER": "DCGM_FR_CLOCK_THROTTLE_POWER",
}

// Results of a watch.
const (
	healthPass = 0
	healthWarn = 10
	healthFail = 20
)

// healthColumns adds one column per watch. The state is a label, so a change of health is a change of columns.
func (s *source) healthColumns(d *field.Descriptor, elapsed time.Duration) {
	for _, watch := range healthWatches() {
		state, code := healthPass, "DCGM_FR_OK"
		for _, f := range *s.world.faults.Load() {
			if f.Kind != Health || f.Watch != watch || !s.concerned(f) || !f.active(elapsed) {
				continue
			}
			state, code = healthWarn, cmp.Or(f.Code, healthCodes[watch], "DCGM_FR_UNKNOWN")
			if f.Fail {
				state = healthFail
			}
		}
		s.addColumn(d, 0, 0, fixed(float64(state)), labels("health_error_code", code, "health_watch", watch)...)
	}
	s.watchesHealth = true
	s.health = s.healthSum(elapsed)
}

// healthSum identifies the set of active health faults.
func (s *source) healthSum(elapsed time.Duration) uint64 {
	var sum uint64
	for i, f := range *s.world.faults.Load() {
		if f.Kind == Health && s.concerned(f) && f.active(elapsed) {
			sum += mixBits(uint64(i))
		}
	}
	return sum
}

// p2pColumns adds one column per peer. Boards without links reach no peers.
func (s *source) p2pColumns(g *gpu, d *field.Descriptor) {
	status, value := "OK", 0.0
	if g.board.links == 0 {
		status, value = "NotSupported", 5
	}
	for _, j := range peers(g.index, g.count) {
		s.addColumn(d, 0, 0, fixed(value), labels("link_status", status, "peer_gpu", strconv.Itoa(j))...)
	}
}
