//go:build linux && cgo

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"warpgauge/extensions/health"
	"warpgauge/pkg/field"
)

// healthPage returns the rows of docs/health-rules.md.
func healthPage() (any, error) {
	var b strings.Builder
	rules := health.Table()
	for i := range rules {
		r := &rules[i]
		source := r.Source
		if name, local := strings.CutPrefix(source, "docs/"); local {
			source = fmt.Sprintf("[%s](%s)", name, name)
		} else {
			source = "[" + strings.Split(source, "/")[2] + "](" + source + ")"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", r.Name, r.State, r.Action, cell(r.Text), cell(when(r)), cell(ends(r)), source)
	}
	xids := map[string][]string{}
	for _, x := range health.XIDs() {
		if x.Unit == "" {
			xids[x.Resolution] = append(xids[x.Resolution], strings.TrimSpace(strconv.Itoa(x.Code)+" "+strings.TrimSuffix("("+x.Why+")", "()")))
		}
	}
	return struct {
		Rules string
		XIDs  map[string][]string
	}{b.String(), xids}, nil
}

// comparisons lists the words for the tests of a reading.
var comparisons = map[field.Test]string{
	field.AtLeast: "%s is %s or more", field.AtMost: "%s is %s or less", field.Equal: "%s is %s", field.Rises: "%s grows by %s", field.Falls: "%s falls below %s",
}

// when describes when a rule holds.
func when(r *health.Rule) string {
	var names []string
	for _, id := range r.Readings {
		if d, known := field.ByID(id); known {
			names = append(names, "`"+d.Name+"`")
		}
	}
	reading := strings.Join(names, " or ")
	if r.Derived != field.NotDerived {
		reading = r.Derived.String() + " (from " + reading + ")"
	}
	if r.Label.Name != "" {
		reading += fmt.Sprintf(" with `%s=%q`", r.Label.Name, r.Label.Value)
	}
	if len(r.Except) > 0 {
		reading += ", except `" + strings.Join(r.Except, "`, `") + "`,"
	}
	threshold := strconv.FormatFloat(r.Threshold, 'f', -1, 64)
	if r.Unit != "" {
		threshold = "**" + threshold + "** " + r.Unit
	}
	if d, known := field.ByID(r.Limit); known && r.Limit != 0 {
		threshold = "`" + d.Name + "` or, without one, " + threshold
	}
	out, compared := comparisons[r.Test]
	switch {
	case compared:
		out = fmt.Sprintf(out, reading, threshold)
	case r.Test == field.OfState:
		out = "state of the device or its collector"
	default:
		out = "an XID"
		if !strings.HasPrefix(r.Name, "xid_") {
			out = "another source reports it"
		}
		if reading != "" {
			out += ", in " + reading
		}
	}
	if r.For > 0 {
		out += ", for " + spanOf(r.For)
	}
	return out
}

// ends describes when a condition ends.
func ends(r *health.Rule) string {
	back := strconv.FormatFloat(r.Clear, 'f', -1, 64)
	switch {
	case r.End == health.AfterReset:
		return "reset, or start of the node"
	case r.End == health.WhenTold:
		return "the source reports the end"
	case r.Clear > 0 && r.Quiet == 0:
		return back + " or less"
	case r.Clear > 0:
		return back + " or less for " + spanOf(r.Quiet)
	case r.Quiet == 0:
		return "at once"
	case r.Test > field.OfState:
		return "value back for " + spanOf(r.Quiet)
	}
	return "quiet for " + spanOf(r.Quiet)
}

// spanOf formats a duration without zeros: 1h, 30s.
func spanOf(d time.Duration) string {
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
}
