package recorder

import (
	"fmt"

	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rules"
)

// Causes that are not events of the bus.
const (
	causeHealth   = "health"
	causeOperator = "operator"
)

// causeOf is the cause of a recording by the kind of an event. Of devices, only states that
// are bad are one.
var causeOf = map[events.Kind]string{
	events.XID: "xid", events.DeviceState: "device_state", events.UncorrectedError: "ecc", events.LinkErrors: "nvlink_errors", events.Clock: "throttling",
}

// triggerOf returns what an event sets off, if it does.
func triggerOf(e *events.Event) (Trigger, bool) {
	t := Trigger{Cause: causeOf[e.Kind], Text: e.Text, Time: e.Time}
	if e.Device != nil {
		t.Device = e.Device.ID
	}
	switch e.Kind {
	case events.XID:
		t.Text = fmt.Sprintf("XID %d: %s", e.Code, field.XIDText(e.Code)) + e.Text
	case events.Clock:
		t.Text = "clocks are reduced: " + e.Reason
		return t, rules.Throttles(e.Reason)
	case events.DeviceState:
		return t, e.Bad
	}
	return t, t.Cause != ""
}
