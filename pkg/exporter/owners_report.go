package exporter

import (
	"fmt"
	"io"
	"time"

	"warpgauge/pkg/collector"
)

// Describe describes the users of a device; nil returns "".
func (o *Owners) Describe(d *collector.Device) []string {
	if o == nil {
		return nil
	}
	return o.keeper.Describe(d)
}

// WriteProblems writes the failed mappings with their reasons, and the kubelet's devices that the exporter
// does not have.
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
