package fake

import (
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// What is read of NVLink or XGMI: of a board over all of its links, of a board
// by lane, of a link.

// links binds the fields of a board's links together.
func (g *gpu) links(d *field.Descriptor) (cell, bool) {
	if g.instance || !isNVLink(d.ID) {
		return none()
	}
	if lane, ok := laneOf(d.Name); ok {
		if lane >= g.board.links {
			return none()
		}
		return g.traffic(d, 1, lane == 0)
	}
	return g.traffic(d, g.board.links, true)
}

// link is one link of a board, to which fields are bound.
type link struct {
	*gpu
	n int // from 0
}

func (l link) cell(d *field.Descriptor) (cell, bool) {
	g := l.gpu
	if d.Level != field.Link || d.Kind != field.Int64 && d.Kind != field.Double || strings.Contains(d.Name, "NVSWITCH") {
		return none()
	}
	if g.vendor == amd && !amdHas(d.ID) {
		return none()
	}
	if d.ID == 1508 { // state: active
		return fixed(1)
	}
	return g.traffic(d, 1, l.n == 0)
}

// traffic is what a number of links carries. A name says whether it is bytes,
// packets or errors, and of which direction. first says whether the board's
// first link, where a faulty board has its errors, is among them.
func (g *gpu) traffic(d *field.Descriptor, links int, first bool) (cell, bool) {
	name := d.Name
	rate := g.mix.nvlink * g.linkBytes * float64(links)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(name, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("ERROR", "CRC", "REPLAY", "RECOVERY", "DISCARD", "DROPPED", "MALFORMED", "BER", "FEC", "PLR", "WAIT"):
		return g.linkErrors(name, first)
	case has("PACKET"):
		return linear(worked, 0, rate/256)
	case has("BANDWIDTH", "THROUGHPUT", "BYTES"):
		if !has("TX", "RX") {
			rate *= 2 // both directions
		}
		k := perByte(d.Unit)
		if strings.HasSuffix(d.Unit, "/s") || has("_PROF_") {
			return linear(byLoad, 0, rate*k)
		}
		return linear(worked, 0, rate*k)
	}
	return fixed(0)
}

// linkErrors: the faulty board has a CRC error every three hours, replayed.
func (g *gpu) linkErrors(name string, first bool) (cell, bool) {
	if g.faulty && first && (strings.Contains(name, "CRC_FLIT") || strings.Contains(name, "REPLAY")) {
		return g.every(3 * hour)
	}
	return fixed(0)
}

// laneOf finds the lane in names such as DCGM_FI_DEV_NVLINK_BANDWIDTH_L7 and
// DCGM_FI_PROF_NVLINK_L7_TX_BYTES.
func laneOf(name string) (int, bool) {
	for part := range strings.SplitSeq(name, "_") {
		if digits, ok := strings.CutPrefix(part, "L"); ok {
			if n, err := strconv.Atoi(digits); err == nil {
				return n, true
			}
		}
	}
	return 0, false
}
