//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// peersPatience is how long a sample waits for the answers about its peers. They
// take microseconds, unless one of the two GPUs is in trouble.
const peersPatience = 250 * time.Millisecond

// peerUnknown is what a pair's status is without an answer; NVML's are from 0.
const peerUnknown = -1

// lastLinkStatus is NVML_P2P_STATUS_UNKNOWN.
const lastLinkStatus = 6

// linkStatuses are the values of label link_status by NVML's answer
// (nvmlGpuP2PStatus_t), in dcgm-exporter's spelling.
func linkStatuses() [lastLinkStatus + 1]string {
	return [...]string{"OK", "ChipsetNotSupported", "GPUNotSupported", "TopologyNotSupported", "DisabledByRegKey", "NotSupported", "Unknown"}
}

// peersPart supplies DCGM_EXP_P2P_STATUS: whether a GPU reaches each of the others
// over NVLink. The status is a label, so there is a column for each peer and
// status, and one of a peer's columns has a value.
//
// The question goes to two GPUs, of which the other may hang. So it is asked on a
// goroutine for each peer, one at a time, and a peer that has not answered is
// blank, while this GPU goes on.
type peersPart struct {
	pairs    []*pair
	cols     []collector.Column // pair-major
	answered chan struct{}
	timer    *time.Timer
	cost     callCounter
	release  func()
	calling  sync.WaitGroup
}

// pair is the question about one peer.
type pair struct {
	ask    func() (status int, ok bool)
	part   *peersPart
	busy   atomic.Bool  // a call is in progress
	status atomic.Int64 // what the last one answered
	asked  bool         // in the sample in hand
	run    func()       // bound once: a go statement with arguments allocates
}

// callCounter adds up what calls cost. Concurrent use is safe.
type callCounter struct{ count, nanos atomic.Int64 }

func (c *callCounter) add(since time.Time) {
	c.count.Add(1)
	c.nanos.Add(int64(time.Since(since)))
}

func (c *callCounter) cost(name string) collector.CallCost {
	return collector.CallCost{Call: name, Count: uint64(c.count.Load()), Time: time.Duration(c.nanos.Load())}
}

// peer is another GPU, with the index that label peer_gpu shows.
type peer struct {
	index int
	ask   func() (status int, ok bool)
}

var _ part = (*peersPart)(nil)

// newPeersPart makes the part of a GPU that has the peers. release is called when
// the part is closed and no call is in progress any more.
func newPeersPart(peers []peer, release func()) *peersPart {
	p := &peersPart{answered: make(chan struct{}, 1), timer: time.NewTimer(0), release: release}
	p.timer.Stop()
	for _, other := range peers {
		x := &pair{ask: other.ask, part: p}
		x.run = x.answer
		x.status.Store(peerUnknown)
		p.pairs = append(p.pairs, x)
		for _, status := range linkStatuses() {
			p.cols = append(p.cols, collector.Column{Field: field.P2PStatus, Labels: []collector.Label{
				{Name: "link_status", Value: status}, {Name: "peer_gpu", Value: strconv.Itoa(other.index)},
			}})
		}
	}
	return p
}

func (p *peersPart) columns() []collector.Column { return p.cols }

func (p *peersPart) sample(row []float64, due []bool) error {
	if !slices.Contains(due, true) {
		return nil
	}
	for _, x := range p.pairs {
		if x.asked = x.busy.CompareAndSwap(false, true); x.asked {
			x.status.Store(peerUnknown)
			p.calling.Add(1)
			go x.run()
		}
	}
	p.wait()
	const n = lastLinkStatus + 1
	for i, x := range p.pairs {
		status := x.status.Load()
		for j := range n {
			if c := i*n + j; due[c] {
				row[c] = math.NaN()
				if int64(j) == status {
					row[c] = float64(j)
				}
			}
		}
	}
	return nil
}

// wait returns when every pair that was asked has answered, or patience is at its
// end. One that hangs since an earlier sample is not waited for.
func (p *peersPart) wait() {
	p.timer.Reset(peersPatience)
	defer p.timer.Stop()
	for p.asking() {
		select {
		case <-p.answered:
		case <-p.timer.C:
			return
		}
	}
}

func (p *peersPart) asking() bool {
	return slices.ContainsFunc(p.pairs, func(x *pair) bool { return x.asked && x.busy.Load() })
}

func (x *pair) answer() {
	defer x.part.calling.Done()
	start := time.Now()
	if status, ok := x.ask(); ok {
		x.status.Store(int64(status))
	}
	x.part.cost.add(start)
	x.busy.Store(false)
	select {
	case x.part.answered <- struct{}{}:
	default: // one is waiting there
	}
}

func (p *peersPart) calls() []collector.CallCost {
	return []collector.CallCost{p.cost.cost("nvmlDeviceGetP2PStatus")}
}

// close leaves calls that hang alone, and the library held until they return.
func (p *peersPart) close() {
	if !slices.ContainsFunc(p.pairs, func(x *pair) bool { return x.busy.Load() }) {
		p.release()
		return
	}
	go func() {
		p.calling.Wait()
		p.release()
	}()
}
