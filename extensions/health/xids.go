package health

import (
	"cmp"
	_ "embed" // xids.csv
	"encoding/csv"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
)

//go:embed xids.csv
var xidFile string

// XID is NVIDIA's resolution of an XID, or of one kind of an NVLink error (144 to 150).
type XID struct {
	Code        int
	Unit        string // of the GPU, "" for a whole code
	Resolution  string // resolution bucket of NVIDIA's catalogue
	Why         string // our reason, where the catalogue has no resolution
	sub, status uint64
	low         [2]string // lowest bits of the first word: before driver R575, and since
}

// catalogue has the rows of xids.csv.
var catalogue = XIDs()

// HasKinds reports whether the driver's log line of an XID names a kind of it.
func HasKinds(code int) bool {
	return code == recoveryXID || code == registersXID || slices.ContainsFunc(catalogue, func(x XID) bool { return x.Code == code && x.Unit != "" })
}

// XIDs returns the rows of xids.csv.
func XIDs() (out []XID) {
	r := csv.NewReader(strings.NewReader(xidFile))
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		panic(fmt.Sprintf("health: xids.csv: %v", err)) // embedded
	}
	for _, row := range rows[1:] {
		n := [3]uint64{}
		for i, text := range []string{row[0], row[2], row[5]} {
			n[i], _ = strconv.ParseUint(text, 0, 32) // empty for a whole code
		}
		out = append(out, XID{Code: int(n[0]), Unit: row[1], sub: n[1], low: [2]string{row[3], row[4]}, status: n[2], Resolution: row[6], Why: row[7]})
	}
	return out
}

// nvlinkLine matches the end of a line about an NVLink error: severity and words. The driver pads unit and severity with blanks.
var nvlinkLine = regexp.MustCompile(`, [A-Z0-9_/]+ +(Fatal|Nonfatal) +XC ?\d+ +i ?\d+ +Link +-?\d+ +[(\[]([0-9a-fA-Fx ]*)[)\]]$`)

// registersLine matches the end of a line about XID 74, with the registers of the link.
var registersLine = regexp.MustCompile(`, NVLink: .+ on link \d+\((0x[0-9a-f]{1,8})((?:, 0x[0-9a-f]{1,8})*)\)$`)

// harmlessBits of the first register can be ignored (NVIDIA's WORKFLOW_NVLINK_ERR, https://github.com/NVIDIA/NVSentinel/issues/364).
const registersXID, harmlessBits = 74, 1<<0 | 1<<23 | 1<<30

// recoveryLine matches the line of XID 154.
var recoveryLine = regexp.MustCompile(`, GPU recovery action changed from 0x[0-9a-f]+ \([^()]*\) to 0x([0-9a-f]+) \([^()]*\)$`)

// Kinds of XIDs, in the names of rules.
const (
	recoveryXID = 154        // a changed recovery action; its kinds are recoveries
	xidReset    = "reset"    // xid_145_reset: the catalogue says RESET_GPU
	xidNothing  = "harmless" // the catalogue says IGNORE; no rule has such a name
)

// kindOf returns what the driver's line adds to an XID: "" for nothing.
func kindOf(code int, line string) string {
	if m := recoveryLine.FindStringSubmatch(line); m != nil && code == recoveryXID {
		n, _ := strconv.ParseUint(m[1], 16, 64) // too large a number is the largest
		return recoveries[min(n, uint64(len(recoveries)-1))].name
	}
	if m := registersLine.FindStringSubmatch(line); m != nil && code == registersXID {
		first, _ := strconv.ParseUint(m[1], 0, 32)
		if first&^harmlessBits == 0 && strings.Trim(m[2], ", 0x") == "" {
			return xidNothing
		}
		return ""
	}
	m := nvlinkLine.FindStringSubmatch(line)
	if m == nil || !HasKinds(code) {
		return ""
	}
	words := append(strings.Fields(m[2]), "", "")
	info, bad := strconv.ParseUint(words[0], 0, 32)
	status, bad2 := strconv.ParseUint(words[1], 0, 32)
	resolution := map[string]string{"Fatal": "RESET_GPU", "Nonfatal": "IGNORE"}[m[1]] // for kinds that the catalogue lacks, and lines without both words
	bits := fmt.Sprintf("%032b", info)
	if i := slices.IndexFunc(catalogue, func(x XID) bool {
		low := strings.HasSuffix(bits, x.low[0]) || strings.HasSuffix(bits, x.low[1])
		return x.Code == code && x.Unit != "" && x.status == status && x.sub == info>>20&0x3f && low && bad == nil && bad2 == nil
	}); i >= 0 {
		resolution = catalogue[i].Resolution
	}
	return map[string]string{"RESET_GPU": xidReset, "IGNORE": xidNothing}[resolution]
}

// xidRules returns the rules of the XIDs that concern the GPU or the node, and of the recovery action as XID and as reading.
func xidRules() (out []Rule) {
	add := func(name string, code int, s events.State, a events.Action, text string) {
		out = append(out, Rule{Name: name, State: s, Action: a, End: AfterReset, Text: fmt.Sprintf("XID %d: %s", code, text), Source: linkXIDs})
	}
	for _, x := range catalogue {
		if x.Unit != "" {
			continue
		}
		name, text := "xid_"+strconv.Itoa(x.Code), cmp.Or(strings.TrimPrefix(field.XIDText(x.Code), "Unknown Error"), x.Why)
		switch x.Resolution {
		case "RESTART_BM", "RESTART_VM":
			add(name, x.Code, events.Failed, events.ActionReboot, text)
		case "RESET_GPU", "WORKFLOW_XID_48", "WORKFLOW_NVLINK_ERR":
			add(name, x.Code, events.Failed, events.ActionReset, text)
			if x.Code == registersXID {
				out[len(out)-1].For = 2 * time.Second // its line may say that nothing is wrong, and comes later from a file
			}
		case "CHECK_MECHANICALS":
			add(name, x.Code, events.Failed, events.ActionDrain, text)
		case "CONTACT_SUPPORT":
			add(name, x.Code, events.Degraded, events.ActionContact, text)
		case "WORKFLOW_NVLINK5_ERR":
			add(name, x.Code, events.Degraded, events.ActionNone, text+"; only the kernel log names the kind of error")
			out[len(out)-1] = untilQuiet(out[len(out)-1], time.Hour)
			add(name+"_"+xidReset, x.Code, events.Failed, events.ActionReset, text)
		case "XID_154":
			for n, r := range recoveries[1:] {
				add(name+"_"+r.name, x.Code, r.state, r.action, r.text)
				c := field.Condition{Readings: []field.ID{field.RecoveryAction}, Test: field.Equal, Threshold: float64(n + 1)}
				if n+2 == len(recoveries) {
					c.Test = field.AtLeast
				}
				out = append(out, Rule{Name: "recovery_" + r.name, State: r.state, Action: r.action, Condition: c, Quiet: backFor, Text: r.text, Source: linkRecovery})
			}
		}
	}
	return out
}

// recoveries has NVML's recovery actions (nvmlDeviceGpuRecoveryAction_t) with DCGM's severities.
var recoveries = []struct {
	name   string
	state  events.State
	action events.Action
	text   string
}{
	{name: xidNothing},
	{"reset", events.Failed, events.ActionReset, "the driver says that the GPU must be reset"},
	{"reboot", events.Failed, events.ActionReboot, "the driver says that the node must be started again"},
	{"drain_p2p", events.Degraded, events.ActionDrain, "the driver says that all traffic between GPUs must end"},
	{"drain_reset", events.Failed, events.ActionReset, "the driver says that all traffic between GPUs must end and the GPU be reset"},
	{"imex", events.Failed, events.ActionDrain, "the driver says that the IMEX domain must be recovered"},
	{"bus_reset", events.Failed, events.ActionReset, "the driver says that the GPU's PCIe bus must be reset"},
	{"system_reboot", events.Failed, events.ActionReboot, "the driver says that the system must be started again"},
	{"other", events.Degraded, events.ActionContact, "the driver asks for a recovery that is not known here"},
}
