//go:build linux && cgo

package dcgm

import (
	"errors"
	"slices"

	"go.uber.org/zap"

	"warpgauge/pkg/field"
)

// discovery is one look at what an engine has. What one kind of entity cannot
// tell costs that kind, and is logged once.
type discovery struct {
	engine *engine
	fields field.List
	o      Options
}

// discover asks the engine what it has: a node for the GPUs and what is theirs,
// a node for switches, CPUs and network adapters. Empty nodes are left out.
func discover(e *engine, fields field.List, o Options) ([]*node, error) {
	d := &discovery{e, fields, o}
	gpus, err := d.gpus()
	if err != nil {
		return nil, err
	}
	d.instances(gpus)
	var states []links
	if d.wants(field.Link) {
		states = d.linkStates()
	}
	d.links(gpus, states)

	rest := &node{}
	d.switches(rest)
	d.links(rest, states)
	d.cpus(rest)
	d.adapters(rest)
	return slices.DeleteFunc([]*node{gpus, rest}, func(n *node) bool { return len(n.devices) == 0 }), nil
}

// wants reports whether the list asks for a reading of a level.
func (d *discovery) wants(levels ...field.Level) bool {
	for _, r := range d.fields.Readings() {
		if slices.Contains(levels, r.Desc.Level) {
			return true
		}
	}
	return false
}

// without tells that entities of a kind cannot be listed. A node that has none of
// them is nothing to speak of.
func (d *discovery) without(k entityKind, err error) {
	var s status
	if errors.As(err, &s) && (s == statusNotSupported || s == statusNoModule || s == statusNoData) {
		return
	}
	d.o.Log.Warn("entities cannot be listed and are left out", zap.Stringer("source", k), zap.Error(err))
}
