package rocm

import (
	"context"
	"errors"
	"math"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// source binds the list to a GPU. m is its gpu_metrics at Open, nil if not known.
func (c *Collector) source(ctx context.Context, n node, g *raw.GPU, host raw.Node, fields field.List, m *gpumetrics.Metrics) (*source, error) {
	s := &source{gpu: *g, log: c.o.Log, partitions: gpumetrics.NA}
	if m != nil {
		s.partitions = m.Raw(gpumetrics.NumPartition, 0)
	}
	s.time.reset()
	units := want(n.units(g, host.Driver, fields, m), fields)
	slots, err := c.openReaders(ctx, s, g, readings(units))
	if err != nil {
		return nil, err
	}
	b := binder{slots: slots, metrics: m, bus: s.files.HasBus()}
	bus := false
	for _, u := range units {
		device := len(s.devices)
		s.devices = append(s.devices, u.device)
		for i := range u.specs {
			cell, ok := b.bind(&u.specs[i])
			if !ok {
				continue
			}
			s.columns = append(s.columns, collector.Column{Device: device, Field: u.specs[i].field, Labels: u.specs[i].labels})
			s.cells = append(s.cells, cell)
			bus = bus || cell.bus
		}
	}
	if bus {
		s.bus = startBus(s.files, busInterval(fields))
	}
	return s, nil
}

// openReaders opens the GPU and says where each reading that somebody has is
// found. What the library cannot tell is asked of /sys.
func (c *Collector) openReaders(ctx context.Context, s *source, g *raw.GPU, wanted []raw.Reading) (map[raw.Reading]int, error) {
	slots := map[raw.Reading]int{}
	rest := wanted
	if c.smi != nil {
		h, err := c.smi.Open(ctx, g, wanted)
		if err != nil {
			c.o.Log.Warn("reading a gpu from /sys: ROCm SMI does not have it", zap.String("device", g.PCI), zap.Error(err))
		} else {
			s.smi, s.split, rest = h, len(wanted), nil
			for i, has := range h.Has() {
				if has {
					slots[wanted[i]] = i
				} else {
					rest = append(rest, wanted[i])
				}
			}
		}
	}
	var err error
	if s.files, err = c.openFiles(ctx, g, rest); err != nil {
		return nil, errors.Join(err, s.close())
	}
	for i, has := range s.files.Has() {
		if has {
			slots[rest[i]] = s.split + i
		}
	}
	n := s.split + len(rest)
	s.due, s.frame.values = make([]bool, n), make([]float64, n)
	for i := range s.frame.values {
		s.frame.values[i] = math.NaN()
	}
	return slots, nil
}

// busInterval is the shortest that a row about PCIe traffic asks for.
func busInterval(fields field.List) time.Duration {
	shortest := time.Hour
	for _, r := range fields.Readings() {
		switch r.Desc.ID {
		case dcgmPCIeTx, dcgmPCIeRx, dcgmPCIeTxKB, dcgmPCIeRxKB:
			if r.Interval > 0 {
				shortest = min(shortest, r.Interval)
			}
		}
	}
	return shortest
}

// close can be called twice.
func (s *source) close() error {
	if s.bus != nil {
		s.bus.close()
	}
	var errs []error
	if s.smi != nil {
		errs = append(errs, s.smi.Close())
	}
	if s.files != nil {
		errs = append(errs, s.files.Close())
	}
	return errors.Join(errs...)
}
