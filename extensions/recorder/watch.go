package recorder

import (
	"fmt"

	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
)

// Causes that are not bus events.
const (
	causeHealth   = "health"
	causeOperator = "operator"
)

// causeOf maps event kinds to causes. Only bad device states trigger a recording.
var causeOf = map[events.Kind]string{
	events.XID: "xid", events.DeviceState: "device_state", events.Clock: "throttling",
}

// triggerOf returns the trigger for an event, if there is one.
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
		return t, field.Throttles(e.Reason)
	case events.DeviceState:
		return t, e.Bad
	}
	return t, t.Cause != ""
}
