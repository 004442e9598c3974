//go:build linux && cgo

package nvml

import (
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
)

// migEvery is how often a GPU is asked whether it is partitioned anew. Events say
// so at once, where the driver has them; between two rescans this does.
const migEvery = 5 * time.Second

// migPart has no columns. It asks for a new Open when its GPU is partitioned anew,
// before the others read of instances that are not those they were.
type migPart struct {
	watch *migWatch
	now   func() time.Time
	asked time.Time

	count, nanos atomic.Int64
}

var _ part = (*migPart)(nil)

// newMIGPart returns nil for a GPU that cannot be partitioned. It comes first of a
// source's parts.
func (l *library) newMIGPart(g *gpu) *migPart {
	w := l.newMIGWatch(g)
	if w == nil {
		return nil
	}
	return &migPart{watch: w, now: time.Now, asked: time.Now()}
}

func (*migPart) columns() []collector.Column { return nil }

func (p *migPart) sample([]float64, []bool) error {
	start := p.now()
	if start.Sub(p.asked) < migEvery {
		return nil
	}
	p.asked = start
	err := p.watch.err()
	p.count.Add(1)
	p.nanos.Add(int64(p.now().Sub(start)))
	return err
}

func (p *migPart) calls() []collector.CallCost {
	return []collector.CallCost{{Call: "nvmlDeviceGetMigDeviceHandleByIndex", Count: uint64(p.count.Load()), Time: time.Duration(p.nanos.Load())}}
}

func (*migPart) close() {}
