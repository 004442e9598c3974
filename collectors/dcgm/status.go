package dcgm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"warpgauge/pkg/collector"
)

// status is the result of a DCGM call or of one value: a dcgmReturn_t, or one of our own codes below its range.
type status int32

const (
	statusOK            status = 0
	statusBadParam      status = -1
	statusGeneric       status = -3
	statusNotSupported  status = -6
	statusInitError     status = -7
	statusUninitialized status = -10
	statusTimeout       status = -11
	statusVersion       status = -12
	statusUnknownField  status = -13
	statusNoData        status = -14
	statusStale         status = -15
	statusNotWatched    status = -16
	statusNoPermission  status = -17
	statusLost          status = -18
	statusDisconnected  status = -21
	statusGPUUnknown    status = -22
	statusMaxLimit      status = -24
	statusDuplicate     status = -26
	statusTooSmall      status = -31
	statusNoModule      status = -33
	statusInUse         status = -34
	statusEmptyGroup    status = -35
	statusNoProfiling   status = -36
	statusProfilingLib  status = -37
	statusMultiPass     status = -38
	statusPaused        status = -54
	statusNoNVML        status = -56
	statusDetached      status = -67

	statusNoSymbol status = -1000 // the library lacks the function
)

// meanings holds our texts for the codes of dcgm_structs.h, and the reason that a code gives for a blank field.
var meanings = map[status]struct {
	text   string
	reason collector.Reason
}{
	statusBadParam:      {"bad parameter", collector.ReasonBlank},
	statusGeneric:       {"error", collector.ReasonBlank},
	statusNotSupported:  {"not supported", collector.ReasonUnsupported},
	statusInitError:     {"initialisation failed", collector.ReasonBlank},
	statusUninitialized: {"not initialised", collector.ReasonBlank},
	statusTimeout:       {"timed out", collector.ReasonBlank},
	statusVersion:       {"library and host engine speak different versions", collector.ReasonNoSymbol},
	statusUnknownField:  {"unknown field", collector.ReasonNoSymbol},
	statusNoData:        {"no data", collector.ReasonBlank},
	statusStale:         {"stale data", collector.ReasonBlank},
	statusNotWatched:    {"not watched", collector.ReasonBlank},
	statusNoPermission:  {"no permission", collector.ReasonPermission},
	statusLost:          {"GPU is lost", collector.ReasonDeviceLost},
	statusDisconnected:  {"connection to the host engine is lost", collector.ReasonBlank},
	statusGPUUnknown:    {"GPU is not supported", collector.ReasonUnsupported},
	statusMaxLimit:      {"a limit of the host engine is reached", collector.ReasonBlank},
	statusDuplicate:     {"duplicate key", collector.ReasonBlank},
	statusTooSmall:      {"buffer too small", collector.ReasonBlank},
	statusNoModule:      {"module not loaded", collector.ReasonUnsupported},
	statusInUse:         {"in use", collector.ReasonBlank},
	statusEmptyGroup:    {"group is empty", collector.ReasonBlank},
	statusNoProfiling:   {"profiling is not supported", collector.ReasonUnsupported},
	statusProfilingLib:  {"profiling library failed", collector.ReasonUnsupported},
	statusMultiPass:     {"these profiling fields cannot be read together", collector.ReasonUnsupported},
	statusPaused:        {"profiling is paused", collector.ReasonBlank},
	statusNoNVML:        {"the host engine has no NVML", collector.ReasonBlank},
	statusDetached:      {"the host engine has released the GPUs", collector.ReasonDeviceLost},
	statusNoSymbol:      {"the library lacks the function", collector.ReasonNoSymbol},
}

func (s status) Error() string {
	return fmt.Sprintf("%s [DCGM %d]", cmp.Or(meanings[s].text, "error"), int32(s))
}

// Is maps DCGM's codes to the collector's sentinel errors.
func (s status) Is(target error) bool {
	switch target {
	case collector.ErrDeviceLost:
		return s == statusLost || s == statusDetached
	case collector.ErrNotLoaded:
		return s == statusDisconnected || s == statusNoNVML
	}
	return false
}

// pending reports whether the engine may not have read the value yet.
func (s status) pending() bool { return s == statusOK || s == statusNoData || s == statusNotWatched }

// severed reports whether an error means that nothing on the connection works any more, for good or until the engine has
// found its driver.
func severed(err error) bool {
	return isStatus(err, statusDisconnected, statusUninitialized, statusInitError, statusNoNVML)
}

// unsupported reports whether an error means that the engine or the library does not know, does not support or must not
// use a field or function. Waiting does not help.
func unsupported(err error) bool {
	return isStatus(err, statusUnknownField, statusNotSupported, statusNoPermission, statusGPUUnknown, statusNoModule,
		statusNoProfiling, statusProfilingLib, statusMultiPass, statusNoSymbol)
}

func isStatus(err error, wanted ...status) bool {
	s, is := errors.AsType[status](err)
	return is && slices.Contains(wanted, s)
}
