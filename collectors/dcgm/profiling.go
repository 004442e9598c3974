//go:build linux && cgo

package dcgm

import (
	"slices"

	"go.uber.org/zap"

	"warpgauge/pkg/field"
)

// maxProfilingFields is how many profiling fields the engine takes in one field
// group; with more it answers a general error (dcgmProfWatchFields_t).
const maxProfilingFields = 64

// fieldGroups divides fields into those of one field group each.
func fieldGroups(fields []uint16) [][]uint16 {
	var plain, profiling []uint16
	for _, f := range fields {
		if profiles(field.ID(f)) {
			profiling = append(profiling, f)
		} else {
			plain = append(plain, f)
		}
	}
	return append(slicesOf(plain, maxFieldsPerGroup), slicesOf(profiling, maxProfilingFields)...)
}

// offered leaves out the profiling fields that no GPU of a node offers, so that
// they are not asked for to be refused. What a GPU offers is in its metric groups;
// where these cannot be had for another reason than that there are none, the
// engine decides field by field (block.sift).
func offered(e *engine, n *node, list []field.Reading, log *zap.Logger) []field.Reading {
	places := n.byKind(kindGPU)
	if len(places) == 0 || !slices.ContainsFunc(list, func(r field.Reading) bool { return profiles(r.Desc.ID) }) {
		return list
	}
	has := map[field.ID]bool{}
	for _, p := range places {
		groups, err := e.metricGroups(n.entities[p].id)
		switch {
		case err == nil:
		case unsupported(err) && e.lib.has("dcgmProfGetSupportedMetricGroups"):
			continue
		default:
			return list
		}
		for _, g := range groups {
			for _, id := range g.fields {
				has[field.ID(id)] = true
			}
		}
	}
	refused := map[uint16]error{}
	out := slices.DeleteFunc(slices.Clone(list), func(r field.Reading) bool {
		if !profiles(r.Desc.ID) || has[r.Desc.ID] {
			return false
		}
		refused[uint16(r.Desc.ID)] = statusNoProfiling
		return true
	})
	tellRefused(log, refused)
	return out
}
