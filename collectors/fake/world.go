package fake

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// World is one simulated node: its boards, their load and their faults. All readings are functions of its seed and of
// time, so two collectors of one world agree. Its methods are safe for concurrent use.
type World struct {
	profile *profile
	gpus    int // without faults of kind Devices
	loads   []Load
	people  []resident
	seed    uint64
	curves  *Curves

	now   func() time.Time
	start time.Time
	boot  time.Time // when the drivers were loaded, long before start

	mu     sync.Mutex               // for writers of faults
	faults atomic.Pointer[[]*fault] // oldest first; the list is immutable

	process *process // nil if faults must not damage the process

	release  sync.Once
	released chan struct{}
}

// NewWorld creates a node. Its fault timeline starts now.
func NewWorld(o Options) (*World, error) {
	if s := o.Spec; s != nil {
		o.Profile, o.Devices, o.Seed = cmp.Or(s.Profile, o.Profile), cmp.Or(s.Devices, o.Devices), cmp.Or(s.Seed, o.Seed)
	}
	p, err := findProfile(o.Profile)
	if err != nil {
		return nil, err
	}
	if o.Devices < 0 || o.Devices > maxDevices {
		return nil, fmt.Errorf("simulate %d devices: the number must be 1 to %d, or 0 for the profile's", o.Devices, maxDevices)
	}
	w := &World{
		profile: p, gpus: cmp.Or(o.Devices, p.gpus), seed: o.Seed, now: time.Now,
		curves: o.Curves, released: make(chan struct{}),
	}
	if w.curves == nil {
		w.curves = NewCurves(o.Seed)
	}
	if o.Now != nil {
		w.now = o.Now
	}
	if w.start = o.Start; w.start.IsZero() {
		w.start = w.now()
	}
	if o.Isolated {
		w.process = newProcess(w.elapsed(), o.Seed)
	}
	// The drivers were loaded up to 30 days before the year of the start, so that counters continue after a restart.
	year := time.Date(w.start.UTC().Year(), time.January, 1, 0, 0, 0, 0, time.UTC)
	w.boot = year.Add(-time.Hour * time.Duration(24+hash(o.Seed, forUptime)%(29*24)))
	w.faults.Store(&[]*fault{})
	if o.Spec != nil {
		w.loads = o.Spec.Loads
		if err := w.populate(o.Spec.Processes); err != nil {
			return nil, err
		}
		if err := w.script(o.Spec.Faults); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Collector returns an unopened collector of this node. It is a collector.Factory.
func (w *World) Collector() collector.Collector { return &Collector{world: w, name: Name} }

// Processes returns an unopened collector of the processes on this node's GPUs. It is a collector.Factory.
func (w *World) Processes() collector.Collector { return &Collector{world: w, name: ProcessesName} }

// Inject begins a fault now and ignores its At and While. The fault ends after its For, or when heal is called.
func (w *World) Inject(f Fault) (heal func(), err error) {
	f.At, f.While = 0, ""
	if err := errors.Join(f.validate(), w.permits(f.Kind)); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f.At = w.elapsed()
	added := w.add(f)
	return sync.OnceFunc(func() { close(added.healed) }), nil
}

// add adds a valid fault.
func (w *World) add(f Fault) *fault {
	added := &fault{Fault: f, healed: make(chan struct{}), err: f.sampleError(), start: w.start}
	all := append(slices.Clone(*w.faults.Load()), added)
	w.faults.Store(&all)
	return added
}

// script adds the faults of a spec.
func (w *World) script(faults []Fault) error {
	most := w.gpus
	for _, f := range faults {
		if f.Kind == Devices {
			most = max(most, f.Count)
		}
	}
	for _, f := range faults {
		err := cmp.Or(f.validate(), w.permits(f.Kind))
		if far := cmp.Or(beyond(f.GPUs, most, "device"), beyond(f.Switches, w.profile.switches, "switch")); err == nil && far != nil {
			err = fmt.Errorf("fault %q: %w", f.Kind, far)
		}
		if err != nil && f.line != 0 {
			err = fmt.Errorf("line %d: %w", f.line, err)
		}
		if err != nil {
			return err
		}
		w.add(f)
	}
	return nil
}

// permits returns an error for faults that damage the process, unless the process is isolated.
func (w *World) permits(kind FaultKind) error {
	if w.process == nil && kind.has("once") {
		return fmt.Errorf("fault %q ruins the process that samples: it needs --isolation=process", kind)
	}
	return nil
}

// beyond returns an error if a span begins after the last of n devices.
func beyond(spans Spans, n int, what string) error {
	for _, s := range spans {
		if s.First >= n {
			return fmt.Errorf("%s %d: the node has %d", what, s.First, n)
		}
	}
	return nil
}

// Release makes all current and future hanging calls return. Afterwards the world's collectors are unusable.
func (w *World) Release() { w.release.Do(func() { close(w.released) }) }

// elapsed returns the time since the world's start.
func (w *World) elapsed() time.Duration { return max(w.now().Sub(w.start), 0) }

// uptime returns the time since the drivers were loaded.
func (w *World) uptime(elapsed time.Duration) time.Duration { return w.start.Sub(w.boot) + elapsed }

// suspend blocks a call until f ends or is healed, or until the world is released.
func (w *World) suspend(f *fault) error {
	for f.active(w.elapsed()) {
		var over <-chan time.Time
		switch {
		case f.While != "":
			over = time.After(20 * time.Millisecond)
		case f.For > 0:
			over = time.After(f.At + f.For - w.elapsed())
		}
		select {
		case <-over:
		case <-f.healed:
		case <-w.released:
			return errReleased
		}
	}
	return nil
}

// override returns the shape that the spec gives GPU i.
func (w *World) override(i int) (shape Shape, ok bool) {
	for _, l := range w.loads {
		if l.GPUs.contain(i) {
			shape, ok = l.Shape, true
		}
	}
	return shape, ok
}

func (w *World) shape(i int) Shape {
	if shape, ok := w.override(i); ok {
		return shape
	}
	return w.profile.shapes[i%len(w.profile.shapes)]
}

// slices returns the MIG instances of GPU i, with the shapes that the spec gives them.
func (w *World) slices(i int) []slice {
	if w.profile.partition == nil {
		return nil
	}
	parts := w.profile.partition(i)
	if shape, ok := w.override(i); ok {
		for n := range parts {
			parts[n].shape = shape
		}
	}
	return parts
}

// load returns a shape's curve with the unit's offset. The boards of a training job wait for each other, so their
// offsets are close together.
func (w *World) load(shape Shape, unit uint64) load {
	c := w.curves.byShape[shape]
	span := c.step * int64(len(c.slots))
	if shape == Training {
		span = (200 * time.Millisecond).Microseconds()
	}
	return load{curve: c, offset: int64(hash(w.seed, forOffset, unit) % uint64(span))}
}

// newGPU describes board i of count.
func (w *World) newGPU(i, count int) *gpu {
	b := w.profile.board
	g := &gpu{
		board: b, world: w, index: i, count: count,
		computing: 1, memory: b.memoryMiB, reserved: b.reservedMiB,
		idleWatts: b.idleWatts * (0.97 + 0.06*fraction(hash(w.seed, forIdlePower, uint64(i)))),
		offset:    fraction(hash(w.seed, forErrors, uint64(i))),
		faulty:    i == w.faulty(),
	}
	g.mix = w.shape(i).mix()
	if parts := w.slices(i); len(parts) > 0 { // the board's load is the sum over its instances
		g.sliced, g.mix = true, mix{}
		for _, p := range parts {
			g.mix.addShare(p.shape.mix(), float64(p.compute)/7)
		}
	}
	g.modelled = g.models()
	return g
}

// faulty returns the index of the board that has occasional errors.
func (w *World) faulty() int { return int(hash(w.seed, forErrors) % uint64(max(w.gpus, 1))) }

// nodeTexts returns the texts that every device of the node shares.
func (w *World) nodeTexts() map[field.ID]string {
	if w.profile.board.vendor == field.VendorAMD {
		return map[field.ID]string{1: amdDriver}
	}
	return map[field.ID]string{1: nvidiaDriver, 2: nvmlVersion}
}
