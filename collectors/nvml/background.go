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

// Calls that would delay a GPU's sample are made on goroutines of their parts: those
// that measure PCIe traffic, which take 20 ms each, and those about two GPUs, of which
// the other may hang. They end with the part's close.

// throughput measures PCIe traffic of a GPU whose driver has no counters of it. A sample
// takes the newest result and asks for the next.
type throughput struct {
	batch *batch
	in    []input
	want  chan struct{} // holds one while a measurement is wanted
	done  chan struct{} // closed when the goroutine has ended
	asked time.Duration // since epoch, when the newest measurement was asked for
	since time.Duration // since epoch, when the oldest one that was not made yet was
	epoch time.Time
	cost  *meter

	results []result
	code    atomic.Int32 // what a fatal answer was
}

// result is the newest measurement of one direction.
type result struct {
	bits atomic.Uint64 // of the float64, NaN if there is none
	at   atomic.Int64  // ns since epoch
}

// staleThroughput is how old a measurement may be, and how long one may take.
const staleThroughput = time.Second

// newThroughput binds the directions that the candidates ask for and measures once;
// has says which the device has. nil if none. It blocks for the measurement.
func newThroughput(gpu device, all []*candidate) (t *throughput, has []bool, err error) {
	has = make([]bool, len(all))
	t = &throughput{
		batch: newBatch(gpu), in: make([]input, len(all)), results: make([]result, len(all)), epoch: time.Now(),
		want: make(chan struct{}, 1), done: make(chan struct{}),
	}
	for i, c := range all {
		t.results[i].bits.Store(math.Float64bits(math.NaN()))
		if t.in[i], has[i] = t.batch.add(c.rows[0].terms[0], gpu, 0); has[i] {
			t.batch.want(t.in[i])
		}
	}
	if len(t.batch.meters) == 0 {
		return nil, has, nil
	}
	t.cost = t.batch.meters[0]
	if code := t.ask(); code != nvml.SUCCESS {
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
	go t.run()
	return t, has, nil
}

// run measures whenever it is asked to.
func (t *throughput) run() {
	defer close(t.done)
	for range t.want {
		_ = t.ask() // trouble has it
	}
}

// ask makes the calls and stores their results.
func (t *throughput) ask() nvml.Return {
	code := t.batch.run()
	t.code.Store(int32(code))
	if code != nvml.SUCCESS {
		return code
	}
	now := int64(time.Since(t.epoch))
	for i := range t.results {
		v, _ := t.batch.result(t.in[i])
		t.results[i].bits.Store(math.Float64bits(v))
		t.results[i].at.Store(now)
	}
	return code
}

// measure asks for the next measurement, unless one is wanted already.
func (t *throughput) measure(now time.Time) {
	t.asked = now.Sub(t.epoch)
	if t.measured() >= t.since {
		t.since = t.asked
	}
	select {
	case t.want <- struct{}{}:
	default:
	}
}

// newest is the newest measurement of a direction: the one that the sample before
// asked for, or, if that is not done yet, one of the last second; else NaN.
func (t *throughput) newest(i int, now time.Time) float64 {
	r := &t.results[i]
	at := time.Duration(r.at.Load())
	if at < t.asked && now.Sub(t.epoch)-at > staleThroughput {
		return math.NaN()
	}
	return math.Float64frombits(r.bits.Load())
}

// overdue reports whether a measurement that was asked for takes too long.
func (t *throughput) overdue(now time.Time) bool {
	return t.measured() < t.since && now.Sub(t.epoch)-t.since > staleThroughput
}

// measured is when the newest measurement was made.
func (t *throughput) measured() time.Duration { return time.Duration(t.results[0].at.Load()) }

// trouble is the fatal answer to the newest measurement, if it was one.
func (t *throughput) trouble() nvml.Return { return nvml.Return(t.code.Load()) }

// close ends the goroutine and waits for it.
func (t *throughput) close() {
	close(t.want)
	<-t.done
}

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
// Each peer is asked about on a goroutine, one call at a time, and a peer that has not
// answered is blank.
type peersPart struct {
	pairs    []*pair
	cols     []collector.Column // pair-major
	answered chan struct{}
	timer    *time.Timer
	cost     meter
	calling  sync.WaitGroup
}

// pair is the question about one peer.
type pair struct {
	peer
	busy   atomic.Bool  // a call is in progress
	status atomic.Int64 // what the last one answered
	asked  bool         // in the sample in hand
}

// peer is another GPU, with the index that label peer_gpu shows.
type peer struct {
	index int
	ask   func() (status int, ok bool)
}

var _ part = (*peersPart)(nil)

// newPeers makes the part of what a GPU reaches over NVLink; nil if it is not
// wanted, the driver does not know or there is no other GPU.
func newPeers(l *library, g *gpu, all []*gpu, fields []field.Reading) part {
	if !wanted(fields, field.P2PStatus) || !l.has("nvmlDeviceGetP2PStatus") {
		return nil
	}
	var peers []peer
	for _, other := range all {
		if other == g || other.handle == nil {
			continue
		}
		peers = append(peers, peer{other.index, func() (int, bool) {
			status, code := g.handle.GetP2PStatus(other.handle, nvml.P2P_CAPS_INDEX_NVLINK)
			return min(int(status), lastLinkStatus), code == nvml.SUCCESS && status >= 0 // one of a driver to come is "Unknown"
		}})
	}
	if len(peers) == 0 {
		return nil
	}
	return newPeersPart(peers)
}

// newPeersPart makes the part of a GPU that has the peers.
func newPeersPart(peers []peer) *peersPart {
	p := &peersPart{answered: make(chan struct{}, 1), timer: time.NewTimer(0), cost: meter{call: "nvmlDeviceGetP2PStatus"}}
	p.timer.Stop()
	for _, other := range peers {
		x := &pair{peer: other}
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
			p.calling.Go(func() { p.ask(x) })
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
	for slices.ContainsFunc(p.pairs, func(x *pair) bool { return x.asked && x.busy.Load() }) {
		select {
		case <-p.answered:
		case <-p.timer.C:
			return
		}
	}
}

func (p *peersPart) ask(x *pair) {
	start := time.Now()
	if status, ok := x.ask(); ok {
		x.status.Store(int64(status))
	}
	p.cost.add(start)
	x.busy.Store(false)
	select {
	case p.answered <- struct{}{}:
	default: // one is waiting there
	}
}

func (p *peersPart) calls() []collector.CallCost { return []collector.CallCost{p.cost.cost()} }

func (p *peersPart) close() { p.calling.Wait() }
