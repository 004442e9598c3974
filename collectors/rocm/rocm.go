// Package rocm collects AMD GPUs. It reads them from /sys (package sysfs) and decodes gpu_metrics (package gpumetrics). With
// SourceSMI it reads the values that ROCm SMI returns reliably through ROCm SMI. Both readers return the same values.
//
// One source is one GPU with its partitions and XGMI links: a board, or one die of a two-die board. table.go lists its
// possible columns. Each column is a list of terms over raw readings and members of gpu_metrics; the first term with a
// value counts. The source's goroutine reads /sys. ROCm SMI's start, AMD SMI and pcie_bw have their own goroutines,
// which end with Close.
package rocm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Sources of the values.
const (
	SourceSysfs  = "sysfs"  // from /sys, in this process; no library is loaded
	SourceSMI    = "smi"    // through ROCm SMI, which may crash or block the process
	SourceAMDSMI = "amdsmi" // from /sys, and through AMD SMI the values that /sys lacks
)

// Options selects the source of the values.
type Options struct {
	Root    string      // directory that holds /sys; "" means "/"
	Source  string      // SourceSMI or SourceAMDSMI; anything else means SourceSysfs
	Library string      // file or soname of librocm_smi64 or libamd_smi; "" searches the usual places
	Log     *zap.Logger // may be nil
}

// Present reports whether the node below root ("" means "/") has an AMD GPU with the amdgpu driver. It reads short files of
// /sys and loads nothing.
func Present(root string) bool {
	found, err := sysfs.New(sysfs.Options{Root: root}).Find(context.Background())
	return err == nil && len(found.GPUs) > 0
}

// Collector reads the AMD GPUs of a node.
type Collector struct {
	machine
	smi     *rocmSMI // nil if not used
	added   *added   // nil if not used
	sources []*source
	peeks   sync.WaitGroup
}

var (
	_ collector.Collector = (*Collector)(nil)
	_ collector.Rescanner = (*Collector)(nil)
	_ collector.Limited   = (*Collector)(nil)
)

// New returns an unopened collector and touches nothing.
func New(o Options) *Collector { return &Collector{machine: newMachine(o)} }

// Name is "rocm".
func (*Collector) Name() string { return Name }

// Open finds the GPUs in /sys, starts the library that Options.Source needs, and binds the list. It reads gpu_metrics
// once per GPU and does not wait for a hanging GPU. If AMD SMI cannot be loaded, Open succeeds with the values of /sys.
// Errors: collector.ErrNotLoaded (no driver, or no ROCm SMI with SourceSMI), collector.ErrNoDevices,
// collector.ErrNotBuiltIn, ctx's error, all wrapped.
func (c *Collector) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	found, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	if c.o.Source == SourceSMI {
		if c.smi, err = startSMI(c.o.Library); err != nil {
			return nil, fmt.Errorf("start ROCm SMI, which --rocm-source=smi asks for: %w", err)
		}
		c.o.Log.Info("reading through ROCm SMI", zap.String("file", c.smi.Path()))
	}
	if c.o.Source == SourceAMDSMI {
		switch c.added, err = startAdded(ctx, c.o, found.GPUs, addedInterval(fields)); {
		case errors.Is(err, collector.ErrNotLoaded):
			c.o.Log.Warn("cannot load AMD SMI; using /sys only", zap.Error(err))
		case err != nil:
			return nil, fmt.Errorf("start AMD SMI, which --rocm-source=amdsmi asks for: %w", err)
		}
	}
	if found.Hidden > 0 {
		c.o.Log.Warn("compute devices are hidden: the device control group of this process may not use their render nodes; "+
			"partitions, compute units and processes are missing", zap.Int("devices", found.Hidden))
	}
	gpus := found.GPUs
	out := make([]collector.Source, len(gpus))
	unknown, unread := 0, []string(nil)
	for i, metrics := range c.peekAll(ctx, gpus) {
		if metrics != nil && metrics.Unknown() > unknown {
			unknown, unread = metrics.Unknown(), metrics.Unread()
		}
		s := c.source(node{i, len(gpus)}, &gpus[i], &found, fields, metrics)
		c.sources = append(c.sources, s)
		out[i] = s
	}
	if unknown > 0 {
		c.o.Log.Warn("gpu_metrics has attributes that this version does not read, or not all values of", zap.Int("attributes", unknown), zap.Strings("first", unread))
	}
	if c.added != nil {
		c.added.begin(ctx)
	}
	// peekAll returns early when ctx ends. Open continues after a deadline, because a hanging GPU may have used up the
	// time, but a cancelled Open must fail.
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return nil, errors.Join(fmt.Errorf("open AMD GPUs: %w", err), c.Close())
	}
	return out, nil
}

// metricsPatience is how long Open waits for all GPUs' gpu_metrics, which determine the columns. A GPU that does not
// answer in time gets all possible columns.
const metricsPatience = time.Second

// peekAll reads gpu_metrics of each GPU. An entry is nil if that fails or takes too long.
func (c *Collector) peekAll(ctx context.Context, gpus []sysfs.GPU) []*gpumetrics.Metrics {
	out := make([]*gpumetrics.Metrics, len(gpus))
	type answer struct {
		i int
		m *gpumetrics.Metrics
	}
	answers := make(chan answer, len(gpus))
	for i := range gpus {
		c.peeks.Go(func() { answers <- answer{i, c.peek(&gpus[i])} })
	}
	ctx, cancel := context.WithTimeout(ctx, metricsPatience)
	defer cancel()
	for range gpus {
		select {
		case a := <-answers:
			out[a.i] = a.m
		case <-ctx.Done():
			return out
		}
	}
	return out
}

// peek reads gpu_metrics once with its own descriptor.
func (c *Collector) peek(g *sysfs.GPU) *gpumetrics.Metrics {
	files := c.files.Open(g, nil)
	defer files.Close()
	m := new(gpumetrics.Metrics)
	if files.Suspended() || files.Metrics(m) != nil {
		return nil
	}
	return m
}

// source binds the list to a GPU. m is its gpu_metrics in Open, or nil if unknown.
func (c *Collector) source(n node, g *sysfs.GPU, found *sysfs.Found, fields field.List, m *gpumetrics.Metrics) *source {
	s := &source{gpu: *g, log: c.o.Log.With(zap.String("device", gpuUUID(g))), partitions: gpumetrics.NA}
	if m != nil {
		s.partitions = m.Raw(gpumetrics.NumPartition, 0)
	}
	s.frame.unread[unreadPartitions] = hiddenPartitions(g, found, m)
	s.time.reset()
	units := want(n.units(g, c.added.factsOf(g.PCI), found.Driver, fields, m), fields)
	wanted := readings(units)
	s.files = c.files.Open(g, wanted)
	s.reader = c.reader(s.files, g, wanted)
	s.frame.processes = c.files.Processes(g)
	s.due, s.frame.values = make([]bool, len(wanted)), make([]float64, len(wanted))
	b := binder{slots: map[sysfs.Reading]int{}, metrics: m, bus: s.files.HasBus(), added: c.added, process: s.frame.processes.Has()}
	has, denied := s.files.Probe()
	for i := range has {
		s.frame.values[i] = math.NaN()
		if has[i] {
			b.slots[wanted[i]] = i
		}
	}
	s.blanks = s.newBlanks()
	bus, records := false, false
	for _, u := range units {
		device := len(s.devices)
		s.devices = append(s.devices, u.device)
		for i := range u.specs {
			cell, ok := b.bind(&u.specs[i])
			if !ok {
				s.Note(device, u.specs[i].field, b.lacks(&u.specs[i]))
				continue
			}
			cell.blank = s.blankOf(&cell, &u.specs[i], wanted, denied)
			s.columns = append(s.columns, collector.Column{Device: device, Field: u.specs[i].field, Labels: u.specs[i].labels})
			s.cells = append(s.cells, cell)
			bus = bus || cell.bus
			records = records || cell.records
			s.units = s.units || u.specs[i].field == field.AMDOccupancy
		}
	}
	s.Complete(s.devices, s.columns, fields.Readings(), s.rest)
	if bus {
		s.bus = startBus(s.files, shortestInterval(fields, busFields, time.Hour))
	}
	if c.added != nil {
		s.added = &addedGPU{pci: g.PCI, files: s.files, all: c.added, needed: records}
		c.added.gpus = append(c.added.gpus, s.added)
	}
	return s
}

// hiddenPartitions returns how many compute devices of a GPU KFD hides: the partitions of its mode minus those found. In
// CPX mode each chiplet is a partition, so the result is NaN unless the firmware reports the chiplets' clocks.
func hiddenPartitions(g *sysfs.GPU, found *sysfs.Found, m *gpumetrics.Metrics) float64 {
	if found.Hidden == 0 {
		return 0
	}
	n, known := map[string]int{"": 1, "SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}[g.Compute]
	for i := 0; !known && m != nil && i < gpumetrics.GfxClocks; i++ {
		if m.Raw(gpumetrics.CurrentGfxclk, i) != gpumetrics.NA {
			n++
		}
	}
	if !known && n < 2 { // older revisions have one clock for all chiplets
		return math.NaN()
	}
	return float64(max(n-len(g.Instances), 0))
}

// reader returns the library's reader if the library is in use and lists the GPU, or else files.
func (c *Collector) reader(files *sysfs.Handle, g *sysfs.GPU, wanted []sysfs.Reading) reader {
	if c.smi == nil {
		return files
	}
	r, ok := c.smi.open(files, g, wanted)
	if !ok {
		c.o.Log.Warn("ROCm SMI does not list a gpu; reading it from /sys", zap.String("device", g.PCI))
		return files
	}
	return r
}

// Close ends all goroutines, closes all files and stops the library.
func (c *Collector) Close() error {
	c.peeks.Wait()
	if c.added != nil { // it uses the sources' files
		c.added.close()
		c.added = nil
	}
	for _, s := range c.sources {
		s.close()
	}
	smi := c.smi
	c.sources, c.smi = nil, nil
	if smi == nil {
		return nil
	}
	return smi.close()
}
