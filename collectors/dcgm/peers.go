//go:build linux && cgo

package dcgm

import (
	"slices"
	"strconv"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// peers supplies DCGM_EXP_P2P_STATUS: whether a GPU reaches each other GPU over NVLink. The status is a label, so each
// pair has one column per status, and one of them has a value. On each call the engine asks the driver about all pairs.
type peers struct {
	partBase
	engine *engine
	pairs  [][2]uint32 // GPU and peer, by DCGM's IDs
	answer peersAnswer
}

// newPeers returns the part for a node's GPUs. It returns nil if the list does not have the field or the node has fewer
// than two GPUs.
func newPeers(e *engine, n *node, r *readings, list []field.Reading, o Options) part {
	const call = "dcgmGetNvLinkP2PStatus"
	gpus := n.byKind(kindGPU)
	if !field.Asks(list, field.P2PStatus) || len(gpus) < 2 {
		return nil
	}
	if !e.has(call) {
		o.Log.Info("library lacks "+call+"; skipping NVLink peer status", zap.String("field", "DCGM_EXP_P2P_STATUS"))
		return nil
	}
	p := &peers{partBase: partBase{log: o.Log, blanks: &r.blanks}, engine: e, answer: e.newPeersAnswer()}
	p.cost.Call = call
	for _, a := range gpus {
		for _, b := range gpus {
			if a == b {
				continue
			}
			gpu, peer := n.entities[a].id, n.entities[b].id
			p.pairs = append(p.pairs, [2]uint32{gpu, peer})
			for _, status := range field.LinkStatuses {
				p.cols = append(p.cols, collector.Column{Device: a, Field: field.P2PStatus, Labels: []collector.Label{
					{Name: "link_status", Value: status}, {Name: "peer_gpu", Value: strconv.FormatUint(uint64(peer), 10)},
				}})
			}
		}
	}
	return p
}

// sample reads the status if it is due. Without an answer all pairs are blank. DCGM returns no answer if one GPU of the
// node does not respond.
func (p *peers) sample(row []float64, due []bool) error {
	if !slices.Contains(due, true) {
		return nil
	}
	if err := p.try("cannot read NVLink peer status", func() error { return p.engine.peers(p.answer) }); err != nil {
		return err
	}
	const n = len(field.LinkStatuses)
	for i, pair := range p.pairs {
		status := -1
		if !p.failed {
			status = p.answer.status(pair[0], pair[1])
		}
		collector.ChooseDue(row[i*n:][:n], due[i*n:], status, float64(status), p.none)
	}
	return nil
}
