//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// peerUnknown marks a pair whose status NVML does not report. NVML's statuses start at 0.
const peerUnknown = -1

// overdue is how long a call may run before its last answer is too old to use.
const overdue = time.Second

// peersPatience is how long Open waits for the first status of the peers. The calls take microseconds unless one of the
// two GPUs is failing.
const peersPatience = 250 * time.Millisecond

// peersPart supplies DCGM_EXP_P2P_STATUS: whether a GPU reaches each other GPU over NVLink. The status is a label, so
// there is a column per peer and status, and exactly one column of an answering peer has a value.
//
// A peer that has not answered is blank.
type peersPart struct {
	columnList // pair-major
	peers      []*peer
	cost       *collector.Meter
}

// peer asks for the status of a pair of GPUs on its own goroutine, at most once at a time, because the call hangs when
// the other GPU does. Each sample uses the newest answer and starts the next call. Only the call runs concurrently with the
// calling goroutine.
type peer struct {
	call   func() int // returns the status or peerUnknown
	cost   *collector.Meter
	busy   atomic.Bool // the call is running
	begun  time.Time   // when it started
	newest atomic.Pointer[int]
	first  chan struct{} // closed when there is an answer
	all    sync.WaitGroup
}

// start starts the call unless it is running.
func (p *peer) start() {
	if p.busy.CompareAndSwap(false, true) {
		p.begun = time.Now()
		p.all.Go(func() {
			start := time.Now()
			status := p.call()
			p.cost.Record(1, start)
			if p.newest.Swap(&status) == nil {
				close(p.first)
			}
			p.busy.Store(false)
		})
	}
}

// last returns the newest answer, nil before the first and while the call is overdue.
func (p *peer) last() *int {
	if p.busy.Load() && time.Since(p.begun) > overdue {
		return nil
	}
	return p.newest.Load()
}

// newPeers makes the NVLink peer part of a GPU. It returns nil if the list does not have the field, the driver lacks
// the call, or there is no other GPU.
func newPeers(l *library, g *gpu, all []*gpu, fields []field.Reading, c *costs) part {
	if !field.Asks(fields, field.P2PStatus) || !l.has("nvmlDeviceGetP2PStatus") {
		return nil
	}
	p := &peersPart{cost: c.meter("nvmlDeviceGetP2PStatus")}
	for _, other := range all {
		if other != g && other.handle != nil {
			p.add(other.index, func() int {
				status, code := g.handle.GetP2PStatus(other.handle, nvml.P2P_CAPS_INDEX_NVLINK)
				if code != nvml.SUCCESS || status < 0 {
					return peerUnknown
				}
				return min(int(status), len(field.LinkStatuses)-1) // a status that newer drivers add is "Unknown"
			})
		}
	}
	if len(p.peers) == 0 {
		return nil
	}
	timeout := time.After(peersPatience)
	for _, x := range p.peers {
		select {
		case <-x.first:
		case <-timeout:
			return p
		}
	}
	return p
}

// add adds a peer and starts to read its status for the first sample.
func (p *peersPart) add(index int, call func() int) {
	for _, status := range field.LinkStatuses {
		p.cols = append(p.cols, collector.Column{Field: field.P2PStatus, Labels: []collector.Label{
			{Name: "link_status", Value: status}, {Name: "peer_gpu", Value: strconv.Itoa(index)},
		}})
	}
	x := &peer{call: call, cost: p.cost, first: make(chan struct{})}
	x.start()
	p.peers = append(p.peers, x)
}

func (p *peersPart) sample(row []float64, due []bool) error {
	if !slices.Contains(due, true) {
		return nil
	}
	const n = len(field.LinkStatuses)
	for i, x := range p.peers {
		status := peerUnknown
		if newest := x.last(); newest != nil {
			status = *newest
		}
		collector.ChooseDue(row[i*n:][:n], due[i*n:], status, float64(status), math.NaN())
		x.start()
	}
	return nil
}

func (p *peersPart) close() {
	for _, x := range p.peers {
		x.all.Wait()
	}
}
