package fake

import (
	"math"
	"math/rand/v2"
	"time"
)

// Shape is a kind of load.
type Shape string

// The shapes. README.md describes them.
const (
	Idle      Shape = "idle"      // nothing except an occasional blip
	Training  Shape = "training"  // steps near full load, a checkpoint every two minutes
	Inference Shape = "inference" // requests come and go, over a "day" of one hour
	Bursts    Shape = "bursts"    // 50 ms of full load each second, else nothing
)

// Shapes returns the names of all shapes.
func Shapes() []string {
	return []string{string(Idle), string(Training), string(Inference), string(Bursts)}
}

// mix is how a shape uses the parts of a device at full load, as ratios to the part's maximum.
type mix struct {
	smActive, occupancy          float64
	tensor, fp64, fp32, fp16     float64
	dram, encoder, decoder       float64
	pcieTx, pcieRx               float64 // of the slot's bandwidth
	nvlink                       float64 // of the links' bandwidth, each way
	memory, memorySwing          float64 // used share of the memory when cold, and its increase when warm
	hostCPU, hostCPUSystem, nice float64
}

func (s Shape) mix() mix {
	switch s {
	case Training:
		return mix{smActive: 0.94, occupancy: 0.46, tensor: 0.62, fp64: 0.002, fp32: 0.14, fp16: 0.21, dram: 0.58,
			pcieTx: 0.04, pcieRx: 0.09, nvlink: 0.35, memory: 0.86, memorySwing: 0.06, hostCPU: 0.55, hostCPUSystem: 0.08}
	case Inference:
		return mix{smActive: 0.81, occupancy: 0.33, tensor: 0.38, fp32: 0.11, fp16: 0.18, dram: 0.77, encoder: 0.02, decoder: 0.3,
			pcieTx: 0.03, pcieRx: 0.05, nvlink: 0.08, memory: 0.62, memorySwing: 0.15, hostCPU: 0.4, hostCPUSystem: 0.12}
	case Bursts:
		return mix{smActive: 0.97, occupancy: 0.5, tensor: 0.45, fp32: 0.25, fp16: 0.2, dram: 0.5,
			pcieTx: 0.3, pcieRx: 0.3, nvlink: 0.2, memory: 0.21, hostCPU: 0.3, hostCPUSystem: 0.05}
	default:
		return mix{smActive: 0.8, occupancy: 0.2, fp32: 0.2, dram: 0.2, pcieTx: 0.01, pcieRx: 0.01, memory: 0.004, hostCPU: 0.2, nice: 0.1}
	}
}

// addShare adds a share of another mix.
func (m *mix) addShare(o mix, share float64) {
	for _, f := range []struct {
		to *float64
		v  float64
	}{
		{&m.smActive, o.smActive}, {&m.occupancy, o.occupancy},
		{&m.tensor, o.tensor}, {&m.fp64, o.fp64}, {&m.fp32, o.fp32}, {&m.fp16, o.fp16},
		{&m.dram, o.dram}, {&m.encoder, o.encoder}, {&m.decoder, o.decoder},
		{&m.pcieTx, o.pcieTx}, {&m.pcieRx, o.pcieRx}, {&m.nvlink, o.nvlink},
		{&m.memory, o.memory}, {&m.memorySwing, o.memorySwing},
	} {
		*f.to += f.v * share
	}
}

// Curves holds a load curve per shape. It takes nearly 1 MB, so a process that simulates many nodes shares a few Curves.
type Curves struct{ byShape map[Shape]*curve }

// NewCurves returns the curves of a node with that seed. The same seed gives the same curves.
func NewCurves(seed uint64) *Curves {
	random := func(n uint64) *rand.Rand {
		return rand.New(rand.NewPCG(seed, n)) //nolint:gosec // repeatable on purpose
	}
	return &Curves{map[Shape]*curve{
		Idle:      newCurve(100*time.Millisecond, idleLoads(random(1))),
		Training:  newCurve(50*time.Millisecond, trainingLoads(random(2))),
		Inference: newCurve(500*time.Millisecond, inferenceLoads(random(3))),
		Bursts:    newCurve(10*time.Millisecond, burstLoads(random(4))),
	}}
}

// idleLoads returns 5 minutes in steps of 100 ms.
func idleLoads(r *rand.Rand) []int64 {
	loads := make([]int64, 3000)
	load := int64(0)
	for i := range loads {
		switch {
		case load > 0 && r.IntN(3) > 0: // a blip continues
		case r.IntN(100) == 0:
			load = 10 + r.Int64N(30)
		default:
			load = 0
		}
		loads[i] = load
	}
	return loads
}

// trainingLoads returns 2 minutes in steps of 50 ms. A training step takes 1.25 s, including 150 ms of waiting for other
// GPUs' gradients; the last 6 s write a checkpoint.
func trainingLoads(r *rand.Rand) []int64 {
	const perStep, waiting, checkpoint = 25, 3, 6 * 20
	loads := make([]int64, 2400)
	for i := range loads {
		switch {
		case i >= len(loads)-checkpoint:
			loads[i] = 30 + r.Int64N(50)
		case i%perStep >= perStep-waiting:
			loads[i] = 550 + r.Int64N(150)
		default:
			loads[i] = 940 + r.Int64N(55)
		}
	}
	return loads
}

// inferenceLoads returns one hour, the simulated day, in steps of 500 ms, with autocorrelated noise (AR(1)). All loads
// are below capAt.
func inferenceLoads(r *rand.Rand) []int64 {
	loads := make([]int64, 7200)
	noise := 0.0
	for i := range loads {
		noise = 0.9*noise + 35*r.NormFloat64()
		day := 420 - 260*math.Cos(2*math.Pi*float64(i)/float64(len(loads)))
		loads[i] = int64(min(max(day+noise, 20), capAt-30))
	}
	return loads
}

// burstLoads returns one minute in steps of 10 ms, with a burst of 50 ms at a random time of each second.
func burstLoads(r *rand.Rand) []int64 {
	const perSecond, burst = 100, 5
	loads := make([]int64, 60*perSecond)
	for second := range 60 {
		start := second*perSecond + 20 + r.IntN(60)
		for i := range burst {
			loads[start+i] = full
		}
	}
	return loads
}

// full is a load of 100 % in the curves' unit, thousandths.
const full = 1000

// slot is a part of a curve with constant load. The sums cover all slots before it, in thousandths × microseconds, which
// is nanoseconds of full load. They are integers, so that counters are exact and never go back.
type slot struct {
	load    int64   // thousandths of the device's capacity
	power   int64   // thousandths of the way from idle power to the limit
	loadSum int64   //
	powSum  int64   //
	capSum  int64   // time at the power limit, in thousandths × µs
	warmth  float64 // 0…1 at the slot's start: temperatures follow it
}

// curve is a load that repeats for ever. It is immutable. All devices with its shape share it, at different offsets.
type curve struct {
	step  int64  // µs per slot
	slots []slot // one cycle
	cycle slot   // sums over a whole cycle
}

// point is the state of a curve at one time.
type point struct {
	load    float64 // 0…1
	power   float64 // 0…1 of the way from idle power to the limit
	warmth  float64 // 0…1
	capped  bool    // the limit holds the clocks down
	worked  float64 // seconds of full load so far
	drawn   float64 // seconds at the limit's power above idle so far
	limited float64 // seconds held down by the limit so far
}

// capAt is the load above which a board runs into its power limit.
const capAt = 930

// warmUp is the time constant of heat sink and sensor.
const warmUp = 20 * time.Second

// newCurve returns the curve of loads, in thousandths, one per step.
func newCurve(step time.Duration, loads []int64) *curve {
	c := &curve{step: step.Microseconds(), slots: make([]slot, len(loads))}
	for i, load := range loads {
		s := &c.slots[i]
		*s = c.cycle
		s.load, s.power = load, powerOf(load)
		c.cycle.loadSum += s.load * c.step
		c.cycle.powSum += s.power * c.step
		if load >= capAt {
			c.cycle.capSum += full * c.step
		}
	}
	c.warm()
	return c
}

// powerOf returns the power at a load. It reaches the limit at capAt; at higher loads it stays slightly below the limit.
func powerOf(load int64) int64 {
	if load < capAt {
		return load * full / capAt
	}
	return full - (load-capAt)*full/(full-capAt)/50
}

// warm computes the warmth as a first-order lag of the power. It repeats the cycle until its end matches its start;
// starting at the mean power needs few repetitions.
func (c *curve) warm() {
	warmth := float64(c.cycle.powSum) / float64(c.step*int64(len(c.slots))) / full
	k := 1 - math.Exp(-float64(c.step)/float64(warmUp.Microseconds()))
	for range 2 {
		for i := range c.slots {
			c.slots[i].warmth = warmth
			warmth += (float64(c.slots[i].power)/full - warmth) * k
		}
	}
}

// at evaluates the curve t microseconds after its start, t ≥ 0.
func (c *curve) at(t int64) point {
	n := int64(len(c.slots))
	i, rest := t/c.step, t%c.step
	s, next := &c.slots[i%n], &c.slots[(i+1)%n]
	worked, drawn := c.sums(t)
	limited := i/n*c.cycle.capSum + s.capSum
	if s.load >= capAt {
		limited += full * rest
	}
	return point{
		load: float64(s.load) / full, power: float64(s.power) / full, capped: s.load >= capAt,
		warmth: s.warmth + (next.warmth-s.warmth)*float64(rest)/float64(c.step),
		worked: float64(worked) / 1e9, drawn: float64(drawn) / 1e9, limited: float64(limited) / 1e9,
	}
}

// sums returns the integrals of load and power up to a time, in thousandths × µs.
func (c *curve) sums(t int64) (load, power int64) {
	i, rest := t/c.step, t%c.step
	cycles, s := i/int64(len(c.slots)), &c.slots[i%int64(len(c.slots))]
	return cycles*c.cycle.loadSum + s.loadSum + s.load*rest, cycles*c.cycle.powSum + s.powSum + s.power*rest
}

// addShare adds a share of another point, because a board's load is the sum over its instances. Instances never drive a
// board into its limit.
func (p *point) addShare(q point, share float64) {
	p.load += q.load * share
	p.power += q.power * share
	p.warmth += q.warmth * share
	p.worked += q.worked * share
	p.drawn += q.drawn * share
}
