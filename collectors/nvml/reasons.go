//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// reasons records why a GPU lacks fields and why cells are blank.
type reasons struct {
	*collector.Absences
	log     *zap.Logger
	driver  string // driver version
	answers map[nvml.Return]float64
	second  float64 // placeholder for a reading that needs two samples
}

func newReasons(driver string, log *zap.Logger) *reasons {
	w := &reasons{Absences: &collector.Absences{}, log: log, driver: driver, answers: map[nvml.Return]float64{}}
	for code := nvml.ERROR_UNINITIALIZED; code <= nvml.ERROR_RESET_TYPE_NOT_SUPPORTED; code++ {
		w.answers[code] = w.blankFor(code)
	}
	w.answers[nvml.ERROR_UNKNOWN] = w.blankFor(nvml.ERROR_UNKNOWN)
	w.second = w.Blank(collector.ReasonNotDue, "it is made of two samples, and there is one")
	return w
}

// unexplained returns reasons for readings outside the list, which need no explanation.
func unexplained() *reasons { return &reasons{Absences: &collector.Absences{}, log: zap.NewNop()} }

func (w *reasons) blankFor(code nvml.Return) float64 {
	switch code {
	case nvml.ERROR_NOT_SUPPORTED:
		return w.Blank(collector.ReasonUnsupported, "NVML says that it is not supported now")
	case nvml.ERROR_NO_PERMISSION:
		return w.Blank(collector.ReasonPermission, "NVML refuses it to this user: it takes root, that is CAP_SYS_ADMIN")
	}
	return w.Blank(collector.ReasonBlank, fmt.Sprintf("NVML answers %q [NVML %d]", code.Error(), int(code)))
}

// blank returns the placeholder for a value that NVML refused. It allocates nothing.
func (w *reasons) blank(code nvml.Return) float64 {
	if v, known := w.answers[code]; known {
		return v
	}
	return math.NaN()
}

// none returns the placeholder for a value that a reading discards.
func (w *reasons) none(r *reading) float64 {
	switch r.how {
	case unlessZero:
		return w.Blank(collector.ReasonBlank, "NVML says 0, which stands for no value")
	case perSecond:
		return w.second
	case perSecondWide, climbingWide:
		return w.Blank(collector.ReasonBlank, "the driver's counter can wrap at 2^32, and has not shown yet that it does not")
	case asIs:
		return w.Blank(collector.ReasonBlank, "NVML marks it as not available")
	}
	return w.Blank(collector.ReasonBlank, "NVML gives no value to convert: "+string(r.how))
}

// name returns the term's call, with its field.
func (t term) name() string {
	if t.call == getFieldValues {
		return fmt.Sprintf("field %d of %s", t.arg[0], t.call.name())
	}
	return t.call.name()
}

// lacking explains that the library lacks a term's function, or the driver its field or result.
func (w *reasons) lacking(t term) collector.Explanation {
	return collector.Explanation{Reason: collector.ReasonNoSymbol, Detail: fmt.Sprintf("driver %s lacks %s", w.driver, t.name())}
}

// refused explains a permanent refusal of a reading's term by NVML.
func (w *reasons) refused(t term, code nvml.Return) collector.Explanation {
	e := collector.Explanation{Reason: collector.ReasonUnsupported, Detail: t.name() + ": " + code.Error()}
	switch code {
	case nvml.ERROR_NO_PERMISSION:
		e.Reason = collector.ReasonPermission
	case nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return w.lacking(t)
	}
	return e
}

// rest explains fields that no part supports.
func (w *reasons) rest(l field.Level, d *field.Descriptor) collector.Explanation {
	if e, foreign := collector.ForeignReading(d, field.VendorNVIDIA); foreign {
		return e
	}
	e := collector.Explanation{Reason: collector.ReasonUnsupported, Detail: "NVML does not have it for this kind of device (" + l.String() + ")"}
	_, profiling := profilings()[d.ID]
	switch {
	case field.IsXID(d.ID):
		e.Detail = "the driver has no XID events of this device"
	case d.ID == field.GPUHealth:
		e.Detail = "the GPU has nothing that shows its health"
	case d.ID == field.P2PStatus:
		e.Detail = "there is no other GPU, or the driver lacks nvmlDeviceGetP2PStatus"
	case profiling || byField()[d.ID] != nil:
	case d.ID < field.FirstExporter:
		e.Reason, e.Detail = collector.ReasonOtherCollector, "NVML does not have it, the collector dcgm may"
	default:
		e.Detail = "NVML does not have it"
	}
	return e
}
