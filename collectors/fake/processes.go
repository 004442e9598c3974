package fake

import (
	"context"
	"fmt"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/processes"
	"warpgauge/pkg/field"
)

// ProcessesName is the name of the collector of processes.
const ProcessesName = "fake-processes"

// Processes reads who is on the GPUs of a World: the processes that its spec puts
// there. It has one source for each GPU, with its instances.
type Processes struct{ Collector }

var (
	_ collector.Collector = (*Processes)(nil)
	_ collector.Rescanner = (*Processes)(nil)
)

// Processes makes an unopened collector of the processes on this node's GPUs. It
// is a collector.Factory.
func (w *World) Processes() collector.Collector { return &Processes{Collector{world: w}} }

// ProcessesFactory makes a node and returns the factory of the collectors of its
// processes.
func ProcessesFactory(o Options) (collector.Factory, error) {
	w, err := NewWorld(o)
	if err != nil {
		return nil, err
	}
	return w.Processes, nil
}

// Name is "fake-processes".
func (*Processes) Name() string { return ProcessesName }

// Open finds the node's GPUs. What is read does not depend on the list.
func (c *Processes) Open(ctx context.Context, _ field.List) ([]collector.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open simulated node: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened || c.closed.Load() {
		return nil, fmt.Errorf("open simulated node: a collector is opened once")
	}
	w := c.world
	elapsed, t := w.elapsed(), w.timeline.Load()
	if err := t.openError(elapsed); err != nil {
		return nil, err
	}
	b := &builder{world: w, elapsed: elapsed, count: t.gpus(elapsed, w.gpus), closed: &c.closed}
	if b.count == 0 {
		return nil, fmt.Errorf("open simulated node: its faults leave it 0 GPUs: %w", collector.ErrNoDevices)
	}
	sources := make([]collector.Source, b.count)
	for i := range sources {
		sources[i] = b.processes(i)
	}
	c.opened, c.gpus = true, b.count
	return sources, nil
}

// processSource is the processes on one GPU.
type processSource struct {
	*source
	homes []int // id of the instance of each device; −1 of the GPU
	flags processes.Flags

	list []processes.Process
}

func (b *builder) processes(i int) *processSource {
	s := &processSource{source: b.source(i, -1)}
	if b.world.profile.board.vendor == amd {
		s.flags = processes.Occupancy
	}
	add := func(d collector.Device, home int) {
		s.columns = processes.AppendColumns(s.columns, len(s.devices))
		s.devices, s.homes = append(s.devices, d), append(s.homes, home)
	}
	gpu := b.world.gpuDevice(i)
	add(gpu, -1)
	for _, part := range b.world.slices(i) {
		add(instanceDevice(gpu, part), part.id)
	}
	return s
}

// Sample writes who is there at the world's time. It blocks while a fault of kind
// Hang or Slow says so.
func (s *processSource) Sample(row []float64, due []bool) error {
	if len(row) != len(s.columns) || len(due) != len(s.columns) {
		return errShape
	}
	if s.closed.Load() {
		return errClosed
	}
	s.follow()
	if err := s.wait(); err != nil {
		return err
	}
	elapsed := s.world.elapsed()
	if err := s.broken(elapsed); err != nil {
		return err
	}
	for i, home := range s.homes {
		at := i * processes.Width
		switch block := row[at : at+processes.Width]; {
		case !due[at]:
		case s.untold(elapsed):
			processes.Blank(block)
		default:
			s.count(home)
			processes.Put(block, len(s.list), s.list)
		}
	}
	return nil
}

// untold reports whether a fault keeps the list from being told.
func (s *processSource) untold(elapsed time.Duration) bool {
	for _, f := range s.faults {
		if f.Kind == Blank && f.Field == nil && f.active(elapsed) {
			return true
		}
	}
	return false
}

// count lists the processes of an instance.
func (s *processSource) count(home int) {
	elapsed := s.world.elapsed()
	s.list = s.list[:0]
	for i := range s.world.people {
		p := &s.world.people[i]
		if p.Instance == home && contains(p.GPUs, s.gpu) && p.when.active(elapsed) {
			s.list = append(s.list, processes.Process{PID: p.PID, Memory: p.Memory, Busy: p.Busy, Flags: p.Kind | s.flags})
		}
	}
}
