package fake

import (
	"cmp"
	"context"
	"math"
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

// binder is a device that binds numeric fields. cell returns how to compute a field, or false if the device lacks it.
type binder interface {
	cell(d *field.Descriptor) (cell, bool)
}

func bind(b binder, d *field.Descriptor) (cell, bool) {
	if d.Kind != field.Int64 && d.Kind != field.Double {
		return cell{}, false
	}
	return b.cell(d)
}

func (b *builder) source(gpu, nvswitch int) *source {
	s := &source{world: b.world, closed: b.closed, gpu: gpu, nvswitch: nvswitch, reported: map[*fault]bool{}}
	for _, f := range *b.world.faults.Load() {
		s.reported[f] = f.begun(b.elapsed) // faults before Open are not events
	}
	return s
}

// add adds a device with its own load to a source.
func (b *builder) add(s *source, d collector.Device, of binder, l load, texts map[field.ID]string) {
	s.bind(b.readings, len(s.devices), len(s.loads), of)
	d.Facts = b.facts(texts, of, l)
	s.devices, s.loads, s.points = append(s.devices, d), append(s.loads, l), append(s.points, point{})
}

// gpu builds the source of a board with its instances and links.
func (b *builder) gpu(i int) *source {
	w := b.world
	s := b.source(i, -1)
	g := w.newGPU(i, b.count)
	s.xids = xids{seed: hash(w.seed, forXID, uint64(i)), offset: g.offset * xidEvery, on: g.faulty && g.vendor == field.VendorNVIDIA}
	s.xidsSeen = s.xids.number(float64(w.uptime(b.elapsed).Microseconds()) / 1e6)

	var l load // the load of its instances, if there are any
	if !g.sliced {
		l = w.load(w.shape(i), uint64(i))
	}
	d := gpuDevice(w, i)
	texts := g.texts(d)
	if g.vendor == field.VendorAMD {
		d.Texts = collector.DialectTexts(b.fields, texts)
	}
	b.add(s, d, g, l, texts)
	for _, r := range b.readings {
		switch {
		case g.vendor != field.VendorNVIDIA:
		case r.Desc.ID == field.GPUHealth:
			s.healthColumns(r.Desc, b.elapsed)
		case r.Desc.ID == field.P2PStatus:
			s.p2pColumns(g, r.Desc)
		}
	}
	b.amd(s, g)
	for _, part := range w.slices(i) {
		b.instance(s, g, part)
	}
	for n := range g.board.links {
		b.link(s, collector.LinkOf(s.devices[0], n), link{g, n})
	}
	return s
}

func (b *builder) instance(s *source, g *gpu, part slice) {
	const sevenths, eighths = 7, 8
	in := *g
	in.instance, in.sliced = true, false
	in.mix = part.shape.mix()
	in.computing = float64(part.compute) / sevenths
	in.memory = float64(int(g.memory) * part.memory / eighths)
	in.reserved = float64(int(g.reserved) * part.memory / eighths)
	in.modelled = in.models()

	d := collector.InstanceOf(s.devices[0], part.id, part.profile)
	d.Instance.UUID = "MIG-" + uuid(b.world.seed, uuidInstance, uint64(g.index)<<8|uint64(part.id)) // ids are below 15
	s.shares = append(s.shares, in.computing)
	b.add(s, d, &in, b.world.load(part.shape, hash(uint64(g.index), uint64(part.id))), in.texts(d))
}

// link adds a link with the load of its board or switch. It skips the link if the list has no link fields, because a
// node has more than a hundred links and most lists do not need them.
func (b *builder) link(s *source, d collector.Device, of binder) {
	before := len(s.columns)
	s.bind(b.readings, len(s.devices), 0, of)
	if len(s.columns) > before {
		d.Facts = b.facts(b.world.nodeTexts(), of, s.loads[0])
		s.devices = append(s.devices, d)
	}
}

// nvswitch builds the source of a switch and its ports.
func (b *builder) nvswitch(i int) *source {
	w := b.world
	s := b.source(-1, i)
	d := switchDevice(w, i)
	b.add(s, d, nvswitch(i, w.profile.ports), w.load(Training, hash(forOffset, uint64(i))), w.nodeTexts())
	for port := range w.profile.ports {
		b.link(s, collector.LinkOf(d, port), nvswitchPort(port))
	}
	return s
}

// cpu builds the source of a CPU and its cores.
func (b *builder) cpu(i int) *source {
	w := b.world
	s := b.source(-1, -1)
	number := strconv.Itoa(i)
	d := collector.Device{ID: "CPU-" + number, Level: field.CPU, Labels: []collector.Label{{Name: "cpu", Value: number}}, Model: "Grace" + modelSuffix}
	b.add(s, d, cpu(), w.load(Training, hash(forOffset, uint64(i), 1)), map[field.ID]string{1140: "NVIDIA", 1141: d.Model})
	for n := range w.profile.cores {
		n += i * w.profile.cores
		shape := []Shape{Training, Inference, Idle}[n%3]
		before := len(s.columns)
		if s.bind(b.readings, len(s.devices), len(s.loads), core(shape.mix())); len(s.columns) > before {
			s.devices, s.points = append(s.devices, coreDevice(d, n)), append(s.points, point{})
			s.loads = append(s.loads, w.load(shape, hash(forOffset, uint64(n), 2)))
		}
	}
	return s
}

// facts returns the label fields of a device with load l: its texts, and the values that its numbers have at Open.
func (b *builder) facts(texts map[field.ID]string, of binder, l load) []collector.Label {
	micros := b.world.uptime(b.elapsed).Microseconds()
	var p point
	if l.curve != nil {
		p = l.curve.at(micros + l.offset)
	}
	var out []collector.Label
	for _, f := range b.fields.Labels() {
		text := texts[f.Desc.ID]
		if c, ok := bind(of, f.Desc); text == "" && ok && c.op != lastXID && c.op != xidEvent {
			scale := f.Scale
			if scale == 0 || math.IsNaN(scale) {
				scale = 1
			}
			c = finish(c, f.Desc, 0)
			text = strconv.FormatFloat(c.eval(&p, float64(micros)/1e6)*scale, 'f', -1, 64)
		}
		if text != "" {
			out = append(out, collector.Label{Name: f.Name, Value: text})
		}
	}
	return out
}

// sources builds the sources of all GPUs, and of switches and CPUs if the list has fields for them.
func (b *builder) sources(ctx context.Context, processes bool) (out []collector.Source) {
	for i := 0; i < b.count && ctx.Err() == nil; i++ {
		if processes {
			out = append(out, b.processes(i))
			continue
		}
		s := b.gpu(i)
		b.explain(s)
		out = append(out, s)
	}
	add := func(n int, build func(i int) *source) {
		for i := range n {
			if s := build(i); len(s.columns) > 0 {
				b.explain(s)
				out = append(out, s)
			}
		}
	}
	if !processes {
		add(b.world.profile.switches, b.nvswitch)
		add(b.world.profile.cpus, b.cpu)
	}
	return out
}

// explain records why devices lack fields.
func (b *builder) explain(s *source) {
	s.blank = s.Blank(collector.ReasonBlank, "a simulated fault blanks it")
	vendor := b.world.profile.board.vendor
	s.Complete(s.devices, s.columns, b.readings, func(device int, d *field.Descriptor) collector.Explanation {
		if foreign, is := collector.ForeignReading(d, vendor); is {
			return foreign
		}
		detail := "the simulated " + s.devices[device].Level.String() + " does not have it"
		if vendor == field.VendorAMD && d.Vendor != vendor {
			detail = "AMD GPUs do not have it"
		}
		return collector.Explanation{Reason: collector.ReasonUnsupported, Detail: detail}
	})
}

// healthWatches lists DCGM's watches, spelled as in the label health_watch.
func healthWatches() []string {
	return []string{"PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL"}
}

// healthCodes maps a watch to its default error code, in dcgm-exporter's spelling.
var healthCodes = map[string]string{
	"PCIE": "DCGM_FR_PCI_REPLAY_RATE", "NVLINK": "DCGM_FR_NVLINK_DOWN", "MEM": "DCGM_FR_VOLATILE_DBE_DETECTED",
	"INFOROM": "DCGM_FR_CORRUPT_INFOROM", "THERMAL": "DCGM_FR_CLOCK_THROTTLE_THERMAL", "POWER": "DCGM_FR_CLOCK_THROTTLE_POWER",
}

// Results of a watch.
const (
	healthPass = 0
	healthWarn = 10
	healthFail = 20
)

// healthColumns adds one column per watch. The state is a label, so a change of health is a change of columns.
func (s *source) healthColumns(d *field.Descriptor, elapsed time.Duration) {
	for _, watch := range healthWatches() {
		state, code := healthPass, "DCGM_FR_OK"
		for _, f := range *s.world.faults.Load() {
			if f.Kind != Health || f.Watch != watch || !s.concerned(f) || !f.active(elapsed) {
				continue
			}
			state, code = healthWarn, cmp.Or(f.Code, healthCodes[watch], "DCGM_FR_UNKNOWN")
			if f.Fail {
				state = healthFail
			}
		}
		s.addColumn(d, 0, 0, fixed(float64(state)), labels("health_error_code", code, "health_watch", watch)...)
	}
	s.watchesHealth = true
	s.health = s.healthSum(elapsed)
}

// healthSum identifies the set of active health faults.
func (s *source) healthSum(elapsed time.Duration) uint64 {
	var sum uint64
	for i, f := range *s.world.faults.Load() {
		if f.Kind == Health && s.concerned(f) && f.active(elapsed) {
			sum += mixBits(uint64(i))
		}
	}
	return sum
}

// p2pColumns adds one column per peer. Boards without links reach no peers.
func (s *source) p2pColumns(g *gpu, d *field.Descriptor) {
	status, value := "OK", 0.0
	if g.board.links == 0 {
		status, value = "NotSupported", 5
	}
	for _, j := range peers(g.index, g.count) {
		s.addColumn(d, 0, 0, fixed(value), labels("link_status", status, "peer_gpu", strconv.Itoa(j))...)
	}
}
