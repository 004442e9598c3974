//go:build linux && cgo

package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// assembly builds one source per GPU.
type assembly struct {
	lib     *library
	log     *zap.Logger
	pending *pending
	fields  []field.Reading
	labels  []field.Field
	gpus    []*gpu
	kept    *keptXIDs
}

// sources builds one source per GPU, all concurrently. Each GPU is asked once for everything it supports, so a GPU that
// hangs does not delay the others: its source has no columns and requests a new Open when the GPU answers.
// collector.ErrOutdated fails the whole Open.
func (a *assembly) sources(ctx context.Context) ([]collector.Source, error) {
	at := map[int]*gpu{}
	var indexes []int
	for _, g := range a.gpus {
		at[g.index], indexes = g, append(indexes, g.index)
	}
	type answer struct {
		source *source
		err    error
	}
	answers := askEach(ctx, a.pending, indexes,
		func(index int) (v answer) {
			a.pending.heard(index) // with its identity
			v.source, v.err = a.source(at[index])
			return v
		},
		func(late answer) { // too late for this session
			if late.source != nil {
				late.source.close()
			}
		})
	out := make([]collector.Source, len(a.gpus))
	var outdated error
	for i, g := range a.gpus {
		v, ended := answers[g.index]
		switch {
		case g.err != nil:
			out[i] = a.lib.silent(g, g.err, g.silent)
		case !ended:
			err := fmt.Errorf("GPU %d %w while NVML reads its supported fields", g.index, errHangs)
			out[i] = a.lib.silent(g, err, func() bool { return a.pending.has(g.index) })
		case v.source != nil:
			out[i] = v.source
		default:
			out[i] = a.lib.silent(g, v.err, nil)
			if errors.Is(v.err, collector.ErrOutdated) {
				outdated = v.err
			}
		}
	}
	if outdated != nil {
		closeAll(out)
		return nil, outdated
	}
	return out, nil
}

// source builds the parts of one GPU. The MIG part comes first, so that no other part reads an instance that has been
// destroyed. GPM comes before the parts that replace it.
func (a *assembly) source(g *gpu) (*source, error) {
	if g.err != nil {
		return nil, g.err
	}
	log := a.log.With(zap.String("device", g.device.ID))
	devices, targets := a.devices(g)
	why, costs := newReasons(a.lib.versions().driver, log), &costs{}
	gpm, err := newGPM(a.lib, g, targets, a.fields, why, costs)
	parts := []part{newMIGPart(a.lib, g, costs), gpm}
	var p part
	if err == nil {
		p, err = newReadings(g.reader, targets, a.fields, columnIDs(gpm), why, costs)
		parts = append(parts, p)
	}
	if f, absent := a.lib.dl.Lookup("nvmlDeviceGetSamples"); err == nil && absent == nil {
		p, err = newBuffered(newSamplesReader(f, g.handle), a.fields, columnIDs(p), log, costs)
		parts = append(parts, p)
	}
	xids := newXIDs(a.lib, g, a.fields, a.kept, log, costs)
	if err == nil {
		mig := slices.ContainsFunc(a.gpus, func(g *gpu) bool { return g.mig })
		p, err = newHealth(a.lib, g, mig, a.fields, xids, costs)
		parts = append(parts, p)
	}
	s := newSource(g.reader, devices, costs, newEventsPart(xids, g, a.fields, why), append(parts, newPeers(a.lib, g, a.gpus, a.fields, costs))...)
	if err != nil {
		s.close()
		return nil, fmt.Errorf("read the supported fields of GPU %d: %w", g.index, err)
	}
	s.trim()
	s.Absences = why.Absences
	s.Complete(s.devices, s.cols, a.fields, func(device int, d *field.Descriptor) collector.Explanation {
		return why.rest(s.devices[device].Level, d)
	})
	return s, nil
}

// devices returns the GPU, its instances and, if the list has link fields, its links. Each target says how to read its
// device.
func (a *assembly) devices(g *gpu) ([]collector.Device, []target) {
	devices := []collector.Device{g.device}
	targets := []target{{reader: g.reader, level: field.GPU}}
	for _, in := range g.instances {
		targets = append(targets, target{device: len(devices), reader: in.reader, level: in.device.Level})
		devices = append(devices, in.device)
	}
	for i, f := range (factReader{a.lib, g}).facts(a.labels) {
		devices[i].Facts = f
	}
	if !slices.ContainsFunc(a.fields, func(r field.Reading) bool { return r.Desc.Level == field.Link }) {
		return devices, targets
	}
	states := readLinkStates(a.lib, g.handle)
	if states.unread != nil {
		devices[0].Unread = cmp.Or(g.device.Unread, "cannot read its NVLinks: "+states.unread.Error())
	}
	for n := range uint32(maxLinks) {
		if states.known>>n&1 == 1 {
			targets = append(targets, target{device: len(devices), reader: g.reader, level: field.Link, link: n})
			devices = append(devices, collector.LinkOf(g.device, int(n)))
		}
	}
	return devices, targets
}

// trim drops trailing links without columns.
func (s *source) trim() {
	last := len(s.devices) - 1
	for last > 0 && s.devices[last].Level == field.Link && !slices.ContainsFunc(s.cols, func(c collector.Column) bool { return c.Device == last }) {
		last--
	}
	s.devices = s.devices[:last+1]
}

// linkStates holds the states of a GPU's NVLinks as bit masks.
type linkStates struct {
	active uint64
	known  uint64 // links whose state NVML reports
	unread error  // of a link that may be there
}

// readLinkStates reads the states of a GPU's NVLinks.
func readLinkStates(l *library, gpu nvml.Device) (s linkStates) {
	if !l.has("nvmlDeviceGetNvLinkState") {
		return s
	}
	for n := range maxLinks {
		switch state, code := gpu.GetNvLinkState(n); code {
		case nvml.SUCCESS:
			s.known, s.active = s.known|1<<n, s.active|uint64(state&nvml.FEATURE_ENABLED)<<n
		case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT: // there is no such link
		default:
			s.unread = gpuError("nvmlDeviceGetNvLinkState", code)
		}
	}
	return s
}
