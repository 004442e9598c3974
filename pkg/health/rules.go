package health

import (
	"strconv"
	"time"

	"warpgauge/pkg/field"
)

// Rule says when something is wrong with a device, how bad that is, what to do about it, and
// how it ends. What no reading shows comes as an Observation with the rule's name.
type Rule struct {
	Name   string // reason code, and name in --health-rules
	State  State
	Action Action
	Text   string // in words, without the device
	Source string // link to who says so

	Reading   field.ID      // what it is judged by; 0: by Observations or states alone
	Test      Test          // of the reading
	Threshold float64       // of the test, in Unit
	Unit      string        // "": the threshold cannot be set
	For       time.Duration // how long the test must hold

	End   End
	Quiet time.Duration // for how long it must not have been seen when it ends
}

// Test is how a reading is judged.
type Test uint8

// Tests.
const (
	Observed Test = iota // there is no reading
	AtLeast              // the value is the threshold or more
	AtMost               // the value is the threshold or less
	Equal                // the value is the threshold
	Rises                // the counter has grown by the threshold or more within rises
)

// End is how a condition ends, in addition to what is written at each.
type End uint8

// Ends.
const (
	AfterQuiet  End = iota // not seen for Quiet
	AfterReset             // the device was reset, or the node was started
	AfterReboot            // the node was started
	WhenTold               // an Observation says that it is over; or not seen for Quiet, if that is set
)

// Links to who says so.
const (
	linkXIDs = "https://docs.nvidia.com/deploy/xid-errors/"
)

// rules is the only list of reason codes. Every rule has a case in rules_test.go.
var rules = []Rule{
	{Name: "missing", State: Failed, Action: ActionReboot, End: WhenTold,
		Text: "the board is in the node, and the driver does not serve it"},
	xid(48, Failed, ActionReset, AfterReset, "a double-bit ECC error"),
	xid(79, Failed, ActionReboot, AfterReset, "the GPU has fallen off the bus"),
}

// xid is the rule of one XID. Observations have the Reason "xid" and the code; codes without
// a rule say nothing of the device's health.
func xid(code int, s State, a Action, e End, text string) Rule {
	return Rule{Name: "xid_" + strconv.Itoa(code), State: s, Action: a, End: e, Text: text, Source: linkXIDs}
}
