package fake

import (
	"strconv"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// healthWatches lists DCGM's watches in the spelling of the exporter's label.
func healthWatches() []string {
	return []string{"PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL"}
}

// Results of a watch.
const (
	healthPass = 0
	healthWarn = 10
	healthFail = 20
)

// healthCode returns a suitable error code for a watch, in dcgm-exporter's spelling.
func healthCode(watch string) string {
	switch watch {
	case "PCIE":
		return "DCGM_FR_PCI_REPLAY_RATE"
	case "NVLINK":
		return "DCGM_FR_NVLINK_DOWN"
	case "MEM":
		return "DCGM_FR_VOLATILE_DBE_DETECTED"
	case "INFOROM":
		return "DCGM_FR_CORRUPT_INFOROM"
	case "THERMAL":
		return "DCGM_FR_CLOCK_THROTTLE_THERMAL"
	case "POWER":
		return "DCGM_FR_CLOCK_THROTTLE_POWER"
	}
	return "DCGM_FR_UNKNOWN"
}

// healthColumns adds one column per watch. The state is a label, so a change of health is a change of columns.
func (s *source) healthColumns(d *field.Descriptor, device int, elapsed time.Duration) {
	for _, watch := range healthWatches() {
		state, code := healthPass, "DCGM_FR_OK"
		for _, f := range s.faults {
			if f.Kind != Health || f.Watch != watch || !f.active(elapsed) {
				continue
			}
			state, code = healthWarn, messageOr(f.Code, healthCode(watch))
			if f.Fail {
				state = healthFail
			}
		}
		c, _ := fixed(float64(state))
		s.addColumn(d, device, 0, c, collector.Label{Name: "health_error_code", Value: code}, collector.Label{Name: "health_watch", Value: watch})
	}
	s.watchesHealth = true
	s.health = s.healthSum(elapsed)
}

// healthSum identifies the set of active health faults.
func (s *source) healthSum(elapsed time.Duration) uint64 {
	var sum uint64
	for _, f := range s.faults {
		if f.Kind == Health && f.active(elapsed) {
			sum += mixBits(uint64(f.seq))
		}
	}
	return sum
}

// p2pColumns adds one column per peer. Boards without links reach no peers.
func (s *source) p2pColumns(g *gpu, d *field.Descriptor, device int) {
	status, value := "OK", 0.0
	if g.board.links == 0 {
		status, value = "NotSupported", 5
	}
	for _, j := range peers(g.index, g.count) {
		c, _ := fixed(value)
		s.addColumn(d, device, 0, c, collector.Label{Name: "link_status", Value: status}, collector.Label{Name: "peer_gpu", Value: strconv.Itoa(j)})
	}
}
