//go:build linux && cgo

package nvml

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/field"
)

// listen joins those who listen to a GPU; boards.leave ends that. It returns nil
// where the GPU, or its driver, has no events.
func (l *library) listen(uuid string, gpu nvml.Device, log *zap.Logger) *board {
	open := func() (eventSet, error) { return openEvents(l, l.api, gpu) }
	hold := func() func() {
		release := process.hold(l)
		return func() {
			if err := release(); err != nil {
				log.Warn("library is not let go", zap.String("device", uuid), zap.Error(err))
			}
		}
	}
	x := l.events.join(uuid, open, hold, log)
	if !x.supported() {
		l.events.leave(x)
		return nil
	}
	return x
}

// wanted reports whether the list asks for one of the readings.
func wanted(fields []field.Reading, ids ...field.ID) bool {
	return slices.ContainsFunc(fields, func(r field.Reading) bool { return slices.Contains(ids, r.Desc.ID) })
}

// newEvents makes the part of a GPU's XIDs; nil where none are wanted or the GPU
// has no events. devices is how many the source has, instances which of them are
// MIG instances.
func newEvents(l *library, uuid string, gpu nvml.Device, devices int, instances []instanceID, fields []field.Reading, log *zap.Logger) part {
	if !wanted(fields, field.XIDErrors, field.XIDEvent) && len(instances) == 0 {
		return nil
	}
	x := l.listen(uuid, gpu, log)
	if x == nil {
		return nil
	}
	return newEventsPart(&l.events, x, devices, placement{instances}, fields, log)
}

// newHealth makes the part of a GPU's health; nil where nothing is known of it.
// inputs are made of healthInputs, or nil, and become the part's. With MIG, links
// count as down whatever they do, so they are not asked for
// (DcgmHealthWatch::MonitorNVLinkStatus does the same).
func newHealth(l *library, uuid string, gpu nvml.Device, raw uintptr, mig bool, inputs part, log *zap.Logger) part {
	var links func() linkStates
	if ask, ok := linkQuestion(l.dl, raw); ok && !mig && ask().known != 0 {
		links = ask
	}
	x := l.listen(uuid, gpu, log)
	if inputs == nil && x == nil && links == nil {
		return nil
	}
	return newHealthPart(inputs, &l.events, x, links)
}

// newPeers makes the part of a GPU's peers, given as nvmlDevice_t by index; nil
// where there are none or the driver cannot tell.
func newPeers(l *library, gpu uintptr, peers map[int]uintptr, log *zap.Logger) part {
	var asked []peer
	for index, other := range peers {
		ask, ok := p2pQuestion(l.dl, gpu, other)
		if !ok {
			return nil
		}
		asked = append(asked, peer{index, ask})
	}
	if len(asked) == 0 {
		return nil
	}
	slices.SortFunc(asked, func(a, b peer) int { return a.index - b.index })
	release := process.hold(l)
	return newPeersPart(asked, func() {
		if err := release(); err != nil {
			log.Warn("library is not let go", zap.Error(err))
		}
	})
}
