package rocm

import (
	"math"
	"slices"
	"strings"

	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// blanks holds the placeholders for any cell of a source.
type blanks struct {
	suspended float64
	second    float64 // a rate needs a second sample
	revision  float64
	silent    float64 // libamd_smi has no value
	unread    float64 // of gpu_metrics
}

func (s *source) newBlanks() blanks {
	b := blanks{
		suspended: s.Blank(collector.ReasonBlank, "the GPU is suspended and is not woken to be read"),
		second:    s.Blank(collector.ReasonNotDue, "a rate, which takes a second sample"),
		silent:    s.Blank(collector.ReasonBlank, "AMD SMI has not started, has not answered in time or cannot read the driver's records, which are for root: the log says more"),
		unread:    s.Blank(collector.ReasonBlank, "gpu_metrics cannot be read: the log says why"),
		revision:  s.Blank(collector.ReasonUnsupported, "gpu_metrics has a revision that is not known; amd_gpu_unread counts it"),
	}
	if s.files.MetricsDenied() {
		b.unread = s.Blank(collector.ReasonPermission, "this process may not read gpu_metrics of the GPU in /sys")
	}
	return b
}

// blankOf returns the placeholder for a cell without a value. denied marks the readings that this process must not read.
func (s *source) blankOf(c *cell, p *spec, wanted []sysfs.Reading, denied []bool) float64 {
	for _, slot := range c.slots {
		if denied[slot] {
			return s.Blank(collector.ReasonPermission, "this process may not read "+wanted[slot].File()+" of the GPU in /sys")
		}
	}
	switch {
	case c.records:
		return s.Blank(collector.ReasonBlank, "the driver keeps no such record")
	case c.bus:
		return s.Blank(collector.ReasonBlank, "the driver has given no text in pcie_bw, or not yet")
	case c.metrics && len(c.slots) == 0:
		return s.Blank(collector.ReasonBlank, "the firmware has no value of it in gpu_metrics")
	}
	return s.Blank(collector.ReasonBlank, "the driver gives no value in "+strings.Join(p.files(), ", "))
}

// lacks returns why a board does not have a spec.
func (b *binder) lacks(p *spec) collector.Explanation {
	if function, added := map[op]int{opRecord: fnRecords, opFixed: fnVRAM}[p.terms[0].op]; added {
		e := collector.Explanation{Reason: collector.ReasonNoSymbol, Detail: "only AMD SMI has it: --rocm-source=amdsmi"}
		if b.added != nil {
			if e.Detail = b.added.lib.refusal(function); e.Detail == "" {
				e.Reason, e.Detail = collector.ReasonBlank, "AMD SMI has no value of it"
			}
		}
		return e
	}
	files := p.files()
	detail := "the driver has no " + strings.Join(files, ", ") + " for this GPU"
	if slices.Contains(files, "gpu_metrics") && b.metrics != nil {
		detail = "gpu_metrics of this GPU does not have it"
		if len(files) > 1 {
			detail += ", nor the driver in " + strings.Join(slices.DeleteFunc(files, func(f string) bool { return f == "gpu_metrics" }), ", ")
		}
	}
	return collector.Explanation{Reason: collector.ReasonUnsupported, Detail: detail}
}

// rest returns why a device lacks a field without a spec.
func (s *source) rest(device int, d *field.Descriptor) collector.Explanation {
	if e, foreign := collector.ForeignReading(d, field.VendorAMD); foreign && !field.IsXID(d.ID) {
		return e
	}
	detail := "the amdgpu driver does not have it for this kind of device (" + s.devices[device].Level.String() + ")"
	switch {
	case field.IsXID(d.ID):
		detail = "XIDs are NVIDIA's"
	case !Supplies(d):
		detail = "the amdgpu driver does not have it"
	case slices.Contains(busFields, d.ID) && s.files.HasBus():
		return collector.Explanation{Reason: collector.ReasonNotDue, Detail: "the driver sleeps for a second in each read of pcie_bw: give the field an interval in the list"}
	}
	return collector.Explanation{Reason: collector.ReasonUnsupported, Detail: detail}
}

// explain replaces a missing value by the placeholder with its reason.
func (s *source) explain(c *cell, v float64) float64 {
	switch {
	case !math.IsNaN(v):
		return v
	case c.records && (s.frame.added == nil || s.frame.added.records == nil):
		return s.blanks.silent
	case c.metrics && s.unreadable != "":
		return s.blanks.unread
	case c.metrics && s.frame.unread[unreadMetrics] == 1:
		return s.blanks.revision
	case c.growth && !s.sampled:
		return s.blanks.second
	}
	return c.blank
}
