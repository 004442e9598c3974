// Package health judges each device by a table of rules (rules.go) and keeps a verdict on it.
package health

import "time"

// Observation is a report about a device that comes from no reading: an XID in the kernel
// log, a board that no driver serves, a rate that is out of line.
type Observation struct {
	// Reason is the name of a rule, without the code: "xid", "missing", "sxid_fatal"; or
	// ReasonReset. What no rule has is left out.
	Reason   string
	Code     int    // of an XID; 0: none
	Device   string // collector.Device.ID; "": found by PCIBusID
	PCIBusID string // in any usual form
	Time     time.Time
	Source   string
	Text     string
	Over     bool // it no longer holds; for rules that end by being told so
}

// ReasonReset is the Reason of an Observation that a device was reset.
const ReasonReset = "reset"
