//go:build linux && cgo

package nvml

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// vgpu is a virtual GPU that runs on a GPU of this host.
type vgpu struct {
	id     uint32 // nvmlVgpuInstance_t
	device collector.Device
}

// vgpus finds the vGPUs of a GPU, if the list asks for fields of theirs. Their
// devices are as the GPU's but for the UUID, which is theirs.
func (a *assembly) vgpus(g *gpu) []vgpu {
	if !a.wants(field.VGPU) {
		return nil
	}
	ids, code := activeVGPUs(a.lib.dl, g.raw)
	if code != nvml.SUCCESS {
		return nil
	}
	out := make([]vgpu, len(ids))
	for i, id := range ids {
		d := g.device
		d.Facts = nil
		d.Level, d.Parent = field.VGPU, g.device.ID
		d.UUID = vgpuUUID(a.lib.dl, id)
		if d.UUID == "" {
			d.UUID = g.device.UUID + "/vgpu" + strconv.FormatUint(uint64(id), 10)
		}
		d.ID = g.device.ID + "/" + d.UUID
		out[i] = vgpu{id, d}
	}
	return out
}

// vgpuEvery is how often a GPU is asked whether virtual machines have come or gone.
const vgpuEvery = 5 * time.Second

// vgpuPart has no columns. It asks for a new Open when there are more or fewer
// vGPUs than there were. One that took the place of another is found when the
// other is asked for its values.
type vgpuPart struct {
	batch *batch
	count float64
	asked time.Time
	now   func() time.Time

	made, nanos atomic.Uint64
}

var _ part = (*vgpuPart)(nil)

// newVGPUPart returns nil for a GPU that cannot have vGPUs.
func newVGPUPart(l *library, raw uintptr) (part, error) {
	p := newPlan(l, raw)
	if _, ok := p.ask(of(getActiveVGPUs, 0)[0], raw, 0); !ok {
		return nil, nil //nolint:nilnil // no part, no error
	}
	b, err := p.batch()
	if err != nil {
		return nil, err
	}
	b.wantCall(0)
	code := b.run()
	count, own := b.result(0)
	switch {
	case isFatal(code):
		err = fatal(code)
		fallthrough
	case own != nvml.SUCCESS:
		b.close()
		return nil, err
	}
	return &vgpuPart{batch: b, count: count, asked: time.Now(), now: time.Now}, nil
}

func (*vgpuPart) columns() []collector.Column { return nil }

func (p *vgpuPart) sample([]float64, []bool) error {
	now := p.now()
	if now.Sub(p.asked) < vgpuEvery {
		return nil
	}
	p.asked = now
	code := p.batch.run()
	n, d := p.batch.cost(0)
	p.made.Add(n)
	p.nanos.Add(d)
	if code != nvml.SUCCESS {
		return fatal(code)
	}
	if count, code := p.batch.result(0); code == nvml.SUCCESS && count != p.count {
		return collector.ErrColumnsChanged
	}
	return nil
}

func (p *vgpuPart) calls() []collector.CallCost {
	return []collector.CallCost{{Call: getActiveVGPUs.name(), Count: p.made.Load(), Time: time.Duration(p.nanos.Load())}}
}

func (p *vgpuPart) close() { p.batch.close() }
