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

// Two kinds of call run on their own goroutines because they would delay the GPU's sample: PCIe throughput, which takes
// 20 ms per call, and the calls about a pair of GPUs, where the other GPU may hang. The part's close waits for these
// goroutines.

// throughput measures PCIe traffic of a GPU whose driver has no traffic counters. Each sample uses the newest result
// and starts the next measurement.
type throughput struct {
	in      []input
	cost    *collector.Meter
	batch   *batch      // used by the running measurement only
	busy    atomic.Bool // a measurement is running
	begun   time.Time   // when it started
	calling sync.WaitGroup
	newest  atomic.Pointer[measurement]
}

// measurement is the result of one measurement, by direction. NaN means no value.
type measurement struct {
	at     time.Time
	values []float64
	code   nvml.Return // fatal answer, if any; the values are then those of the measurement before
}

// staleThroughput is the maximum age of a measurement and the maximum time that one may take.
const staleThroughput = time.Second

// newThroughput binds the directions of the candidates and measures once. has reports which candidates the device
// supports; t is nil if it supports none. The call blocks for the measurement.
func newThroughput(gpu device, all []*candidate) (t *throughput, has []bool, err error) {
	has = make([]bool, len(all))
	t = &throughput{batch: newBatch(gpu), in: make([]input, len(all))}
	t.newest.Store(&measurement{})
	for i, c := range all {
		if t.in[i], has[i] = t.batch.planTerm(c.rows[0].terms[0], gpu, 0); has[i] {
			t.batch.want(t.in[i])
		}
	}
	if len(t.batch.meters) == 0 {
		return nil, has, nil
	}
	t.cost = t.batch.meters[0]
	t.ask()
	if code := t.trouble(); code != nvml.SUCCESS {
		return nil, nil, fatal(code)
	}
	for i := range all {
		if has[i] {
			_, code := t.batch.result(t.in[i])
			has[i] = !never(code)
		}
	}
	if !slices.Contains(has, true) {
		return nil, has, nil
	}
	return t, has, nil
}

// ask makes the calls and stores their results.
func (t *throughput) ask() {
	code := t.batch.run()
	m := *t.newest.Load()
	m.code = code
	if code == nvml.SUCCESS {
		m.at, m.values = time.Now(), make([]float64, len(t.in))
		for i, in := range t.in {
			m.values[i], _ = t.batch.result(in)
		}
	}
	t.newest.Store(&m)
}

// measure starts the next measurement unless one is running.
func (t *throughput) measure(now time.Time) {
	if !t.busy.CompareAndSwap(false, true) {
		return
	}
	t.begun = now
	t.calling.Go(func() {
		t.ask()
		t.busy.Store(false)
	})
}

// value returns the newest measurement of a direction: the one that the previous sample started, or, if that one is
// still running, a result up to one second old; else NaN.
func (t *throughput) value(i int, now time.Time) float64 {
	m := t.newest.Load()
	if t.busy.Load() && now.Sub(m.at) > staleThroughput {
		return math.NaN()
	}
	return m.values[i]
}

// overdue reports whether the running measurement takes too long.
func (t *throughput) overdue(now time.Time) bool {
	return t.busy.Load() && now.Sub(t.begun) > staleThroughput
}

// trouble returns the newest measurement's fatal answer, or SUCCESS.
func (t *throughput) trouble() nvml.Return { return t.newest.Load().code }

// close waits for the running measurement.
func (t *throughput) close() { t.calling.Wait() }

// peersPatience is how long a sample waits for the status of its peers. The calls take microseconds unless one of the
// two GPUs is failing.
const peersPatience = 250 * time.Millisecond

// peerUnknown is the status of a pair without an answer. NVML's statuses start at 0.
const peerUnknown = -1

// linkStatuses are the values of label link_status by NVML's answer (nvmlGpuP2PStatus_t), in dcgm-exporter's spelling.
var linkStatuses = [...]string{"OK", "ChipsetNotSupported", "GPUNotSupported", "TopologyNotSupported", "DisabledByRegKey", "NotSupported", "Unknown"}

// peersPart supplies DCGM_EXP_P2P_STATUS: whether a GPU reaches each other GPU over NVLink. The status is a label, so
// there is a column per peer and status, and exactly one column of an answering peer has a value.
//
// Each peer has its own goroutine for its call, at most one call at a time. A peer that has not answered is blank.
type peersPart struct {
	peers    []*peer
	cols     []collector.Column // pair-major
	answered chan struct{}
	timer    *time.Timer
	cost     collector.Meter
	calling  sync.WaitGroup
}

// peer is another GPU.
type peer struct {
	index  int // value of label peer_gpu
	call   func() (status int, ok bool)
	busy   atomic.Bool  // a call is running
	status atomic.Int64 // answer of the newest call
	asked  bool         // by the current sample
}

var _ part = (*peersPart)(nil)

// newPeers makes the NVLink peer part of a GPU. It returns nil if the list does not have the field, the driver lacks
// the call, or there is no other GPU.
func newPeers(l *library, g *gpu, all []*gpu, fields []field.Reading) part {
	if !wanted(fields, field.P2PStatus) || !l.has("nvmlDeviceGetP2PStatus") {
		return nil
	}
	var peers []*peer
	for _, other := range all {
		if other == g || other.handle == nil {
			continue
		}
		peers = append(peers, &peer{index: other.index, call: func() (int, bool) {
			status, code := g.handle.GetP2PStatus(other.handle, nvml.P2P_CAPS_INDEX_NVLINK)
			return min(int(status), len(linkStatuses)-1), code == nvml.SUCCESS && status >= 0 // a status that newer drivers add is "Unknown"
		}})
	}
	if len(peers) == 0 {
		return nil
	}
	return newPeersPart(peers)
}

// newPeersPart makes the part for the given peers.
func newPeersPart(peers []*peer) *peersPart {
	p := &peersPart{peers: peers, answered: make(chan struct{}, 1), timer: time.NewTimer(0), cost: collector.Meter{Call: "nvmlDeviceGetP2PStatus"}}
	p.timer.Stop()
	for _, x := range peers {
		x.status.Store(peerUnknown)
		for _, status := range linkStatuses {
			p.cols = append(p.cols, collector.Column{Field: field.P2PStatus, Labels: []collector.Label{
				{Name: "link_status", Value: status}, {Name: "peer_gpu", Value: strconv.Itoa(x.index)},
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
	for _, x := range p.peers {
		if x.asked = x.busy.CompareAndSwap(false, true); x.asked {
			x.status.Store(peerUnknown)
			p.calling.Go(func() { p.ask(x) })
		}
	}
	p.wait()
	const n = len(linkStatuses)
	for i, x := range p.peers {
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

// wait returns when every pair that this sample asked has answered, or after peersPatience. It does not wait for a call
// that an earlier sample started.
func (p *peersPart) wait() {
	p.timer.Reset(peersPatience)
	defer p.timer.Stop()
	for slices.ContainsFunc(p.peers, func(x *peer) bool { return x.asked && x.busy.Load() }) {
		select {
		case <-p.answered:
		case <-p.timer.C:
			return
		}
	}
}

func (p *peersPart) ask(x *peer) {
	start := time.Now()
	if status, ok := x.call(); ok {
		x.status.Store(int64(status))
	}
	p.cost.Record(1, start)
	x.busy.Store(false)
	select {
	case p.answered <- struct{}{}:
	default: // a wake-up is already queued
	}
}

func (p *peersPart) calls() []collector.CallCost { return []collector.CallCost{p.cost.Cost()} }

func (p *peersPart) close() { p.calling.Wait() }
