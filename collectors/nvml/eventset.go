//go:build linux && cgo

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// symbols is asked before each symbol's first call.
type symbols interface{ has(symbol string) bool }

// eventSymbols are there since driver 450, which brought the second version of
// the wait: the first does not say which instance an event concerns.
var eventSymbols = [...]string{
	"nvmlDeviceGetSupportedEventTypes", "nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2", "nvmlEventSetFree",
}

// nvmlEvents is an event set of NVML with one GPU in it.
type nvmlEvents struct{ set nvml.EventSet }

var _ eventSet = nvmlEvents{}

// openEvents registers a GPU for XIDs and, where the driver has them, for changes
// of the MIG configuration. Other events are left alone: what they tell of is
// read from the GPU anyway, and changes of clocks come by the thousand.
func openEvents(s symbols, api nvml.Interface, gpu nvml.Device) (eventSet, error) {
	for _, symbol := range eventSymbols {
		if !s.has(symbol) {
			return nil, fmt.Errorf("%w: the driver has no %s", errNoEvents, symbol)
		}
	}
	types, ret := gpu.GetSupportedEventTypes()
	switch {
	case ret == nvml.ERROR_NOT_SUPPORTED, ret == nvml.SUCCESS && types&nvml.EventTypeXidCriticalError == 0:
		return nil, errNoEvents
	case ret != nvml.SUCCESS:
		return nil, fmt.Errorf("read supported event types: %w", ret)
	}
	set, ret := api.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("create event set: %w", ret)
	}
	if ret = gpu.RegisterEvents(nvml.EventTypeXidCriticalError, set); ret == nvml.SUCCESS && types&nvml.EventMigConfigChange != 0 {
		// On its own, for NOT_SUPPORTED registers none of the types asked for.
		if ret = gpu.RegisterEvents(nvml.EventMigConfigChange, set); ret == nvml.ERROR_NOT_SUPPORTED {
			ret = nvml.SUCCESS
		}
	}
	out := nvmlEvents{set}
	switch ret {
	case nvml.SUCCESS:
		return out, nil
	case nvml.ERROR_NOT_SUPPORTED:
		out.close()
		return nil, errNoEvents
	}
	out.close()
	return nil, fmt.Errorf("register for events: %w", ret)
}

func (n nvmlEvents) next() (heardEvent, error) {
	data, ret := n.set.Wait(0)
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_TIMEOUT:
		return heardEvent{}, nil
	default:
		return heardEvent{}, fmt.Errorf("wait for events: %w", ret)
	}
	switch data.EventType {
	case nvml.EventTypeXidCriticalError:
		return heardEvent{xidEvent, event{code: data.EventData, gi: data.GpuInstanceId, ci: data.ComputeInstanceId}}, nil
	case nvml.EventMigConfigChange:
		return heardEvent{kind: migEvent}, nil
	}
	return heardEvent{kind: otherEvent}, nil
}

// close has no use for what NVML answers: the set is gone either way.
func (n nvmlEvents) close() { _ = n.set.Free() }
