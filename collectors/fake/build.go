package fake

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// builder builds the sources of one Open.
type builder struct {
	world    *World
	fields   field.List
	readings []field.Reading
	elapsed  time.Duration // at Open
	count    int           // number of GPUs in Open
	closed   *atomic.Bool
}

func (b *builder) source(gpu, nvswitch int) *source {
	s := &source{world: b.world, closed: b.closed, gpu: gpu, nvswitch: nvswitch}
	s.follow()
	// Faults before Open are not events.
	s.scripted = slices.DeleteFunc(s.scripted, func(f *fault) bool { return f.begun(b.elapsed) })
	return s
}

// unit adds a load and returns its number.
func (s *source) unit(l load) int {
	s.loads = append(s.loads, l)
	s.points = append(s.points, point{})
	return len(s.loads) - 1
}

// gpu builds the source of a board with its instances and links.
func (b *builder) gpu(i int) *source {
	w := b.world
	s := b.source(i, -1)
	g := w.newGPU(i, b.count)
	s.xids = xids{seed: hash(w.seed, forXID, uint64(i)), offset: g.offset * xidEvery, on: g.faulty && g.vendor == field.VendorNVIDIA}
	s.xidsSeen = s.xids.number(float64(w.uptime(b.elapsed).Microseconds()) / 1e6)

	slices := w.slices(i)
	var l load // the load of its instances, if there are any
	if len(slices) == 0 {
		l = w.load(w.shape(i), uint64(i))
	}
	s.unit(l)
	d := gpuDevice(w, i)
	d.Facts = b.facts(g.texts(d), g, l)
	if g.vendor == field.VendorAMD {
		d.Texts = collector.DialectTexts(b.fields, g.texts(d))
	}
	s.devices = append(s.devices, d)
	s.bind(b.readings, 0, 0, g)
	b.labelled(s, g)
	b.amd(s, g)
	for _, part := range slices {
		b.instance(s, g, part)
	}
	b.buffers(s, g)
	for n := range g.board.links {
		b.link(s, collector.LinkOf(s.devices[0], n), link{g, n})
	}
	return s
}

// labelled adds the readings that have several columns per board.
func (b *builder) labelled(s *source, g *gpu) {
	if g.vendor != field.VendorNVIDIA {
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

	d := collector.InstanceOf(s.devices[0], part.id, part.profile)
	d.Instance.UUID = "MIG-" + uuid(w.seed, uuidInstance, uint64(g.index)<<8|uint64(part.id)) // ids are below 15
	l := w.load(shape, hash(uint64(g.index), uint64(part.id)))
	d.Facts = b.facts(in.texts(d), &in, l)
	s.devices = append(s.devices, d)
	unit := s.unit(l)
	s.shares = append(s.shares, in.computing)
	s.bind(b.readings, len(s.devices)-1, unit, &in)
}

// link adds a link if the list has link fields: a node has a hundred links and more, and most lists do not need them.
func (b *builder) link(s *source, d collector.Device, of binder) {
	before := len(s.columns)
	s.bind(b.readings, len(s.devices), 0, of)
	if len(s.columns) > before {
		d.Facts = b.facts(b.world.nodeTexts(), of, s.loads[0])
		s.devices = append(s.devices, d)
	}
}

// nvswitch builds the source of a switch and its ports, nil if the list has no fields for them.
func (b *builder) nvswitch(i int) *source {
	w := b.world
	s := b.source(-1, i)
	n := &nvswitch{index: i, ports: w.profile.ports, port: -1}
	d := switchDevice(w, i)
	l := w.load(Training, hash(forOffset, uint64(i)))
	d.Facts = b.facts(w.nodeTexts(), n, l)
	s.devices = append(s.devices, d)
	s.unit(l)
	s.bind(b.readings, 0, 0, n)
	for port := range w.profile.ports {
		b.link(s, collector.LinkOf(d, port), &nvswitch{index: i, ports: w.profile.ports, port: port})
	}
	if len(s.columns) == 0 {
		return nil
	}
	return s
}

// cpu builds the source of a CPU and its cores, nil if the list has no fields for them.
func (b *builder) cpu(i int) *source {
	w := b.world
	s := b.source(-1, -1)
	d := cpuDevice(i)
	l := w.load(Training, hash(forOffset, uint64(i), 1))
	d.Facts = b.facts(map[field.ID]string{1140: "NVIDIA", 1141: d.Model}, &cpu{mix: Training.mix()}, l)
	s.devices = append(s.devices, d)
	s.unit(l)
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

// binder is a device to which fields are bound.
type binder interface {
	cell(d *field.Descriptor) (cell, bool)
}

// facts returns the label fields of a device with load l: texts, and numbers as of Open, as in the other collectors.
func (b *builder) facts(texts map[field.ID]string, of binder, l load) []collector.Label {
	micros := b.world.uptime(b.elapsed).Microseconds()
	var p point
	if l.curve != nil {
		p = l.curve.at(micros + l.offset)
	}
	var out []collector.Label
	for _, f := range b.fields.Labels() {
		text := texts[f.Desc.ID]
		if c, ok := of.cell(f.Desc); text == "" && ok && c.op != lastXID && c.op != xidEvent {
			c = finish(c, f.Desc, 0)
			text = strconv.FormatFloat(c.eval(&p, float64(micros)/1e6)*scale(f), 'f', -1, 64)
		}
		if text != "" {
			out = append(out, collector.Label{Name: f.Name, Value: text})
		}
	}
	return out
}

func scale(f field.Field) float64 {
	if f.Scale == 0 || math.IsNaN(f.Scale) {
		return 1
	}
	return f.Scale
}

func (b *builder) sources(ctx context.Context) ([]collector.Source, error) {
	var out []collector.Source
	add := func(s *source) {
		if s != nil {
			b.explain(s)
			out = append(out, s)
		}
	}
	for i := range b.count {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("open simulated node: %w", err)
		}
		add(b.gpu(i))
	}
	for i := range b.world.profile.switches {
		add(b.nvswitch(i))
	}
	for i := range b.world.profile.cpus {
		add(b.cpu(i))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("open simulated node: its faults leave it 0 GPUs: %w", collector.ErrNoDevices)
	}
	return out, nil
}

// explain records why devices lack fields.
func (b *builder) explain(s *source) {
	s.blank = s.Blank(collector.ReasonBlank, "a simulated fault blanks it")
	vendor := b.world.profile.board.vendor
	s.Complete(s.devices, s.columns, b.readings, func(device int, d *field.Descriptor) collector.Explanation {
		e := collector.Explanation{Reason: collector.ReasonUnsupported, Detail: "the simulated " + s.devices[device].Level.String() + " does not have it"}
		if foreign, is := collector.ForeignReading(d, vendor); is {
			return foreign
		}
		if vendor == field.VendorAMD && d.Vendor != vendor && !amdHas(d.ID) {
			e.Detail = "AMD GPUs do not have it"
		}
		return e
	})
}
