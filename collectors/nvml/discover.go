//go:build linux && cgo

package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
)

// discovery finds the GPUs of a library: at Open, and again at each Rescan.
type discovery struct {
	lib *library
	o   Options
	// hold keeps the library initialised until release is called: a call that
	// hangs must not have it shut down under itself. nil holds nothing.
	hold func() (release func())

	mu     sync.Mutex
	silent map[int]bool // calls that have not returned, by NVML's index; countCall
}

// countCall stands for the call that counts GPUs.
const countCall = -1

// gpus returns the GPUs that there are, those that do not answer with err set.
// GPUs that the process may not use (another container's) are left out. The error
// concerns all: NVML itself does not answer, or there is no GPU for us.
func (d *discovery) gpus(ctx context.Context) ([]*gpu, error) {
	count, err := d.count(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]int, count)
	for i := range all {
		all[i] = i
	}
	// A call that is not waited for any longer writes its answer all the same.
	answers, found := make([]*gpu, count), make([]*gpu, count)
	ended := d.ask(ctx, all, func(i int) { answers[i] = d.lib.identify(i) })
	for i := range found {
		if ended[i] {
			found[i] = answers[i]
			continue
		}
		found[i] = newGPU(i)
		d.silence(found[i])
	}
	d.lib.met.note(found)
	d.fillIn(found)
	return d.usable(found)
}

// silence marks a GPU of which a call has not returned.
func (d *discovery) silence(g *gpu) {
	g.err = fmt.Errorf("GPU %d %w", g.index, errHangs)
	g.silent = func() bool { return d.isSilent(g.index) }
}

// count asks how many GPUs there are, which hangs where the whole driver does.
func (d *discovery) count(ctx context.Context) (int, error) {
	var n int
	var code nvml.Return
	if !d.ask(ctx, []int{countCall}, func(int) { n, code = d.lib.api.DeviceGetCount() })[countCall] {
		return 0, fmt.Errorf("count GPUs: NVML %w", errHangs)
	}
	if code != nvml.SUCCESS {
		return 0, fmt.Errorf("count GPUs: %w", code)
	}
	if n == 0 {
		return 0, fmt.Errorf("%w: the driver has none", collector.ErrNoDevices)
	}
	return n, nil
}

// ask calls f abreast for each index, with the library held, and reports which
// calls have ended. Where an earlier call has not returned, none is made.
func (d *discovery) ask(ctx context.Context, indexes []int, f func(index int)) (ended map[int]bool) {
	d.mu.Lock()
	if d.silent == nil {
		d.silent = map[int]bool{}
	}
	indexes = slices.DeleteFunc(slices.Clone(indexes), func(i int) bool { return d.silent[i] })
	for _, i := range indexes {
		d.silent[i] = true
	}
	d.mu.Unlock()
	releases := make([]func(), len(indexes))
	for i := range releases {
		releases[i] = func() {}
		if d.hold != nil {
			releases[i] = d.hold()
		}
	}
	held := func(i int) {
		defer releases[i]()
		f(indexes[i])
	}
	answers := abreast(ctx, d.o.Patience, len(indexes), held, func(i int) { d.answered(indexes[i]) })
	ended = map[int]bool{}
	for i, index := range indexes {
		if answers[i] {
			ended[index] = true
			d.answered(index)
		}
	}
	return ended
}

func (d *discovery) answered(index int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.silent, index)
}

func (d *discovery) isSilent(index int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.silent[index]
}

// fillIn identifies GPUs that NVML says nothing about by what the kernel knows, or
// by what NVML said earlier.
func (d *discovery) fillIn(found []*gpu) {
	unknown, at := make([]bool, len(found)), make([]pciAddress, len(found))
	rest := false
	for i, g := range found {
		var ok bool
		at[i], ok = parsePCI(g.device.PCIBusID)
		unknown[i] = !ok
		rest = rest || g.err != nil
	}
	if !rest {
		return
	}
	known := kernelGPUs(d.o.Root)
	if len(known) == 0 {
		known = d.lib.met.all()
	}
	for i, k := range identifyRest(unknown, at, known) {
		found[i].device.PCIBusID = k.at.String()
	}
	for _, g := range found {
		if g.err != nil {
			g.adopt(known)
		}
	}
}

// adopt takes over what the kernel knows of the GPU's address.
func (g *gpu) adopt(known []kernelGPU) {
	d := &g.device
	for _, k := range known {
		if k.at.String() != d.PCIBusID {
			continue
		}
		d.UUID, d.Model = cmp.Or(d.UUID, k.uuid), cmp.Or(d.Model, k.model)
		if k.minor != "" {
			d.Node = "nvidia" + k.minor
		}
	}
	d.UUID = cmp.Or(d.UUID, d.PCIBusID, "nvml"+d.GPU)
	d.ID = d.UUID
}

// usable leaves out the GPUs that are not for this process.
func (d *discovery) usable(found []*gpu) ([]*gpu, error) {
	forbidden := false
	found = slices.DeleteFunc(found, func(g *gpu) bool {
		switch {
		case errors.Is(g.err, nvml.ERROR_NO_PERMISSION):
			forbidden = true
			return true
		// It went away since GPUs were counted.
		case errors.Is(g.err, nvml.ERROR_INVALID_ARGUMENT), errors.Is(g.err, nvml.ERROR_NOT_FOUND):
			return true
		}
		return false
	})
	switch {
	case len(found) > 0:
		return found, nil
	case forbidden:
		k := d.o.kernelSide()
		return nil, fmt.Errorf("%w: %w; %s", collector.ErrNoDevices, nvml.ERROR_NO_PERMISSION, cmp.Or(k.noAccess(), k.advice(nvml.ERROR_NO_PERMISSION)))
	}
	return nil, fmt.Errorf("%w: the driver has none any more", collector.ErrNoDevices)
}
