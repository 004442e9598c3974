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

// assembly makes sources of GPUs.
type assembly struct {
	lib     *library
	log     *zap.Logger
	pending *pending
	fields  []field.Reading
	gpus    []*gpu
}

// sources makes one source of each GPU, concurrently: everything is asked for once, to
// find out what there is, and a GPU that hangs there delays no other. Its source
// has no columns and asks for a new Open when the GPU answers after all.
// collector.ErrOutdated ends all.
func (a *assembly) sources(ctx context.Context) ([]collector.Source, error) {
	at := map[int]int{} // in gpus, by NVML's index
	var ask []int
	for i, g := range a.gpus {
		at[g.index], ask = i, append(ask, g.index)
	}
	made := make([]*source, len(a.gpus))
	errs := make([]error, len(a.gpus))
	ended := a.pending.ask(ctx, ask,
		func(index int) { i := at[index]; made[i], errs[i] = a.source(a.gpus[i]) },
		func(index int) { // too late for this session
			if s := made[at[index]]; s != nil {
				s.close()
			}
		})
	out := make([]collector.Source, len(a.gpus))
	var outdated error
	for i, g := range a.gpus {
		devices := []collector.Device{g.device}
		switch {
		case g.err != nil:
			out[i] = &silentSource{devices, g.err, g.silent}
		case !ended[g.index]:
			out[i] = &silentSource{devices, fmt.Errorf("GPU %d %w, when it was asked what it has", g.index, errHangs), func() bool { return a.pending.has(g.index) }}
		case made[i] != nil:
			out[i] = made[i]
		default:
			out[i] = &silentSource{devices, errs[i], nil}
			if errors.Is(errs[i], collector.ErrOutdated) {
				outdated = errs[i]
			}
		}
	}
	if outdated != nil {
		closeAll(out)
		return nil, outdated
	}
	return out, nil
}

// source makes the parts of one GPU. MIG comes first, so that nothing reads of
// instances that are no more, and GPM before what stands in for it.
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
		p, err = newReadings(g.of, targets, a.fields, columnsOf(gpm), why)
		parts = append(parts, p)
	}
	if err == nil {
		p, err = newBuffered(a.lib, g, a.fields, columnsOf(p), log)
		parts = append(parts, p)
	}
	if err == nil && a.wants(field.VGPU) {
		var w *watchPart
		if w, err = newVGPUPart(a.lib, g); w != nil {
			parts = append(parts, w)
		}
	}
	xids := newXIDs(a.lib, g, a.fields, log)
	if err == nil {
		mig := slices.ContainsFunc(a.gpus, func(g *gpu) bool { return g.mig })
		p, err = newHealth(a.lib, g, mig, a.fields, xids)
		parts = append(parts, p)
	}
	s := newSource(devices, newEventsPart(xids, g, a.fields), append(parts, newPeers(a.lib, g, a.gpus, a.fields))...)
	if err != nil {
		s.close()
		return nil, fmt.Errorf("find out what GPU %d has: %w", g.index, err)
	}
	s.trim()
	s.Absences = why.Absences
	s.Complete(s.devices, s.cols, a.fields, func(device int, d *field.Descriptor) collector.Explanation {
		return why.rest(s.devices[device].Level, d)
	})
	return s, nil
}

// wants reports whether the list asks for fields of a level.
func (a *assembly) wants(level field.Level) bool {
	return slices.ContainsFunc(a.fields, func(r field.Reading) bool { return r.Desc.Level == level })
}

// wanted reports whether the list asks for one of the fields.
func wanted(fields []field.Reading, ids ...field.ID) bool {
	return slices.ContainsFunc(fields, func(r field.Reading) bool { return slices.Contains(ids, r.Desc.ID) })
}

// devices are the GPU, its instances, its vGPUs and, if the list asks for fields of
// links, its links; and what of these the table of readings is asked for.
func (a *assembly) devices(g *gpu) ([]collector.Device, []target) {
	devices := []collector.Device{g.device}
	targets := []target{{of: g.of, level: field.GPU}}
	for _, in := range g.instances {
		targets = append(targets, target{device: len(devices), of: in.of, level: in.device.Level})
		devices = append(devices, in.device)
	}
	for _, v := range a.vgpus(g) {
		targets = append(targets, target{device: len(devices), of: v.of, level: field.VGPU})
		devices = append(devices, v.device)
	}
	if !a.wants(field.Link) {
		return devices, targets
	}
	states := linksOf(a.lib, g.handle)
	for n := range uint32(mostLinks) {
		if states.known>>n&1 == 1 {
			targets = append(targets, target{device: len(devices), of: g.of, level: field.Link, link: n})
			devices = append(devices, linkDevice(g.device, n))
		}
	}
	return devices, targets
}

// linkDevice is link n of a GPU, as NVML numbers them from 0.
func linkDevice(parent collector.Device, n uint32) collector.Device {
	d := parent
	d.Facts = nil
	d.Level, d.Parent = field.Link, parent.ID
	number := strconv.Itoa(int(n))
	d.Labels = []collector.Label{{Name: "nvlink", Value: number}}
	d.ID = parent.ID + "/link" + number
	return d
}

// trim drops links of which there is no column at the end.
func (s *source) trim() {
	last := len(s.devices) - 1
	for last > 0 && s.devices[last].Level == field.Link && !slices.ContainsFunc(s.cols, func(c collector.Column) bool { return c.Device == last }) {
		last--
	}
	s.devices = s.devices[:last+1]
}

// linkStates are the NVLinks of a GPU as bit masks.
type linkStates struct {
	active uint64
	known  uint64 // of the others nothing is known, or there are none
}

// linksOf asks for the states of a GPU's NVLinks.
func linksOf(l *library, gpu nvml.Device) (s linkStates) {
	if !l.has("nvmlDeviceGetNvLinkState") {
		return s
	}
	for n := range mostLinks {
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
	of     device
	device collector.Device
}

// vgpus finds the vGPUs of a GPU, if the list asks for fields of theirs. Their
// devices are as the GPU's but for the UUID, which is theirs.
func (a *assembly) vgpus(g *gpu) []vgpu {
	if !a.wants(field.VGPU) || !a.lib.has("nvmlDeviceGetActiveVgpus") {
		return nil
	}
	if _, code := countVGPUs(a.lib, g.handle); code != nvml.SUCCESS {
		return nil // there are none, or more than go-nvml should make room for
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
