//go:build linux && cgo

package nvml

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
)

// throughput measures PCIe traffic where the driver has no counters of it. Each
// nvmlDeviceGetPcieThroughput takes 20 ms, for which it watches the bus, so a
// goroutine of its own makes the calls: at ticks of 10 ms they would delay
// everything else of the GPU. A sample takes the newest result and asks for the
// next; close ends the goroutine, unless the driver hangs in its call.
type throughput struct {
	batch *batch
	slots []int
	wish  chan struct{} // holds one while a measurement is wanted
	done  chan struct{} // closed when the goroutine has ended and the batch is freed
	asked time.Duration // since epoch, when the newest measurement was asked for

	results []result
	code    atomic.Int32 // what a fatal answer was
	count   atomic.Uint64
	nanos   atomic.Uint64
	epoch   time.Time
	release func() error // lets go of the library, which a call that hangs must keep
}

// result is the newest measurement of one direction.
type result struct {
	bits atomic.Uint64 // of the float64, NaN if there is none
	at   atomic.Int64  // ns since epoch
}

// staleThroughput is how old a measurement may be, and how long one may take.
const staleThroughput = time.Second

// newThroughput binds the directions that the wishes ask for and measures once;
// has says which the device has. nil if none. It blocks for the measurement.
func newThroughput(l *library, raw uintptr, wishes []*wish) (t *throughput, has []bool, err error) {
	has = make([]bool, len(wishes))
	p := newPlan(l, raw)
	t = &throughput{
		wish: make(chan struct{}, 1), done: make(chan struct{}),
		results: make([]result, len(wishes)), slots: make([]int, len(wishes)), epoch: time.Now(),
	}
	for i, w := range wishes {
		t.results[i].bits.Store(math.Float64bits(math.NaN()))
		var in input
		if in, has[i] = p.ask(w.rows[0].terms[0], raw, 0); has[i] {
			t.slots[i] = in.slot
		}
	}
	if len(p.asked) == 0 {
		return nil, has, nil
	}
	if t.batch, err = p.batch(); err != nil {
		return nil, nil, err
	}
	for i := range t.batch.calls {
		t.batch.wantCall(i)
	}
	if code := t.ask(); code != nvml.SUCCESS {
		t.batch.close()
		return nil, nil, fatal(code)
	}
	some := false
	for i := range wishes {
		if has[i] {
			_, code := t.batch.result(t.slots[i])
			has[i] = !never(code)
			some = some || has[i]
		}
	}
	if !some {
		t.batch.close()
		return nil, has, nil
	}
	t.release = process.hold(l)
	go t.run()
	return t, has, nil
}

// run measures whenever it is asked to.
func (t *throughput) run() {
	defer close(t.done)
	for range t.wish {
		_ = t.ask() // trouble tells
	}
	t.batch.close()
	_ = t.release() // its error is for those who wait to use the driver
}

// ask makes the calls and stores what they gave.
func (t *throughput) ask() nvml.Return {
	code := t.batch.run()
	n, d := t.batch.cost(0)
	t.count.Add(n)
	t.nanos.Add(d)
	t.code.Store(int32(code))
	if code != nvml.SUCCESS {
		return code
	}
	now := int64(time.Since(t.epoch))
	for i := range t.results {
		v, code := t.batch.result(t.slots[i])
		if code != nvml.SUCCESS {
			v = math.NaN()
		}
		t.results[i].bits.Store(math.Float64bits(v))
		t.results[i].at.Store(now)
	}
	return code
}

// measure asks for the next measurement, unless one is wanted already.
func (t *throughput) measure(now time.Time) {
	t.asked = now.Sub(t.epoch)
	select {
	case t.wish <- struct{}{}:
	default:
	}
}

// newest is the newest measurement of a direction: the one that the sample before
// asked for, or where that is not done yet one of the last second; else NaN.
func (t *throughput) newest(i int, now time.Time) float64 {
	r := &t.results[i]
	at := time.Duration(r.at.Load())
	if at < t.asked && now.Sub(t.epoch)-at > staleThroughput {
		return math.NaN()
	}
	return math.Float64frombits(r.bits.Load())
}

// trouble is the fatal answer to the newest measurement, if it was one.
func (t *throughput) trouble() nvml.Return { return nvml.Return(t.code.Load()) }

func (t *throughput) cost() collector.CallCost {
	return collector.CallCost{Call: getPCIeThroughput.name(), Count: t.count.Load(), Time: time.Duration(t.nanos.Load())}
}

// close ends the goroutine and waits for it, but not for a driver that hangs in
// its call: the goroutine ends by itself if that ever returns.
func (t *throughput) close() {
	close(t.wish)
	select {
	case <-t.done:
	case <-time.After(staleThroughput):
	}
}
