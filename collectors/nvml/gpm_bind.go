//go:build linux && cgo

package nvml

import (
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// gpmWish is a column that GPM could supply.
type gpmWish struct {
	target
	field.Reading
	profiling

	metric uint32
	code   nvml.Return // what GPM answered to it when it was tried
}

// gpmPlan is the wishes about one subject.
type gpmPlan struct {
	gpmSubject
	wishes []gpmWish
}

// newGPM makes the part of a GPU's profiling fields, nil if there are none. The
// first of targets is the GPU; those of instances are as in g.instances.
func newGPM(l *library, g *gpu, targets []target, fields []field.Reading, log *zap.Logger) (part, error) {
	plans := planGPM(g, targets, fields)
	if len(plans) == 0 {
		return nil, nil //nolint:nilnil // no part, no error
	}
	log = log.With(zap.String("source", g.device.ID))
	if reason := l.withoutGPM(g); reason != "" {
		log.Info("profiling fields of GPM are left out", zap.String("reason", reason))
		return nil, nil //nolint:nilnil // no part, no error
	}
	kept := plans[:0]
	for _, p := range plans {
		if err := p.try(l); err != nil {
			return nil, fmt.Errorf("bind profiling fields: %w", err)
		}
		if len(p.wishes) > 0 {
			kept = append(kept, p)
		}
	}
	if len(kept) == 0 {
		log.Info("profiling fields of GPM are left out", zap.String("reason", "the driver serves none of them"))
		return nil, nil //nolint:nilnil // no part, no error
	}
	out, err := assembleGPM(l, kept)
	if err != nil {
		return nil, fmt.Errorf("bind profiling fields: %w", err)
	}
	out.log, out.watch = log, l.newMIGWatch(g)
	return out, nil
}

// withoutGPM says why a GPU has no GPM, "" if it has.
func (l *library) withoutGPM(g *gpu) string {
	for _, s := range []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"} {
		if !l.has(s) {
			return "driver " + l.versions().driver + " has no GPM (525 and newer have)"
		}
	}
	support, code := g.handle.GpmQueryDeviceSupport()
	switch {
	case code != nvml.SUCCESS:
		return "nvmlGpmQueryDeviceSupport: " + code.Error()
	case support.IsSupportedDevice == 0:
		return "the GPU has no GPM (Hopper and newer have); with DCGM there are profiling fields of older GPUs, too"
	}
	return ""
}

// planGPM lists what GPM could supply, by what samples are taken of.
func planGPM(g *gpu, targets []target, fields []field.Reading) []*gpmPlan {
	var out []*gpmPlan
	for _, t := range targets {
		var wishes []gpmWish
		for _, f := range fields {
			row, ok := profilingOf(f.Desc.ID)
			if !ok || !row.wants(f.Desc, t.level) {
				continue
			}
			if m := row.metricOf(int(t.link)); m != 0 {
				wishes = append(wishes, gpmWish{target: t, Reading: f, profiling: row, metric: m})
			}
		}
		if len(wishes) == 0 {
			continue
		}
		s := subjectOf(g, t)
		i := slices.IndexFunc(out, func(p *gpmPlan) bool { return p.raw == s.raw && p.instance == s.instance })
		if i < 0 {
			i, out = len(out), append(out, &gpmPlan{gpmSubject: s})
		}
		out[i].wishes = append(out[i].wishes, wishes...)
	}
	return out
}

// subjectOf is what samples for a target are taken of. A GPU instance is asked for
// by its id on the GPU: that is the sum of its compute instances.
func subjectOf(g *gpu, t target) gpmSubject {
	s := gpmSubject{raw: t.raw, instance: wholeDevice, device: t.device, taken: -1}
	switch t.level {
	case field.Instance:
		s.mig, s.raw, s.instance = true, g.raw, uint32(g.instances[t.device-1].gi)
	case field.ComputeInstance:
		s.mig = true
	}
	return s
}

// try takes two samples and drops the wishes that GPM does not know. Their values
// mean nothing: no time is between them.
func (p *gpmPlan) try(l *library) error {
	calls, err := newGPMCalls(l.dl, 2, 1, p.metrics())
	if err != nil {
		return err
	}
	defer calls.close()
	var samples [2]uint64
	for i := range samples {
		if samples[i], err = calls.sample(); err != nil {
			return err
		}
	}
	calls.take(p.raw, p.instance, samples[0])
	newer := calls.take(p.raw, p.instance, samples[1])
	calls.read(samples[0], samples[1], 0, len(p.wishes), newer)
	calls.run()
	taken := calls.taken(newer)
	if lost(taken) || isFatal(taken) {
		return gpmError(taken)
	}
	for i := range p.wishes {
		p.wishes[i].code = taken
		if taken == nvml.SUCCESS {
			_, p.wishes[i].code = calls.value(i)
		}
	}
	p.drop()
	return nil
}

// drop forgets wishes that GPM says it has not. INVALID_ARGUMENT means that of a
// metric which is newer than the driver, but of all of them it may as well be said
// of samples without time between.
func (p *gpmPlan) drop() {
	invalid := func(w gpmWish) bool { return w.code == nvml.ERROR_INVALID_ARGUMENT }
	all := !slices.ContainsFunc(p.wishes, func(w gpmWish) bool { return !invalid(w) })
	p.wishes = slices.DeleteFunc(p.wishes, func(w gpmWish) bool {
		switch w.code {
		case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
			return true
		}
		return invalid(w) && !all
	})
}

func (p *gpmPlan) metrics() []uint32 {
	out := make([]uint32, len(p.wishes))
	for i, w := range p.wishes {
		out[i] = w.metric
	}
	return out
}

// assembleGPM makes the part of the wishes that are left.
func assembleGPM(l *library, plans []*gpmPlan) (*gpmPart, error) {
	out := &gpmPart{now: time.Now}
	var metrics []uint32
	for i, p := range plans {
		for len(p.wishes) > 0 {
			like := p.wishes[0].Reading
			g := gpmGroup{subject: i, first: len(out.cols), older: -1}
			p.wishes = slices.DeleteFunc(p.wishes, func(w gpmWish) bool {
				if w.Interval != like.Interval || w.Default != like.Default {
					return false
				}
				out.cols = append(out.cols, collector.Column{Device: w.device, Field: w.Desc.ID})
				out.scales = append(out.scales, gpmScale{w.scale, w.Desc.Kind == field.Int64})
				metrics = append(metrics, w.metric)
				return true
			})
			g.n = len(out.cols) - g.first
			out.groups = append(out.groups, g)
			p.groups++
		}
		out.subjects = append(out.subjects, p.gpmSubject)
	}
	return out, out.allocate(l, metrics)
}

// allocate makes room for everything that a sample needs.
func (p *gpmPart) allocate(l *library, metrics []uint32) error {
	calls, err := newGPMCalls(l.dl, len(p.subjects), len(p.groups), metrics)
	if err != nil {
		return err
	}
	for i := range p.subjects {
		s := &p.subjects[i]
		for range s.groups + 1 {
			b, err := calls.sample()
			if err != nil {
				calls.close()
				return err
			}
			s.buffers = append(s.buffers, b)
		}
	}
	p.batch = calls
	return nil
}
