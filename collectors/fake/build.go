package fake

import (
	"slices"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// builder makes the sources of one Open.
type builder struct {
	world    *World
	fields   field.List
	readings []field.Reading
	elapsed  time.Duration // when Open looks
	count    int           // GPUs at that time
	closed   *atomic.Bool
}

func (b *builder) source(gpu, nvswitch int) *source {
	s := &source{world: b.world, closed: b.closed, gpu: gpu, nvswitch: nvswitch}
	s.follow()
	// What happened before anybody looked.
	s.scripted = slices.DeleteFunc(s.scripted, func(f *fault) bool { return f.begun(b.elapsed) })
	return s
}

// unit adds a load and returns its number.
func (s *source) unit(l load) int {
	s.loads = append(s.loads, l)
	s.points = append(s.points, point{})
	return len(s.loads) - 1
}

// gpu makes the source of a board: the board, its instances, its links.
func (b *builder) gpu(i int) *source {
	w := b.world
	s := b.source(i, -1)
	g := w.newGPU(i, b.count)
	s.xids = xids{seed: hash(w.seed, forXID, uint64(i)), offset: g.offset * xidEvery, on: g.faulty && g.vendor == nvidia}
	s.xidsSeen = s.xids.number(float64(w.uptime(b.elapsed).Microseconds()) / 1e6)

	d := w.gpuDevice(i)
	d.Facts = facts(b.fields, g.texts(d), g)
	s.devices = append(s.devices, d)
	slices := w.slices(i)
	if len(slices) == 0 {
		s.unit(w.load(w.shape(i), uint64(i)))
	} else {
		s.unit(load{})
	}
	s.bind(b.readings, 0, 0, g)
	b.labelled(s, g)
	b.amd(s, g)
	for _, part := range slices {
		b.instance(s, g, part)
	}
	for n := range g.board.links {
		b.link(s, linkDevice(s.devices[0], n), link{g, n})
	}
	return s
}

// labelled adds the readings that have several columns a board.
func (b *builder) labelled(s *source, g *gpu) {
	if g.vendor != nvidia {
		return
	}
	for _, r := range b.readings {
		switch r.Desc.ID {
		case field.GPUHealth:
			s.healthColumns(r.Desc, 0, b.elapsed)
		case field.P2PStatus:
			s.p2pColumns(g, r.Desc, 0)
		}
	}
}

func (b *builder) instance(s *source, g *gpu, part slice) {
	w := b.world
	const sevenths, eighths = 7, 8
	shape := part.shape
	if override, ok := w.override(g.index); ok {
		shape = override
	}
	in := *g
	in.instance, in.sliced = true, false
	in.mix = shape.mix()
	in.computing = float64(part.compute) / sevenths
	in.memory = float64(int(g.memory) * part.memory / eighths)
	in.reserved = float64(int(g.reserved) * part.memory / eighths)

	d := instanceDevice(s.devices[0], part)
	d.MIGUUID = "MIG-" + uuid(w.seed, uuidInstance, uint64(g.index)<<8|uint64(part.id)) // ids are below 15
	d.Facts = facts(b.fields, in.texts(d), &in)
	s.devices = append(s.devices, d)
	unit := s.unit(w.load(shape, hash(uint64(g.index), uint64(part.id))))
	s.shares = append(s.shares, in.computing)
	s.bind(b.readings, len(s.devices)-1, unit, &in)
}

// link adds a link, unless the list asks for nothing that links have: a node
// has a hundred links and more, and most lists have no use for them.
func (b *builder) link(s *source, d collector.Device, of binder) {
	before := len(s.columns)
	s.bind(b.readings, len(s.devices), 0, of)
	if len(s.columns) > before {
		d.Facts = facts(b.fields, b.world.nodeTexts(), of)
		s.devices = append(s.devices, d)
	}
}

// nvswitch makes the source of a switch and its ports, nil if the list asks for
// nothing that they have.
func (b *builder) nvswitch(i int) *source {
	w := b.world
	s := b.source(-1, i)
	n := &nvswitch{index: i, ports: w.profile.ports, port: -1}
	d := w.switchDevice(i)
	d.Facts = facts(b.fields, w.nodeTexts(), n)
	s.devices = append(s.devices, d)
	s.unit(w.load(Training, hash(forOffset, uint64(i))))
	s.bind(b.readings, 0, 0, n)
	for port := range w.profile.ports {
		b.link(s, linkDevice(d, port), &nvswitch{index: i, ports: w.profile.ports, port: port})
	}
	if len(s.columns) == 0 {
		return nil
	}
	return s
}

// cpu makes the source of a CPU and its cores, nil if the list asks for nothing
// that they have.
func (b *builder) cpu(i int) *source {
	w := b.world
	s := b.source(-1, -1)
	d := cpuDevice(i)
	d.Facts = facts(b.fields, map[field.ID]string{1140: "NVIDIA", 1141: d.Model}, &cpu{mix: Training.mix()})
	s.devices = append(s.devices, d)
	s.unit(w.load(Training, hash(forOffset, uint64(i), 1)))
	s.bind(b.readings, 0, 0, &cpu{mix: Training.mix()})
	for n := range w.profile.cores {
		n += i * w.profile.cores
		shape := []Shape{Training, Inference, Idle}[n%3]
		core := &cpu{mix: shape.mix(), core: true}
		before := len(s.columns)
		s.bind(b.readings, len(s.devices), len(s.loads), core)
		if len(s.columns) > before {
			s.unit(w.load(shape, hash(forOffset, uint64(n), 2)))
			s.devices = append(s.devices, coreDevice(d, n))
		}
	}
	if len(s.columns) == 0 {
		return nil
	}
	return s
}
