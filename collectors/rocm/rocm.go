// Package rocm is the collector of AMD GPUs. It reads them through ROCm SMI
// where that is installed, and from /sys without it; both readers answer alike
// (package raw is the seam), and gpu_metrics is decoded here in either case.
//
// One source is one GPU: a board, or one die of a board that has two, with its
// partitions and XGMI links. What it can tell is in table.go: each column is a
// list of terms over raw readings and members of gpu_metrics, of which the first
// that has a value counts.
package rocm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/internal/probe"
	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Where values are read.
const (
	SourceAuto  = "auto"  // through the library where it loads, else from /sys
	SourceSMI   = "smi"   // through the library only
	SourceSysfs = "sysfs" // from /sys; the library is never loaded
)

// Options change where the collector looks and how it reads.
type Options struct {
	Root    string // directory that holds /sys; "" means "/"
	Source  string // SourceAuto …; "" means SourceAuto
	Library string // file or soname of librocm_smi64; "" means the usual ones
	// Libraries are shared by the collectors of a process, since a library has
	// one state; nil means that there is no other collector.
	Libraries *Libraries
	Log       *zap.Logger // nil: none
}

// Collector is the AMD GPUs of a node.
type Collector struct {
	o       Options
	files   *sysfs.Reader
	smi     raw.Reader // nil: not used
	sources []*source
	found   []raw.GPU
}

var (
	_ collector.Collector = (*Collector)(nil)
	_ collector.Rescanner = (*Collector)(nil)
)

// New returns an unopened collector and touches nothing.
func New(o Options) *Collector {
	if o.Source == "" {
		o.Source = SourceAuto
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return &Collector{o: o, files: sysfs.New(sysfs.Options{Root: o.Root, Log: o.Log})}
}

// Name is "rocm".
func (*Collector) Name() string { return Name }

// Open finds the GPUs in /sys, starts the library where it is wanted, and binds
// the list. It reads no value but gpu_metrics, and does not wait for a GPU that
// hangs in it.
// Errors: collector.ErrNotLoaded (no driver, or no library where it must be
// used), collector.ErrNoDevices, collector.ErrNotBuiltIn, that of ctx, wrapped.
func (c *Collector) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("look for AMD GPUs: %w", err)
	}
	gpus, host, err := c.files.Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for AMD GPUs: %w", err)
	}
	if len(gpus) == 0 {
		return nil, nothing(c.o.Root)
	}
	if err := c.startLibrary(ctx, gpus); err != nil {
		return nil, err
	}
	c.found = gpus
	out := make([]collector.Source, len(gpus))
	for i, tables := range c.openGPUs(ctx, gpus) {
		s, err := c.source(ctx, node{i, len(gpus)}, &gpus[i], host, fields, tables)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.sources = append(c.sources, s)
		out[i] = s
	}
	// Who waits along the way goes on without the rest when ctx ends. That is right
	// at a deadline, which a GPU that hangs may have used up.
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return nil, errors.Join(fmt.Errorf("open AMD GPUs: %w", err), c.Close())
	}
	return out, nil
}

// nothing says why there is no GPU.
func nothing(root string) error {
	driver := probe.Host{Root: root}.AMD()
	if !driver.Loaded {
		return fmt.Errorf("look for AMD GPUs: %w: %s; on a node with AMD GPUs load the driver (modprobe amdgpu)", collector.ErrNotLoaded, driver.Text)
	}
	return fmt.Errorf("look for AMD GPUs: %w: %s, but no card in %s that amdgpu serves",
		collector.ErrNoDevices, driver.Text, filepath.Join("/", root, "sys/class/drm"))
}

// startLibrary starts ROCm SMI where it is wanted. Without it /sys serves, unless
// the user wants nothing else.
func (c *Collector) startLibrary(ctx context.Context, gpus []raw.GPU) error {
	if c.o.Source == SourceSysfs {
		return nil
	}
	smi, err := openSMI(ctx, smiOptions{
		Library: c.o.Library, Sys: filepath.Join("/", c.o.Root, "sys"), GPUs: gpus, Shared: c.o.Libraries, Log: c.o.Log,
	})
	switch {
	case err == nil:
		c.smi = smi
		return nil
	case c.o.Source == SourceSMI:
		return fmt.Errorf("start ROCm SMI, which --rocm-source=smi asks for: %w", err)
	case ctx.Err() != nil:
		return err
	}
	c.o.Log.Info("reading AMD GPUs from /sys without ROCm SMI", zap.String("source", SourceSysfs), zap.NamedError("reason", err))
	return nil
}

// metricsPatience is how long Open waits for gpu_metrics of all GPUs, to know
// which columns there are. Who does not answer gets all that there could be.
const metricsPatience = time.Second

// openGPUs reads gpu_metrics of each GPU; nil where that fails or takes too long.
func (c *Collector) openGPUs(ctx context.Context, gpus []raw.GPU) []*gpumetrics.Metrics {
	out := make([]*gpumetrics.Metrics, len(gpus))
	type answer struct {
		i int
		m *gpumetrics.Metrics
	}
	answers := make(chan answer, len(gpus))
	for i := range gpus {
		go func() { answers <- answer{i, c.peek(ctx, &gpus[i])} }()
	}
	patience := time.NewTimer(metricsPatience)
	defer patience.Stop()
	for range gpus {
		select {
		case a := <-answers:
			out[a.i] = a.m
		case <-patience.C:
			return out
		case <-ctx.Done():
			return out
		}
	}
	return out
}

// peek reads gpu_metrics once on a descriptor of its own.
func (c *Collector) peek(ctx context.Context, g *raw.GPU) *gpumetrics.Metrics {
	files, err := c.openFiles(ctx, g, nil)
	if err != nil {
		return nil
	}
	defer files.Close() //nolint:errcheck // only read
	m := new(gpumetrics.Metrics)
	if files.Suspended() || files.Metrics(m) != nil {
		return nil
	}
	return m
}

func (c *Collector) openFiles(ctx context.Context, g *raw.GPU, wanted []raw.Reading) (raw.Files, error) {
	h, err := c.files.Open(ctx, g, wanted)
	if err != nil {
		return nil, err
	}
	files, ok := h.(raw.Files)
	if !ok {
		return nil, errors.New("reader of /sys has no files")
	}
	return files, nil
}

// Rescan finds the GPUs anew and says whether they are others.
func (c *Collector) Rescan(ctx context.Context) (bool, error) { return rescan(ctx, c.files, c.found) }

func rescan(ctx context.Context, files *sysfs.Reader, found []raw.GPU) (bool, error) {
	gpus, _, err := files.Find(ctx)
	if err != nil {
		return false, fmt.Errorf("look for AMD GPUs: %w", err)
	}
	return !slices.EqualFunc(gpus, found, sameGPU), nil
}

// sameGPU reports whether a GPU has the labels and columns that it had.
func sameGPU(a, b raw.GPU) bool {
	return a.PCI == b.PCI && a.UniqueID == b.UniqueID && a.Card == b.Card && a.Compute == b.Compute && a.Memory == b.Memory &&
		slices.Equal(a.Instances, b.Instances)
}

// Close ends the schedules, closes all files and gives the library back.
func (c *Collector) Close() error {
	var errs []error
	for _, s := range c.sources {
		errs = append(errs, s.close())
	}
	c.sources = nil
	if c.smi != nil {
		errs = append(errs, c.smi.Close())
		c.smi = nil
	}
	return errors.Join(append(errs, c.files.Close())...)
}
