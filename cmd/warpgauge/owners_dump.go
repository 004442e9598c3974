package main

import (
	"warpgauge/pkg/owner"
	"warpgauge/pkg/view"
)

// dumpedOwners is the part of a dump that says who uses which device.
type dumpedOwners struct {
	Version   uint64              `json:"version"` // grows when labels change
	Mappings  []dumpedMapping     `json:"mappings"`
	Devices   map[string][]string `json:"devices"` // by id, in words; those that somebody uses
	Unmatched []owner.Unmatched   `json:"unmatched,omitempty"`
}

type dumpedMapping struct {
	Name    string  `json:"name"`
	Tried   bool    `json:"tried"`
	Failing string  `json:"failing,omitempty"` // reason
	Error   string  `json:"error,omitempty"`
	Age     float64 `json:"age_seconds,omitempty"` // of the last answer; none: there was none
}

// dump tells what is known; nil where nobody asks.
func (o *owners) dump(v *view.View) *dumpedOwners {
	if o == nil {
		return nil
	}
	out := &dumpedOwners{
		Version: o.keeper.Version(), Mappings: []dumpedMapping{}, Devices: map[string][]string{}, Unmatched: o.keeper.Unmatched(),
	}
	for _, h := range o.health {
		m := dumpedMapping{Name: h.Name(), Tried: h.Tried(), Failing: h.Failing()}
		if age, known := h.Age(); known {
			m.Age = age.Seconds()
		}
		if err := h.Problem(); err != nil {
			m.Error = err.Error()
		}
		out.Mappings = append(out.Mappings, m)
	}
	for _, s := range v.Sources {
		for i := range s.Devices {
			if users := o.describe(&s.Devices[i]); len(users) > 0 {
				out.Devices[s.Devices[i].ID] = users
			}
		}
	}
	return out
}
