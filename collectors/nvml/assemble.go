//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

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
		func(index int) (v answer) { v.source, v.err = a.source(at[index]); return v },
		func(late answer) { // too late for this session
			if late.source != nil {
				late.source.close()
			}
		})
	out := make([]collector.Source, len(a.gpus))
	var outdated error
	for i, g := range a.gpus {
		devices := []collector.Device{g.device}
		v, ended := answers[g.index]
		switch {
		case g.err != nil:
			out[i] = &silentSource{devices, g.err, g.silent}
		case !ended:
			out[i] = &silentSource{devices, fmt.Errorf("GPU %d %w while NVML reads its supported fields", g.index, errHangs), func() bool { return a.pending.has(g.index) }}
		case v.source != nil:
			out[i] = v.source
		default:
			out[i] = &silentSource{devices, v.err, nil}
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
	why := newReasons(a.lib.versions().driver, log)
	var parts []part
	if p := newMIGPart(a.lib, g); p != nil {
		parts = append(parts, p)
	}
	gpm, err := newGPM(a.lib, g, targets, a.fields, why)
	parts = append(parts, gpm)
	var p part
	if err == nil {
		p, err = newReadings(g.reader, targets, a.fields, columnIDs(gpm), why)
		parts = append(parts, p)
	}
	if f, absent := a.lib.dl.Lookup("nvmlDeviceGetSamples"); err == nil && absent == nil {
		p, err = newBuffered(newSamplesReader(f, g.handle), a.fields, columnIDs(p), log)
		parts = append(parts, p)
	}
	if err == nil && a.wants(field.VGPU) {
		var w *watchPart
		if w, err = newVGPUPart(a.lib, g); w != nil {
			parts = append(parts, w)
		}
	}
	xids := newXIDs(a.lib, g, a.fields, a.kept, log)
	if err == nil {
		mig := slices.ContainsFunc(a.gpus, func(g *gpu) bool { return g.mig })
		p, err = newHealth(a.lib, g, mig, a.fields, xids)
		parts = append(parts, p)
	}
	s := newSource(devices, newEventsPart(xids, g, a.fields), append(parts, newPeers(a.lib, g, a.gpus, a.fields))...)
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

// wants reports whether the list has fields of a level.
func (a *assembly) wants(level field.Level) bool {
	return slices.ContainsFunc(a.fields, func(r field.Reading) bool { return r.Desc.Level == level })
}

// wanted reports whether the list has one of the fields.
func wanted(fields []field.Reading, ids ...field.ID) bool {
	return slices.ContainsFunc(fields, func(r field.Reading) bool { return slices.Contains(ids, r.Desc.ID) })
}

// devices returns the GPU, its instances, its vGPUs and, if the list has link fields, its links. Each target says how
// to read its device.
func (a *assembly) devices(g *gpu) ([]collector.Device, []target) {
	devices := []collector.Device{g.device}
	targets := []target{{reader: g.reader, level: field.GPU}}
	for _, in := range g.instances {
		targets = append(targets, target{device: len(devices), reader: in.reader, level: in.device.Level})
		devices = append(devices, in.device)
	}
	for _, v := range a.vgpus(g) {
		targets = append(targets, target{device: len(devices), reader: v.reader, level: field.VGPU})
		devices = append(devices, v.device)
	}
	if !a.wants(field.Link) {
		return devices, targets
	}
	states := readLinkStates(a.lib, g.handle)
	for n := range uint32(maxLinks) {
		if states.known>>n&1 == 1 {
			targets = append(targets, target{device: len(devices), reader: g.reader, level: field.Link, link: n})
			link := collector.LinkOf(g.device, int(n))
			link.Facts = nil
			devices = append(devices, link)
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
}

// readLinkStates reads the states of a GPU's NVLinks.
func readLinkStates(l *library, gpu nvml.Device) (s linkStates) {
	if !l.has("nvmlDeviceGetNvLinkState") {
		return s
	}
	for n := range maxLinks {
		if state, code := gpu.GetNvLinkState(n); code == nvml.SUCCESS {
			s.known |= 1 << n
			if state == nvml.FEATURE_ENABLED {
				s.active |= 1 << n
			}
		}
	}
	return s
}

// vgpu is a virtual GPU that runs on a GPU of this host.
type vgpu struct {
	reader device
	device collector.Device
}

// vgpus finds the vGPUs of a GPU if the list has vGPU fields. A vGPU's device differs from the GPU's in level, parent,
// ID and UUID.
func (a *assembly) vgpus(g *gpu) []vgpu {
	if !a.wants(field.VGPU) || !a.lib.has("nvmlDeviceGetActiveVgpus") {
		return nil
	}
	if _, code := countVGPUs(a.lib, g.handle); code != nvml.SUCCESS {
		return nil // no vGPUs, or more than go-nvml should allocate for
	}
	all, code := g.handle.GetActiveVgpus()
	if code != nvml.SUCCESS {
		return nil
	}
	var out []vgpu
	for _, v := range all {
		d := g.device
		d.Facts = nil
		d.Level, d.Parent = field.VGPU, g.device.ID
		d.UUID = ""
		if a.lib.has("nvmlVgpuInstanceGetUUID") {
			if uuid, code := v.GetUUID(); code == nvml.SUCCESS {
				d.UUID = tidy(uuid)
			}
		}
		if d.UUID == "" {
			d.UUID = g.device.UUID + "/vgpu" + strconv.FormatFloat(number(v), 'f', 0, 64)
		}
		d.ID = g.device.ID + "/" + d.UUID
		if !slices.ContainsFunc(out, func(o vgpu) bool { return o.device.ID == d.ID }) {
			out = append(out, vgpu{&handle{lib: a.lib, vgpu: v}, d})
		}
	}
	return out
}
