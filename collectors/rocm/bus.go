package rocm

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/collectors/rocm/internal/raw"
)

// bus reads pcie_bw on a schedule of its own: the driver sleeps for a second in
// each read, which no tick can wait for.
type bus struct {
	files  raw.Files
	every  time.Duration
	values [2]atomic.Uint64 // bits of bytes per second: sent, received
	stop   chan struct{}
	ended  chan struct{}
	once   sync.Once
}

// minBusInterval leaves the driver a pause: each read takes a second.
const minBusInterval = 2 * time.Second

func startBus(files raw.Files, every time.Duration) *bus {
	b := &bus{files: files, every: max(every, minBusInterval), stop: make(chan struct{}), ended: make(chan struct{})}
	b.store(math.NaN(), math.NaN())
	go b.run()
	return b
}

func (b *bus) run() {
	defer close(b.ended)
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for {
		sent, received := math.NaN(), math.NaN()
		if !b.files.Suspended() {
			var err error
			if sent, received, err = b.files.Bus(); err != nil {
				sent, received = math.NaN(), math.NaN()
			}
		}
		b.store(sent, received)
		select {
		case <-b.stop:
			return
		case <-tick.C:
		}
	}
}

func (b *bus) store(sent, received float64) {
	b.values[0].Store(math.Float64bits(sent))
	b.values[1].Store(math.Float64bits(received))
}

// latest is what the last read said; NaN before the first and after one that failed.
func (b *bus) latest() [2]float64 {
	return [2]float64{math.Float64frombits(b.values[0].Load()), math.Float64frombits(b.values[1].Load())}
}

// close ends the schedule. It waits for a read in progress, which takes a second,
// but not for one that hangs.
func (b *bus) close() {
	b.once.Do(func() { close(b.stop) })
	patience := time.NewTimer(minBusInterval)
	defer patience.Stop()
	select {
	case <-b.ended:
	case <-patience.C:
	}
}
