//go:build linux && cgo

package nvml

import (
	"slices"

	"go.uber.org/zap"

	"warpgauge/pkg/field"
)

// listen joins those who listen to a GPU; boards.leave ends that. It returns nil
// where the GPU, or its driver, has no events, and why.
func (l *library) listen(g *gpu, log *zap.Logger) (*board, error) {
	uuid, gpu := g.device.ID, g.handle
	open := func() (eventSet, error) { return openEvents(l, l.api, gpu) }
	hold := func() func() {
		release := process.hold(l)
		return func() {
			if err := release(); err != nil {
				log.Warn("library is not let go", zap.Error(err))
			}
		}
	}
	x := l.events.join(uuid, open, hold, log)
	if err := x.unsupported(); err != nil {
		l.events.leave(x)
		return nil, err
	}
	return x, nil
}

// wanted reports whether the list asks for one of the readings.
func wanted(fields []field.Reading, ids ...field.ID) bool {
	return slices.ContainsFunc(fields, func(r field.Reading) bool { return slices.Contains(ids, r.Desc.ID) })
}

// newEvents makes the part of a GPU's XIDs and of changes of its MIG instances;
// nil where neither is wanted or the GPU has no events. The devices of its source
// are the GPU and then its instances, in order.
func newEvents(l *library, g *gpu, fields []field.Reading, log *zap.Logger) part {
	if !wanted(fields, field.XIDErrors, field.XIDEvent) && !g.migCapable {
		return nil
	}
	x, err := l.listen(g, log)
	if err != nil {
		log.Info("no XID events of this GPU", zap.Error(err))
		return nil
	}
	var place placement
	for i, in := range g.instances {
		id := instanceID{gi: uint32(in.gi), ci: noInstance, device: i + 1}
		if in.ci >= 0 {
			id.ci = uint32(in.ci)
		}
		place.instances = append(place.instances, id)
	}
	return newEventsPart(&l.events, x, 1+len(g.instances), place, fields, log)
}

// newHealth makes the part of a GPU's health; nil where it is not wanted or nothing
// is known of it. inputs makes a part of readings of the GPU alone, nil if it has
// none of them. With MIG, links count as down whatever they do, so they are not
// asked for (DcgmHealthWatch::MonitorNVLinkStatus does the same).
func newHealth(l *library, g *gpu, fields []field.Reading, inputs func([]field.Reading) (part, error), log *zap.Logger) (part, error) {
	if !wanted(fields, field.GPUHealth) {
		return nil, nil //nolint:nilnil // no part, no error
	}
	readings, err := inputs(healthInputs())
	if err != nil {
		return nil, err
	}
	var links func() linkStates
	if ask, ok := linkQuestion(l.dl, g.raw); ok && !g.mig && ask().known != 0 {
		links = ask
	}
	x, _ := l.listen(g, log) // newEvents says why not
	if readings == nil && x == nil && links == nil {
		return nil, nil //nolint:nilnil // no part, no error
	}
	return newHealthPart(readings, &l.events, x, links), nil
}

// newPeers makes the part of what a GPU reaches over NVLink; nil where it is not
// wanted, the driver cannot tell or there is no other GPU.
func newPeers(l *library, g *gpu, all []*gpu, fields []field.Reading, log *zap.Logger) part {
	if !wanted(fields, field.P2PStatus) {
		return nil
	}
	var peers []peer
	for _, other := range all {
		if other == g || other.raw == 0 {
			continue
		}
		ask, ok := p2pQuestion(l.dl, g.raw, other.raw)
		if !ok {
			return nil
		}
		peers = append(peers, peer{other.index, ask})
	}
	if len(peers) == 0 {
		return nil
	}
	release := process.hold(l)
	return newPeersPart(peers, func() {
		if err := release(); err != nil {
			log.Warn("library is not let go", zap.Error(err))
		}
	})
}
