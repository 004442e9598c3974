package exporter

import (
	"fmt"
	"io"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/view"
)

// Describe says in words who uses a device; nil has nothing to say.
func (o *Owners) Describe(d *collector.Device) []string {
	if o == nil {
		return nil
	}
	return o.keeper.Describe(d)
}

// WriteProblems writes which mapping is missing, and why, and which devices the kubelet names
// that the exporter does not have.
func (o *Owners) WriteProblems(w io.Writer, waited time.Duration) {
	if o == nil {
		return
	}
	for _, h := range o.Health {
		switch s := h.State(); {
		case s.Problem != nil:
			fmt.Fprintf(w, "mapping %s fails (%s): %v\n", s.Name, s.Failing, s.Problem) //nolint:errcheck // the output may be closed
		case !s.Tried:
			fmt.Fprintf(w, "mapping %s: no answer within %v\n", s.Name, waited) //nolint:errcheck // as above
		}
	}
	for _, u := range o.keeper.Unmatched() {
		fmt.Fprintf(w, "not a device of this machine: %s %s of pod %s/%s (%s)\n", u.Resource, u.ID, u.Namespace, u.Pod, u.Reason) //nolint:errcheck // as above
	}
}

// dumpedOwners is the part of a dump that says who uses which device.
type dumpedOwners struct {
	Version   uint64              `json:"version"` // grows when labels change
	Mappings  []dumpedMapping     `json:"mappings"`
	Devices   map[string][]string `json:"devices"` // by id, in words; those that have users
	Unmatched []owner.Unmatched   `json:"unmatched,omitempty"`
}

type dumpedMapping struct {
	Name    string  `json:"name"`
	Tried   bool    `json:"tried"`
	Failing string  `json:"failing,omitempty"` // reason
	Error   string  `json:"error,omitempty"`
	Age     float64 `json:"age_seconds,omitempty"` // of the last answer; none: there was none
}

// dump returns the table of owners and the state of its clients; nil if owners are off.
func (o *Owners) dump(v *view.View) *dumpedOwners {
	if o == nil {
		return nil
	}
	out := &dumpedOwners{
		Version: o.keeper.Version(), Mappings: []dumpedMapping{}, Devices: map[string][]string{}, Unmatched: o.keeper.Unmatched(),
	}
	for _, h := range o.Health {
		s := h.State()
		m := dumpedMapping{Name: s.Name, Tried: s.Tried, Failing: s.Failing, Age: s.Age.Seconds()}
		if s.Problem != nil {
			m.Error = s.Problem.Error()
		}
		out.Mappings = append(out.Mappings, m)
	}
	for _, s := range v.Sources {
		for i := range s.Devices {
			if users := o.Describe(&s.Devices[i]); len(users) > 0 {
				out.Devices[s.Devices[i].ID] = users
			}
		}
	}
	return out
}
