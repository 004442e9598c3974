//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// assembly makes sources of GPUs.
type assembly struct {
	lib    *library
	o      Options
	fields []field.Reading
	hold   func() (release func()) // as discovery's
	gpus   []*gpu

	mu   sync.Mutex
	late map[int]bool // GPUs whose parts have not been made, or were too late
}

// sources makes one source of each GPU, abreast: everything is asked for once, to
// find out what there is, and a GPU that hangs there delays no other. Its source
// has no columns and asks for a new Open when the GPU answers after all.
// collector.ErrOutdated ends all.
func (a *assembly) sources(ctx context.Context) ([]collector.Source, error) {
	made := make([]*source, len(a.gpus))
	errs := make([]error, len(a.gpus))
	a.late = map[int]bool{}
	for i := range a.gpus {
		a.late[i] = true
	}
	ended := abreast(ctx, a.o.Patience, len(a.gpus), func(i int) {
		defer a.hold()()
		made[i], errs[i] = a.source(a.gpus[i])
	}, func(i int) { // nobody has it, nobody will
		if made[i] != nil {
			made[i].close()
		}
		a.mu.Lock()
		delete(a.late, i)
		a.mu.Unlock()
	})
	out := make([]collector.Source, len(a.gpus))
	for i, g := range a.gpus {
		switch {
		case !ended[i]:
			out[i] = a.hung(i)
		case made[i] != nil:
			out[i] = made[i]
		default:
			out[i] = &silentSource{[]collector.Device{g.device}, errs[i], g.silent}
		}
	}
	for i := range errs {
		if ended[i] && errors.Is(errs[i], collector.ErrOutdated) {
			a.drop(out)
			return nil, errs[i]
		}
	}
	return out, nil
}

// drop ends sources that nobody will have.
func (*assembly) drop(sources []collector.Source) {
	for _, s := range sources {
		if s, ok := s.(*source); ok {
			s.close()
		}
	}
}

// hung is the source of a GPU whose parts are not made in time.
func (a *assembly) hung(i int) collector.Source {
	g := a.gpus[i]
	return &silentSource{
		devices: []collector.Device{g.device},
		err:     fmt.Errorf("%w: GPU %d, when it was asked what it has", errHangs, g.index),
		silent: func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.late[i]
		},
	}
}

// source makes the parts of one GPU. MIG comes first, so that nothing reads of
// instances that are no more, and GPM before what stands in for it.
func (a *assembly) source(g *gpu) (*source, error) {
	if g.err != nil {
		return nil, g.err
	}
	log := a.o.Log.With(zap.String("device", g.device.ID))
	devices, targets := a.devices(g)
	var parts []part
	add := func(p part) {
		if p != nil {
			parts = append(parts, p)
		}
	}
	if p := a.lib.newMIGPart(g); p != nil {
		add(p)
	}
	gpm, err := newGPM(a.lib, g, targets, a.fields, log)
	add(gpm)
	var p part
	if err == nil {
		p, err = newReadings(a.lib, g.raw, targets, a.fields, placesOf(gpm), log)
		add(p)
	}
	if err == nil && a.wants(field.VGPU) {
		p, err = newVGPUPart(a.lib, g.raw)
		add(p)
	}
	add(newEvents(a.lib, g, a.fields, log))
	if err == nil {
		p, err = newHealth(a.lib, g, a.fields, func(in []field.Reading) (part, error) {
			return newReadings(a.lib, g.raw, targets[:1], in, nil, zap.NewNop())
		}, log)
		add(p)
	}
	if err != nil {
		newSource(devices, parts...).close()
		return nil, fmt.Errorf("find out what GPU %d has: %w", g.index, err)
	}
	add(newPeers(a.lib, g, a.gpus, a.fields, log))
	s := newSource(devices, parts...)
	s.trim()
	return s, nil
}

// wants reports whether the list asks for fields of a level.
func (a *assembly) wants(level field.Level) bool {
	return slices.ContainsFunc(a.fields, func(r field.Reading) bool { return r.Desc.Level == level })
}

// devices are the GPU, its instances, its vGPUs and, where the list asks for fields of links,
// its links; and what of these the table of readings is asked for.
func (a *assembly) devices(g *gpu) ([]collector.Device, []target) {
	devices := []collector.Device{g.device}
	targets := []target{{raw: g.raw, level: field.GPU}}
	for _, in := range g.instances {
		targets = append(targets, target{device: len(devices), raw: in.raw, level: in.device.Level})
		devices = append(devices, in.device)
	}
	for _, v := range a.vgpus(g) {
		targets = append(targets, target{device: len(devices), raw: uintptr(v.id), level: field.VGPU})
		devices = append(devices, v.device)
	}
	if !a.wants(field.Link) {
		return devices, targets
	}
	ask, ok := linkQuestion(a.lib.dl, g.raw)
	if !ok {
		return devices, targets
	}
	states := ask()
	for n := range uint32(64) {
		if states.known>>n&1 == 1 {
			targets = append(targets, target{device: len(devices), raw: g.raw, level: field.Link, link: n})
			devices = append(devices, linkDevice(g.device, n))
		}
	}
	return devices, targets
}

// linkDevice is link n of a GPU, from 0. Its label counts from 1, as in
// dcgm-exporter.
func linkDevice(parent collector.Device, n uint32) collector.Device {
	d := parent
	d.Facts = nil
	d.Level, d.Parent = field.Link, parent.ID
	d.Link = strconv.Itoa(int(n) + 1)
	d.ID = parent.ID + "/link" + d.Link
	return d
}

// trim drops links of which there is no column at the end.
func (s *source) trim() {
	last := len(s.devices) - 1
	for last > 0 && s.devices[last].Level == field.Link && !slices.ContainsFunc(s.cols, func(c collector.Column) bool { return c.Device == last }) {
		last--
	}
	s.devices = s.devices[:last+1]
}
