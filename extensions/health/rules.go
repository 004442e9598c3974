package health

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
)

// Rule defines a fault: how to detect it, how bad it is, what to do about it, and how it ends.
// Faults that no reading shows come as an Observation with the rule's name.
type Rule struct {
	Name   string // reason code, also the name in --health-rules
	State  events.State
	Action events.Action
	Text   string // explanation, without the device
	Source string // link to the documentation

	// Condition has the readings that the rule judges. It is empty for rules without readings.
	field.Condition
	Label  collector.Label    // required label of the column; zero: any
	Except []string           // label values that exclude a column
	Blocks map[string]float64 // thresholds that replace Threshold, by value of the label block
	Unit   string             // unit of the threshold; "": the threshold is fixed
	For    time.Duration      // how long the test must hold

	End   End
	Quiet time.Duration // time without a sighting after which it ends
}

// End defines how a condition ends. Only AfterQuiet ends a condition without a new observation.
type End uint8

// Ends.
const (
	AfterQuiet End = iota // not seen for Quiet
	AfterReset            // device reset, driver reload or reboot
	WhenTold              // an Observation reports the end
)

// Links to the documentation.
const (
	linkXIDs     = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
	linkMemory   = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"
	linkRecovery = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html"
	linkPages    = "https://docs.nvidia.com/deploy/dynamic-page-retirement/index.html"
	linkDCGM     = "https://github.com/NVIDIA/DCGM/blob/master/modules/health/DcgmHealthWatch.cpp"
	linkFields   = "https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html"
	linkFabric   = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html"
	linkRAS      = "https://docs.kernel.org/gpu/amdgpu/ras.html"
	linkCPER     = "https://github.com/ROCm/device-metrics-exporter/pull/507"
	linkXGMI     = "https://rocm.docs.amd.com/projects/amdsmi/en/latest/doxygen/docBin/html/group__tagXGMI.html"
	linkRmInit   = "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/789"
	linkAER      = "https://docs.kernel.org/PCI/pcieaer-howto.html"
	linkAMDGPU   = "https://github.com/torvalds/linux/blob/master/drivers/gpu/drm/amd/amdgpu/amdgpu_device.c"
	linkStates   = "docs/states.md"
	linkSigns    = "docs/health.md#early-signs"
)

// MissingFor is how long a GPU must be gone to count as missing. After a boot or reload the driver takes some time for
// each GPU, and collectors search for new GPUs once a minute.
const MissingFor = 2 * time.Minute

// backFor is how long a reading must be good before the fault ends: two samples of a slow field.
const backFor = time.Minute

// Rules about device states, which Watch applies.
const (
	ruleLost      = "lost"
	ruleHung      = "hung"
	ruleStalled   = "stalled"
	ruleReleased  = "released"
	ruleNotServed = "not_served"
	ruleStarting  = "starting"
)

// usual lists health watch reasons that healthy GPUs report: the power limit is there to slow a GPU
// down, and one link error per minute or one hot second means little. Links and heat have their own
// rules.
var usual = []string{"DCGM_FR_CLOCK_THROTTLE_POWER", "DCGM_FR_CLOCK_THROTTLE_THERMAL", "DCGM_FR_NVLINK_ERROR_CRITICAL", "DCGM_FR_NVLINK_ERROR_THRESHOLD"}

// table is the only list of reason codes. Among equally bad conditions, the verdict shows the first
// in this order. TestEveryRule has a case for each.
//
// XIDs are included if their immediate action in NVIDIA's catalogue concerns the GPU or the node.
// XIDs about the application (13, 31, 43, 45, 68 …) or about nothing (63, 92 for a while, 121, 137,
// 141 …) do not describe the device's health. Readings cover 63 and 154.
var table = []Rule{
	xid(79, events.Failed, events.ActionReboot, "the GPU has fallen off the bus"),
	kernel("fell_off_bus", events.Failed, events.ActionReboot, "the kernel's log reports that the GPU has fallen off the bus", linkXIDs),
	kernel("amdgpu_device_lost", events.Failed, events.ActionReboot, "the driver has lost the GPU from the bus", linkAMDGPU),
	kernel("amdgpu_reset_failed", events.Failed, events.ActionReboot, "the driver could not reset the GPU", linkAMDGPU),
	untilQuiet(kernel("amdgpu_init_failed", events.Failed, events.ActionReboot, "the driver could not initialise the GPU", linkAMDGPU), 10*time.Minute),
	untilQuiet(kernel("rm_init_failed", events.Failed, events.ActionReboot, "the driver could not initialise the GPU", linkRmInit), 10*time.Minute),
	{Name: "recovery_reboot", State: events.Failed, Action: events.ActionReboot, Condition: field.RecoveryReboot, Quiet: backFor,
		Text: "the driver says that the node must be started again", Source: linkRecovery},
	xid(151, events.Failed, events.ActionReboot, "a key of confidential computing could not be renewed"),
	{Name: "recovery_reset", State: events.Failed, Action: events.ActionReset, Condition: field.RecoveryReset, Quiet: backFor,
		Text: "the driver says that the GPU must be reset", Source: linkRecovery},
	{Name: "row_remap_failed", State: events.Failed, Action: events.ActionReplace, Condition: field.RowRemapFailed, Quiet: backFor,
		Text: "a row of its memory could not be remapped", Source: linkMemory},
	{Name: "memory_unrepairable", State: events.Failed, Action: events.ActionReplace, Condition: field.UnrepairableMemory, Quiet: backFor,
		Text: "its memory has errors that cannot be repaired", Source: linkFields},
	xid(64, events.Failed, events.ActionReset, "memory could not be retired or remapped"),
	xid(48, events.Failed, events.ActionReset, "a double-bit ECC error"),
	xid(95, events.Failed, events.ActionReset, "an uncontained memory error"),
	xid(140, events.Failed, events.ActionReset, "an ECC error that was not recovered from"),
	{Name: "cper_fatal", State: events.Failed, Action: events.ActionReset, Condition: field.Condition{Readings: []field.ID{field.AMDRecordAge}, Test: field.AtMost, Threshold: 3600}, Label: collector.Label{Name: "severity", Value: "fatal"}, Unit: "seconds", Quiet: backFor, Text: "the driver has recorded a fatal error", Source: linkCPER},
	{Name: rasRule, State: events.Failed, Action: events.ActionReset, Condition: field.Condition{Readings: []field.ID{field.AMDRASErrors}, Test: field.AtLeast, Threshold: 1}, Label: collector.Label{Name: "severity", Value: "ue"}, Unit: "errors", Quiet: backFor, Text: "uncorrected errors of a block since the driver was loaded", Source: linkRAS},
	kernel("ras_error", events.Failed, events.ActionReset, "the driver reports an uncorrectable error in the kernel's log", linkRAS),
	kernel("aer_fatal", events.Failed, events.ActionReset, "a fatal error of its PCIe connection", linkAER),
	xid(46, events.Failed, events.ActionReset, "the GPU has stopped processing"),
	xid(62, events.Failed, events.ActionReset, "an internal micro-controller has halted"),
	xid(74, events.Failed, events.ActionReset, "an NVLink error"),
	xid(110, events.Failed, events.ActionReset, "a security fault"),
	xid(119, events.Failed, events.ActionReset, "the GPU's system processor does not answer"),
	xid(120, events.Failed, events.ActionReset, "an error of the GPU's system processor"),
	xid(136, events.Failed, events.ActionReset, "an NVLink could not be trained"),
	xid(143, events.Failed, events.ActionReset, "the GPU could not be initialised"),
	xid(158, events.Failed, events.ActionReset, "a fatal timeout of the GPU"),
	{Name: "sxid_fatal", State: events.Failed, Action: events.ActionReset, Condition: field.SwitchFatalError, End: AfterReset,
		Text: "a fatal error of the switch (SXid)", Source: linkFabric},
	{Name: "fabric_failed", State: events.Failed, Action: events.ActionDrain, Condition: field.FabricFailed, Quiet: backFor,
		Text: "the GPU could not be registered with the NVLink fabric", Source: linkFabric},
	{Name: "fabric_unhealthy", State: events.Failed, Action: events.ActionDrain, Condition: field.FabricUnhealthy, Quiet: backFor,
		Text: "the NVLink fabric says that the GPU is unhealthy", Source: linkFields},
	{Name: "health_watch_failed", State: events.Failed, Action: events.ActionDrain, Condition: field.Condition{Readings: []field.ID{field.GPUHealth}, Test: field.AtLeast, Threshold: 20}, Except: usual, Quiet: backFor,
		Text: "a health watch reports a failure", Source: linkDCGM},
	xid(54, events.Failed, events.ActionDrain, "auxiliary power is not connected"),

	{Name: ReasonMissing, Condition: ofState, State: events.Failed, Action: events.ActionReboot, End: WhenTold, For: MissingFor,
		Text: "the device was there, or its board is, and no driver serves it", Source: linkStates},
	{Name: ruleLost, Condition: ofState, State: events.Failed, Action: events.ActionReboot, Quiet: backFor, Text: "the library reports that the device is lost", Source: linkStates},
	{Name: ruleHung, Condition: ofState, State: events.Degraded, Action: events.ActionDrain, For: 5 * time.Minute, Quiet: backFor,
		Text: "the device has had no new values for minutes", Source: linkStates},

	{Name: "recovery_drain_p2p", State: events.Degraded, Action: events.ActionDrain, Condition: field.RecoveryDrainP2P, Quiet: backFor,
		Text: "the driver says that all traffic between GPUs must end", Source: linkRecovery},
	{Name: "recovery_drain_reset", State: events.Degraded, Action: events.ActionReset, Condition: field.RecoveryDrainReset, Quiet: backFor,
		Text: "the GPU has less capacity until it is reset", Source: linkRecovery},
	xid(94, events.Degraded, events.ActionReset, "a contained memory error"),
	xid(109, events.Degraded, events.ActionReset, "a context switch has timed out"),
	kernel("ras_poison", events.Degraded, events.ActionReset, "poisoned data was found or used", linkRAS),
	untilQuiet(kernel("aer_uncorrected", events.Degraded, events.ActionDrain, "an uncorrected error of its PCIe connection", linkAER), time.Hour),
	untilQuiet(kernel("xgmi_error", events.Degraded, events.ActionDrain, "an error of an XGMI link", linkXGMI), time.Hour),
	untilQuiet(kernel("amdgpu_ring_timeout", events.Degraded, events.ActionNone, "a queue of the GPU has hung", linkAMDGPU), 10*time.Minute),
	untilQuiet(kernel("amdgpu_reset", events.Degraded, events.ActionNone, "the driver has reset the GPU, and the work on it is lost", linkAMDGPU), 10*time.Minute),
	xid(155, events.Degraded, events.ActionReset, "an NVLink is down"),
	xid(156, events.Degraded, events.ActionReset, "a resource of the GPU is to be retired"),
	untilQuiet(xid(157, events.Degraded, events.ActionContact, "no resource is left to retire a faulty one"), 24*time.Hour),
	untilQuiet(xid(92, events.Degraded, events.ActionContact, "a high rate of single-bit ECC errors"), 24*time.Hour),
	untilQuiet(xid(144, events.Degraded, events.ActionDrain, "an NVLink error (SAW)"), time.Hour),
	untilQuiet(xid(145, events.Degraded, events.ActionDrain, "an NVLink error (RLW)"), time.Hour),
	untilQuiet(xid(146, events.Degraded, events.ActionDrain, "an NVLink error (TLW)"), time.Hour),
	untilQuiet(xid(147, events.Degraded, events.ActionDrain, "an NVLink error (TREX)"), time.Hour),
	untilQuiet(xid(148, events.Degraded, events.ActionDrain, "an NVLink error (NVLPW_CTRL)"), time.Hour),
	xid(149, events.Degraded, events.ActionReset, "an NVLink error (NETIR)"),
	untilQuiet(xid(150, events.Degraded, events.ActionDrain, "an NVLink error (MSE)"), time.Hour),
	{Name: "sram_threshold", State: events.Degraded, Action: events.ActionReplace, Condition: field.SRAMThreshold, Quiet: backFor,
		Text: "uncorrected errors of SRAM have passed their threshold", Source: linkMemory},
	{Name: "retired_pages", State: events.Degraded, Action: events.ActionReplace, Condition: field.ManyUncorrectablePages, Unit: "pages", Quiet: backFor,
		Text: "many pages of memory are retired for double-bit errors", Source: linkDCGM},
	{Name: "ecc_uncorrected", State: events.Degraded, Action: events.ActionReset, Condition: field.AnyUncorrectedError, Unit: "errors", Quiet: backFor,
		Text: "uncorrected ECC errors since the driver was loaded", Source: linkDCGM},
	{Name: "row_remap_pending", State: events.Degraded, Action: events.ActionReset, Condition: field.RowRemapAwaited, Quiet: backFor,
		Text: "a row of its memory is to be remapped at the next reset", Source: linkRecovery},
	{Name: "page_retirement_pending", State: events.Degraded, Action: events.ActionReset, Condition: field.PageRetirementPending, Quiet: backFor,
		Text: "a page of its memory is to be retired at the next reset", Source: linkPages},
	{Name: "bad_pages_failed", State: events.Degraded, Action: events.ActionReset, Condition: field.Condition{Readings: []field.ID{field.AMDBadPages}, Test: field.AtLeast, Threshold: 1}, Label: collector.Label{Name: "state", Value: "failed"}, Quiet: backFor, Text: "a bad page of its memory could not be retired, as it was in use", Source: linkRAS},
	{Name: "bad_pages_pending", State: events.Degraded, Action: events.ActionReset, Condition: field.Condition{Readings: []field.ID{field.AMDBadPages}, Test: field.AtLeast, Threshold: 1}, Label: collector.Label{Name: "state", Value: "pending"}, For: 5 * time.Minute, Quiet: backFor, Text: "a bad page of its memory waits to be retired", Source: linkRAS},
	{Name: "fabric_not_started", State: events.Degraded, Action: events.ActionDrain, Condition: field.FabricNotStarted, For: 10 * time.Minute, Quiet: backFor,
		Text: "the GPU waits to be registered with the NVLink fabric: is the fabric manager running?", Source: linkFabric},
	{Name: "fabric_limited", State: events.Degraded, Action: events.ActionDrain, Condition: field.FabricLimited, Quiet: backFor,
		Text: "the NVLink fabric has less capacity", Source: linkFields},
	{Name: "switch_port_error", State: events.Degraded, Action: events.ActionDrain, Condition: field.SwitchPortError, Quiet: backFor,
		Text: "a port of the switch is in error", Source: linkFields},
	{Name: "nvlink_crc_errors", State: events.Degraded, Action: events.ActionDrain, Condition: field.LinkCRCErrors, Unit: "errors in a minute", Quiet: 10 * time.Minute,
		Text: "NVLinks have many CRC errors", Source: linkDCGM},
	{Name: "xgmi_link_down", State: events.Degraded, Action: events.ActionDrain, Condition: field.Condition{Readings: []field.ID{field.AMDXGMILinkUp}, Test: field.Falls, Threshold: 1}, Quiet: backFor,
		Text: "an XGMI link that was up is down", Source: linkXGMI},
	{Name: "health_watch_warning", State: events.Degraded, Action: events.ActionNone, Condition: field.Condition{Readings: []field.ID{field.GPUHealth}, Test: field.AtLeast, Threshold: 10}, Except: usual, Quiet: backFor, Text: "a health watch reports a warning", Source: linkDCGM},
	{Name: "hot", State: events.Degraded, Action: events.ActionDrain, Condition: field.Hot, Unit: "celsius", For: time.Minute, Quiet: 5 * time.Minute,
		Text: "the GPU is hot", Source: linkFields},
	{Name: "thermal_violation", State: events.Degraded, Action: events.ActionDrain, Condition: field.SlowedByHeatLong, Unit: "ns in an hour", Quiet: time.Hour,
		Text: "the GPU is slowed down by its temperature for a quarter of the time", Source: linkSigns},

	// Early signs, from readings that package signs derives.
	{Name: "corrected_errors", State: events.Degraded, Action: events.ActionDrain, Condition: field.CorrectedErrorStorm,
		Text: "a storm of corrected memory errors", Source: linkSigns},
	{Name: "nvlink_errors", State: events.Degraded, Action: events.ActionDrain, Condition: field.LinkBudgetSpent, For: time.Minute, Quiet: 10 * time.Minute,
		Text: "a link has more errors than are acceptable", Source: linkSigns},
	{Name: "spare_rows_low", State: events.Degraded, Action: events.ActionContact, Condition: field.NoSpareRows, For: time.Minute, Quiet: 10 * time.Minute,
		Text: "a bank of its memory has no spare row left", Source: linkSigns},
	{Name: "throttled", State: events.Degraded, Action: events.ActionNone, Condition: field.Throttled,
		Text: "clocks are held down for a quarter of the time", Source: linkSigns},
	{Name: "straggler", State: events.OK, Action: events.ActionNone, Condition: field.Straggler, For: 15 * time.Minute, Quiet: 15 * time.Minute,
		Text: "the GPU is slower than others with the same work", Source: linkSigns},

	{Name: ruleReleased, Condition: ofState, State: events.Unknown, Action: events.ActionNone, Text: "an operator has released the collector", Source: linkStates},
	{Name: ruleStalled, Condition: ofState, State: events.Unknown, Action: events.ActionNone, End: WhenTold, Text: "the device has no new values", Source: linkStates},
	{Name: ruleNotServed, Condition: ofState, State: events.Unknown, Action: events.ActionNone, For: 30 * time.Second, Text: "no collector serves the device", Source: linkStates},
	{Name: ruleStarting, Condition: ofState, State: events.Unknown, Action: events.ActionNone, For: 30 * time.Second, Text: "no values yet", Source: linkStates},
}

// ofState marks rules about the state of a device or its collector.
var ofState = field.Condition{Test: field.OfState}

// xid returns the rule for an XID, which ends at a reset. Observations have the Reason "xid" and
// the code. Codes without a rule do not affect a device's health.
func xid(code int, s events.State, a events.Action, text string) Rule {
	return Rule{Name: "xid_" + strconv.Itoa(code), State: s, Action: a, End: AfterReset, Text: fmt.Sprintf("XID %d: %s", code, text), Source: linkXIDs}
}

// kernel returns the rule for a kind of kernel log line, which ends at a reset.
func kernel(name string, s events.State, a events.Action, text, source string) Rule {
	return Rule{Name: name, State: s, Action: a, End: AfterReset, Text: text, Source: source}
}

// untilQuiet returns the rule with the end AfterQuiet.
func untilQuiet(r Rule, quiet time.Duration) Rule {
	r.End, r.Quiet = AfterQuiet, quiet
	return r
}

// Rules is the set of active rules.
type Rules []Rule

// Table returns all rules with their defaults.
func Table() Rules { return slices.Clone(table) }

// rasRule is the only rule with thresholds per block.
const rasRule = "ras_uncorrected"

// Select applies an operator's changes to the rules: NAME=off, NAME=on or NAME=NUMBER, and ras_uncorrected.BLOCK=NUMBER for one
// block of AMD's GPUs. Its error lists all mistakes and their repair.
func Select(changes []string) (Rules, error) {
	out := Table()
	off := map[string]bool{}
	var wrong []string
	for _, c := range changes {
		name, value, _ := strings.Cut(c, "=")
		name, block, _ := strings.Cut(name, ".")
		i := slices.IndexFunc(out, func(r Rule) bool { return r.Name == name })
		switch {
		case i < 0:
			text := fmt.Sprintf("unknown rule %q", name)
			if near, ok := field.Nearest(name, out.names()); ok {
				text += fmt.Sprintf("; did you mean %s?", near)
			}
			wrong = append(wrong, text)
		case block != "" && name != rasRule:
			wrong = append(wrong, fmt.Sprintf("%q: %s has no blocks: write %s=%s", c, name, name, value))
		case block == "" && (value == "on" || value == "off"):
			off[name] = value == "off"
		case out[i].Unit == "":
			wrong = append(wrong, fmt.Sprintf("%q: %s has no threshold: write %s=off or %s=on", c, name, name, name))
		default:
			n, err := strconv.ParseFloat(value, 64)
			if err != nil || !(n > 0) || math.IsInf(n, 0) {
				wrong = append(wrong, fmt.Sprintf("%q: write a number above 0 (%s), off or on", c, out[i].Unit))
				continue
			}
			if block == "" {
				out[i].Threshold = n
				continue
			}
			out[i].Blocks = maps.Clone(out[i].Blocks)
			if out[i].Blocks == nil {
				out[i].Blocks = map[string]float64{}
			}
			out[i].Blocks[block] = n
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("--health-rules: %s; docs/health-rules.md lists them", strings.Join(wrong, "; "))
	}
	return slices.DeleteFunc(out, func(r Rule) bool { return off[r.Name] }), nil
}

func (r Rules) names() (out []string) {
	for i := range r {
		out = append(out, r[i].Name)
	}
	return out
}

// Has reports whether a rule has that name.
func (r Rules) Has(name string) bool { return r.find(name, 0) != nil }

// find returns the rule for an Observation, by code or by reason, or nil.
func (r Rules) find(reason string, code int) *Rule {
	if code != 0 {
		reason += "_" + strconv.Itoa(code)
	}
	for i := range r {
		if r[i].Name == reason {
			return &r[i]
		}
	}
	return nil
}

// A device reset or driver load sets these readings to 0: energy and volatile ECC errors. A drop
// therefore shows a reset.
var resetReadings = []field.ID{field.TotalEnergy, field.CorrectedErrors, field.UncorrectedErrors}

// Readings returns the GPU readings that the rules need, for lists without them. It omits readings of links
// and switches, which would add devices to the list. It omits readings that make the vendor's library run
// checks. Except for XIDs, the readings have the interval every.
func (r Rules) Readings(every time.Duration) (out []field.Reading) {
	seen := map[field.ID]bool{field.GPUHealth: true}
	add := func(id field.ID) {
		d, known := field.ByID(id)
		if !known || seen[id] || d.Level != field.GPU {
			return
		}
		seen[id] = true
		out = append(out, field.Reading{Desc: d, Interval: every})
	}
	if len(r) == 0 {
		return nil
	}
	for i := range r {
		for _, id := range r[i].Readings {
			add(id)
		}
	}
	for _, id := range resetReadings {
		add(id)
	}
	if d, known := field.ByID(field.XIDEvent); known {
		out = append(out, field.Reading{Desc: d, Default: true})
	}
	return out
}
