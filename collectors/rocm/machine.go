package rocm

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
)

// machine finds the node's GPUs, for both collectors.
type machine struct {
	o       Options
	files   *sysfs.Reader
	found   []sysfs.GPU
	leftOut int // cards
}

func newMachine(o Options) machine {
	o.Log = cmp.Or(o.Log, zap.NewNop())
	return machine{o: o, files: sysfs.New(sysfs.Options{Root: o.Root, Log: o.Log})}
}

// find finds the GPUs and logs the skipped cards.
func (m *machine) find(ctx context.Context) (sysfs.Found, error) {
	found, err := m.look(ctx)
	if err != nil {
		return found, err
	}
	if len(found.GPUs) == 0 {
		return sysfs.Found{}, m.noGPU()
	}
	for _, card := range found.LeftOut {
		m.o.Log.Info("skipping a gpu", zap.String("card", card))
	}
	m.found, m.leftOut = found.GPUs, len(found.LeftOut)
	return found, nil
}

func (m *machine) look(ctx context.Context) (sysfs.Found, error) {
	err := ctx.Err()
	var found sysfs.Found
	if err == nil {
		found, err = m.files.Find(ctx)
	}
	if err != nil {
		return sysfs.Found{}, fmt.Errorf("look for AMD GPUs: %w", err)
	}
	return found, nil
}

// noGPU returns why there is no GPU.
func (m *machine) noGPU() error {
	driver, loaded := m.files.Driver()
	if !loaded {
		return fmt.Errorf("look for AMD GPUs: %w: %s; on a node with AMD GPUs load the driver (modprobe amdgpu)", collector.ErrNotLoaded, driver)
	}
	return fmt.Errorf("look for AMD GPUs: %w: %s, but no card in %s that amdgpu serves",
		collector.ErrNoDevices, driver, filepath.Join("/", m.o.Root, "sys/class/drm"))
}

// LeftOut implements collector.Limited.
func (m *machine) LeftOut() int { return m.leftOut }

// Rescan finds the GPUs again and reports whether their labels or columns have changed.
func (m *machine) Rescan(ctx context.Context) (bool, error) {
	found, err := m.look(ctx)
	if err != nil {
		return false, err
	}
	return !slices.EqualFunc(found.GPUs, m.found, func(a, b sysfs.GPU) bool {
		return a.PCI == b.PCI && a.UniqueID == b.UniqueID && a.Card == b.Card && a.Compute == b.Compute && a.Memory == b.Memory &&
			slices.Equal(a.Instances, b.Instances)
	}), nil
}
