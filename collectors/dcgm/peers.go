//go:build linux && cgo

package dcgm

import (
	"math"
	"slices"
	"strconv"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// linkStatuses are the values of label link_status by DCGM's answer
// (dcgmNvLinkGpuP2PStatus_t), in dcgm-exporter's spelling.
var linkStatuses = [...]string{"OK", "ChipsetNotSupported", "GPUNotSupported", "TopologyNotSupported", "DisabledByRegKey", "NotSupported", "Unknown"}

// peers supplies DCGM_EXP_P2P_STATUS: whether a GPU reaches each of the others
// over NVLink. The status is a label, so there is a column for each pair and
// status, and one of a pair's columns has a value. The engine asks the driver
// about all pairs when it is asked.
type peers struct {
	log   *zap.Logger
	pairs [][2]uint32 // GPU and peer, by DCGM's numbers
	cols  []collector.Column

	ask    *aside
	answer *peersAnswer // of the call
	failed bool         // and told
}

var _ part = (*peers)(nil)

// newPeers makes the part of a node's GPUs; nil if the list does not ask for it,
// or there is nobody to reach.
func newPeers(s *session, n *node, list []field.Reading, o Options) *peers {
	places := n.byKind(kindGPU)
	if !asks(list, field.P2PStatus) || len(places) < 2 {
		return nil
	}
	if !s.lib.has("dcgmGetNvLinkP2PStatus") {
		o.Log.Info("library lacks dcgmGetNvLinkP2PStatus, peers are left out", zap.String("field", "DCGM_EXP_P2P_STATUS"))
		return nil
	}
	p := &peers{log: o.Log, answer: newPeersAnswer()}
	p.ask = newAside(s, "dcgmGetNvLinkP2PStatus", func() error { return s.engine.peers(p.answer) })
	for _, a := range places {
		for _, b := range places {
			if a != b {
				p.bind(a, n.entities[a].id, n.entities[b].id)
			}
		}
	}
	return p
}

func (p *peers) bind(place int, gpu, peer uint32) {
	p.pairs = append(p.pairs, [2]uint32{gpu, peer})
	for _, status := range linkStatuses {
		p.cols = append(p.cols, collector.Column{Device: place, Field: field.P2PStatus, Labels: []collector.Label{
			{Name: "link_status", Value: status}, {Name: "peer_gpu", Value: strconv.FormatUint(uint64(peer), 10)},
		}})
	}
}

func (p *peers) columns() []collector.Column { return p.cols }

// sample asks if something is due. Without an answer all pairs are blank: DCGM
// gives none at all if one GPU of the node does not answer.
func (p *peers) sample(row []float64, due []bool) error {
	if !slices.Contains(due, true) {
		return nil
	}
	answered, err := p.ask.ask()
	if err != nil && severed(err) { // errors.As allocates
		return err
	}
	if err != nil && !p.failed {
		p.log.Warn("peers are unknown", zap.Error(err))
	}
	p.failed = err != nil
	for i, pair := range p.pairs {
		status := -1
		if answered && err == nil {
			status = p.answer.status(pair[0], pair[1])
		}
		for j := range linkStatuses {
			if c := i*len(linkStatuses) + j; due[c] {
				row[c] = math.NaN()
				if j == status {
					row[c] = float64(j)
				}
			}
		}
	}
	return nil
}

func (p *peers) calls() []collector.CallCost { return []collector.CallCost{p.ask.cost()} }

func (p *peers) close() { p.ask.close(p.answer.free) }
