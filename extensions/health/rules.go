package health

import (
	"cmp"
	"fmt"
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
	NotOf  *field.Vendor      // its boards have rules of their own
	Blocks map[string]float64 // thresholds that replace Threshold, by value of the label block
	Unit   string             // unit of the threshold; "": the threshold is fixed
	For    time.Duration      // how long the test must hold

	End   End
	Quiet time.Duration // time without a sighting after which it ends
	rank  int           // place in the table
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
	linkDCGM     = "https://github.com/NVIDIA/DCGM/blob/master/modules/health/DcgmHealthWatch.cpp"
	linkFields   = "https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html"
	linkFabric   = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html"
	linkRAS      = "https://docs.kernel.org/gpu/amdgpu/ras.html"
	linkCPER     = "https://github.com/ROCm/device-metrics-exporter/pull/507"
	linkXGMI     = "https://rocm.docs.amd.com/projects/amdsmi/en/latest/doxygen/docBin/html/group__tagXGMI.html"
	linkAER      = "https://docs.kernel.org/PCI/pcieaer-howto.html"
	linkAMDGPU   = "https://github.com/torvalds/linux/blob/master/drivers/gpu/drm/amd/amdgpu/amdgpu_device.c"
	linkAzure    = "https://github.com/Azure/azurehpc/pull/649"
	linkStates   = "docs/states.md"
	linkSigns    = "docs/health.md#early-signs"
)

// MissingFor is how long a GPU must be gone to count as missing. After a boot or reload the driver takes some time for
// each GPU, and collectors search for new GPUs once a minute.
const MissingFor = 2 * time.Minute

const backFor = time.Minute      // how long a reading must be good before the fault ends: two samples of a slow field
const handover = 5 * time.Second // how long no collector may have a device when another one takes over

// Rules about device states, which Watch applies.
const (
	ruleLost      = "lost"
	ruleHung      = "hung"
	ruleFails     = "calls_fail"
	ruleOneCall   = "call_hangs"
	ruleStalled   = "stalled"
	ruleReleased  = "released"
	ruleNotServed = "not_served"
	ruleStarting  = "starting"
)

// judgedElsewhere lists errors of DCGM's health watches that other rules or alerts cover: healthy GPUs reach their power limit,
// are hot for a second and have a link error or PCIe replays in a minute, some cannot read their power, and applications cause most XIDs.
var judgedElsewhere = []string{
	"DCGM_FR_PCI_REPLAY_RATE", "DCGM_FR_CLOCK_THROTTLE_POWER", "DCGM_FR_CLOCK_THROTTLE_THERMAL", "DCGM_FR_NVLINK_ERROR_CRITICAL",
	"DCGM_FR_NVLINK_ERROR_THRESHOLD", "DCGM_FR_POWER_UNREADABLE", "DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD", "DCGM_FR_XID_ERROR", "DCGM_FR_CONTAINED_ERROR", "DCGM_FR_FABRIC_PROBE_STATE",
	"DCGM_FR_UNCONTAINED_ERROR", "DCGM_FR_FALLEN_OFF_BUS", "DCGM_FR_VOLATILE_DBE_DETECTED",
	"DCGM_FR_PENDING_PAGE_RETIREMENTS", "DCGM_FR_RETIRED_PAGES_DBE_LIMIT", "DCGM_FR_ROW_REMAP_FAILURE",
	"DCGM_FR_UNCORRECTABLE_ROW_REMAP_LIMIT", "DCGM_FR_FAULTY_MEMORY", "DCGM_FR_CORRUPT_INFOROM", "DCGM_FR_GPU_RECOVERY_RESET",
	"DCGM_FR_GPU_RECOVERY_REBOOT", "DCGM_FR_GPU_RECOVERY_DRAIN_P2P", "DCGM_FR_GPU_RECOVERY_DRAIN_RESET",
}

// table is the only list of reason codes, with the XIDs and recovery actions of xids.go. TestEveryRule has a case for each.
var table = inOrder(slices.Concat(xidRules(), []Rule{
	kernel("fell_off_bus", events.Failed, events.ActionReboot, "the kernel's log reports that the GPU has fallen off the bus", linkXIDs),
	kernel("amdgpu_device_lost", events.Failed, events.ActionReboot, "the driver has lost the GPU from the bus", linkAMDGPU),
	kernel("amdgpu_reset_failed", events.Failed, events.ActionReboot, "the driver could not reset the GPU", linkAMDGPU),
	untilQuiet(kernel("amdgpu_init_failed", events.Failed, events.ActionReboot, "the driver could not initialise the GPU", linkAMDGPU), 10*time.Minute),
	untilQuiet(kernel("rm_init_failed", events.Failed, events.ActionReboot, "the driver could not initialise the GPU", "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/789"), 10*time.Minute),
	notAMD(reading("row_remap_failed", events.Failed, events.ActionReplace, field.RowRemapFailed, "a row of its memory could not be remapped", linkMemory)),
	reading("memory_unrepairable", events.Failed, events.ActionReplace, field.UnrepairableMemory, "its memory has errors that cannot be repaired", linkFields),
	{Name: "cper_fatal", State: events.Failed, Action: events.ActionReset, Condition: field.Condition{Readings: []field.ID{field.AMDRecordAge}, Test: field.AtMost, Threshold: 3600}, Label: collector.Label{Name: "severity", Value: "fatal"}, Unit: "seconds", Quiet: backFor, Text: "the driver has recorded a fatal error", Source: linkCPER},
	{Name: "cper_fatal_undated", State: events.Failed, Action: events.ActionReset, Condition: field.Condition{Readings: []field.ID{field.AMDRecordsUndated}, Test: field.AtLeast, Threshold: 1}, Label: collector.Label{Name: "severity", Value: "fatal"}, Quiet: backFor, Text: "the driver has recorded a fatal error at an unknown time", Source: linkCPER},
	{Name: rasRule, State: events.Failed, Action: events.ActionReset, Condition: field.Condition{Readings: []field.ID{field.AMDRASErrors}, Test: field.AtLeast, Threshold: 1}, Label: collector.Label{Name: "severity", Value: "ue"}, Unit: "errors", Quiet: backFor, Text: "uncorrected errors of a block since the driver was loaded", Source: linkRAS},
	kernel("ras_error", events.Failed, events.ActionReset, "the driver reports an uncorrectable error in the kernel's log", linkRAS),
	kernel("aer_fatal", events.Failed, events.ActionReset, "a fatal error of its PCIe connection", linkAER),
	{Name: "sxid_fatal", State: events.Failed, Action: events.ActionReset, Condition: field.SwitchFatalError, End: AfterReset, Text: "a fatal error of the switch (SXid)", Source: linkFabric},
	reading("fabric_failed", events.Failed, events.ActionDrain, field.FabricFailed, "the GPU is not registered with the NVLink fabric, or its registration cannot be read", linkDCGM),
	reading("fabric_unhealthy", events.Failed, events.ActionDrain, field.FabricUnhealthy, "the NVLink fabric says that the GPU is unhealthy", linkFields),
	{Name: "health_watch_failed", State: events.Failed, Action: events.ActionDrain, Condition: field.Condition{Readings: []field.ID{field.GPUHealth}, Test: field.AtLeast, Threshold: 20}, Except: judgedElsewhere, Quiet: backFor, Text: "a health watch reports a failure", Source: linkDCGM},

	{Name: ruleLost, Condition: ofState, State: events.Failed, Action: events.ActionReboot, Quiet: backFor, Text: "the library reports that the device is lost", Source: linkStates},
	{Name: ruleHung, Condition: ofState, State: events.Failed, Action: events.ActionReboot, Quiet: backFor, Text: "the device does not return from a library call", Source: linkStates},
	{Name: ReasonMissing, Condition: ofState, State: events.Failed, Action: events.ActionReboot, End: WhenTold, For: MissingFor, Text: "the device was there, or its board is, and no driver serves it", Source: linkStates},
	{Name: ruleOneCall, Condition: ofState, State: events.Degraded, Action: events.ActionDrain, Quiet: backFor, Text: "the device does not return from one library call, and answers others", Source: linkStates},
	{Name: ruleFails, Condition: ofState, State: events.Degraded, Action: events.ActionDrain, For: 5 * time.Minute, Quiet: backFor, Text: "all library calls for the device have failed for minutes", Source: linkStates},

	kernel("ras_poison", events.Degraded, events.ActionReset, "poisoned data was found or used", linkRAS),
	untilQuiet(kernel("aer_uncorrected", events.Degraded, events.ActionDrain, "an uncorrected error of its PCIe connection", linkAER), time.Hour),
	untilQuiet(kernel("xgmi_error", events.Degraded, events.ActionDrain, "an error of an XGMI link", linkXGMI), time.Hour),
	untilQuiet(kernel("amdgpu_ring_timeout", events.Degraded, events.ActionNone, "a queue of the GPU has hung", linkAMDGPU), 10*time.Minute),
	untilQuiet(kernel("amdgpu_reset", events.Degraded, events.ActionNone, "the driver has reset the GPU, and the work on it is lost", linkAMDGPU), 10*time.Minute),
	reading("sram_threshold", events.Degraded, events.ActionReplace, field.SRAMThreshold, "uncorrected errors of SRAM have passed their threshold", linkMemory),
	notAMD(Rule{Name: "retired_pages", State: events.Failed, Action: events.ActionReplace, Condition: field.ManyUncorrectablePages, Unit: "pages", Quiet: backFor, Text: "many pages of memory are retired for double-bit errors", Source: linkDCGM}),
	notAMD(Rule{Name: "ecc_uncorrected", State: events.Failed, Action: events.ActionReset, Condition: field.AnyUncorrectedError, Unit: "errors", Quiet: backFor, Text: "uncorrected ECC errors since the driver was loaded", Source: linkDCGM}), // ras_uncorrected has AMD's
	{Name: "remapped_rows_limit", State: events.Degraded, Action: events.ActionContact, Condition: field.ManyRemappedRows, Unit: "rows", Quiet: backFor, Text: "many rows of memory are remapped for uncorrected errors", Source: linkDCGM},
	reading("inforom_corrupt", events.Degraded, events.ActionContact, field.InfoROMCorrupt, "the board's InfoROM is corrupt", linkDCGM),
	notAMD(Rule{Name: "corrected_sram_errors", State: events.Degraded, Action: events.ActionDrain, Condition: field.ManyCorrectedSRAM, Unit: "errors in a day", Quiet: 24 * time.Hour, Text: "very many corrected errors of SRAM", Source: linkAzure}),
	{Name: "corrected_errors", State: events.Degraded, Action: events.ActionDrain, Condition: field.ManyCorrected, Unit: "errors in a day", Quiet: 24 * time.Hour, Text: "very many corrected memory errors", Source: linkAzure},
	{Name: "spare_rows_low", State: events.Degraded, Action: events.ActionContact, Condition: field.NoSpareRows, For: time.Minute, Quiet: 10 * time.Minute, Text: "a bank of its memory has no spare row left", Source: linkMemory},
	reading("row_remap_pending", events.Degraded, events.ActionReset, field.RowRemapAwaited, "a row of its memory is to be remapped at the next reset", linkRecovery),
	notAMD(reading("page_retirement_pending", events.Degraded, events.ActionReset, field.PageRetirementPending, "a page of its memory is to be retired at the next reset", "https://docs.nvidia.com/deploy/dynamic-page-retirement/index.html")),
	{Name: "bad_pages_failed", State: events.Degraded, Action: events.ActionReset, Condition: field.Condition{Readings: []field.ID{field.AMDBadPages}, Test: field.AtLeast, Threshold: 1}, Label: collector.Label{Name: "state", Value: "failed"}, Quiet: backFor, Text: "a bad page of its memory could not be retired, as it was in use", Source: linkRAS},
	{Name: "bad_pages_pending", State: events.Degraded, Action: events.ActionReset, Condition: field.Condition{Readings: []field.ID{field.AMDBadPages}, Test: field.AtLeast, Threshold: 1}, Label: collector.Label{Name: "state", Value: "pending"}, For: 5 * time.Minute, Quiet: backFor, Text: "a bad page of its memory waits to be retired", Source: linkRAS},
	{Name: "fabric_not_started", State: events.Degraded, Action: events.ActionDrain, Condition: field.FabricNotStarted, For: 10 * time.Minute, Quiet: backFor, Text: "the GPU waits to be registered with the NVLink fabric: is the fabric manager running?", Source: linkFabric},
	{Name: "fabric_in_progress", State: events.Degraded, Action: events.ActionDrain, Condition: field.Condition{Readings: []field.ID{field.FabricManagerStatus}, Test: field.Equal, Threshold: 2}, For: 10 * time.Minute, Quiet: backFor, Text: "the GPU's registration with the NVLink fabric does not end", Source: linkDCGM},
	reading("fabric_limited", events.Degraded, events.ActionDrain, field.FabricLimited, "the NVLink fabric has less capacity", linkFields),
	reading("switch_port_error", events.Degraded, events.ActionDrain, field.SwitchPortError, "a port of the switch is in error", linkFields),
	{Name: "nvlink_crc_errors", State: events.Failed, Action: events.ActionDrain, Condition: field.LinkCRCErrors, Unit: "errors in a minute", Quiet: 10 * time.Minute, Text: "NVLinks have many CRC errors", Source: linkDCGM},
	{Name: "xgmi_link_down", State: events.Degraded, Action: events.ActionDrain, Condition: field.Condition{Readings: []field.ID{field.AMDXGMILinkUp}, Test: field.Falls, Threshold: 1}, Quiet: backFor, Text: "an XGMI link that was up is down", Source: linkXGMI},
	{Name: "health_watch_warning", State: events.Degraded, Action: events.ActionNone, Condition: field.Condition{Readings: []field.ID{field.GPUHealth}, Test: field.Equal, Threshold: 10}, Except: judgedElsewhere, Quiet: backFor, Text: "a health watch reports a warning", Source: linkDCGM},
	notAMD(Rule{Name: "temperature_limit", State: events.Degraded, Action: events.ActionNone, Condition: field.Condition{Readings: []field.ID{field.TemperatureMargin}, Test: field.AtMost}, For: time.Minute, Quiet: 5 * time.Minute, Text: "the GPU is as hot as it may be (T.Limit)", Source: linkFields}),
	{Name: "hot", State: events.Degraded, Action: events.ActionNone, Condition: field.Hot, Unit: "celsius", For: time.Minute, Quiet: 5 * time.Minute, Text: "the GPU is as hot as its board may be", Source: linkFields},

	// Early signs, from readings that package signs derives.
	{Name: "nvlink_errors", State: events.Degraded, Action: events.ActionDrain, Condition: field.LinkBudgetSpent, For: time.Minute, Quiet: 10 * time.Minute, Text: "a link has more errors than are acceptable", Source: linkSigns},
	{Name: "throttled", State: events.Degraded, Action: events.ActionNone, Condition: field.Throttled, Text: "clocks are held down for a quarter of the time", Source: linkSigns},
	{Name: "straggler", State: events.OK, Action: events.ActionNone, Condition: field.Straggler, For: 15 * time.Minute, Quiet: 15 * time.Minute, Text: "the GPU is slower than others with the same work", Source: linkSigns},

	{Name: ruleReleased, Condition: ofState, State: events.Unknown, Action: events.ActionNone, Text: "an operator has released the collector", Source: linkStates},
	{Name: ruleStalled, Condition: ofState, State: events.Unknown, Action: events.ActionNone, End: WhenTold, For: 3 * time.Second, Text: "the device has no new values", Source: linkStates},
	{Name: ruleNotServed, Condition: ofState, State: events.Unknown, Action: events.ActionNone, For: 30 * time.Second, Text: "no collector serves the device", Source: linkStates},
	{Name: ruleStarting, Condition: ofState, State: events.Unknown, Action: events.ActionNone, For: 30 * time.Second, Text: "no values yet", Source: linkStates},
}))

// inOrder sorts rules by state and action, the worst first: the verdict shows the first condition.
func inOrder(rules []Rule) []Rule {
	slices.SortStableFunc(rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(slices.Index(actions, a.Action), slices.Index(actions, b.Action)))
	})
	for i := range rules {
		rules[i].rank = i
	}
	return rules
}

// actions lists what to do, the most drastic first.
var actions = []events.Action{
	events.ActionReplace, events.ActionReboot, events.ActionReset, events.ActionDrain, events.ActionContact, events.ActionNone,
}

// ofState marks rules about the state of a device or its collector.
var ofState = field.Condition{Test: field.OfState}

// kernel returns the rule for a kind of kernel log line, which ends at a reset.
func kernel(name string, s events.State, a events.Action, text, source string) Rule {
	return Rule{Name: name, State: s, Action: a, End: AfterReset, Text: text, Source: source}
}

// reading returns the rule for a condition of readings, which ends when they are good again.
func reading(name string, s events.State, a events.Action, c field.Condition, text, source string) Rule {
	return Rule{Name: name, State: s, Action: a, Condition: c, Quiet: backFor, Text: text, Source: source}
}

// notAMD returns a rule of NVIDIA's readings, or on memory: AMD's driver retires many pages at once, and reports waiting and
// failed ones itself.
func notAMD(r Rule) Rule {
	r.NotOf = field.VendorAMD
	return r
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
	off, named := map[string]bool{}, map[string]bool{}
	var names, wrong []string
	for i := range out {
		names = append(names, out[i].Name)
	}
	for _, c := range changes {
		what, value, _ := strings.Cut(c, "=")
		name, block, _ := strings.Cut(what, ".")
		i := slices.Index(names, name)
		switch {
		case i < 0:
			text := fmt.Sprintf("unknown rule %q", name)
			if near, ok := field.Nearest(name, names); ok {
				text += fmt.Sprintf("; did you mean %s?", near)
			}
			wrong = append(wrong, text)
		case named[what]:
			wrong = append(wrong, fmt.Sprintf("%s is set twice", what))
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
			switch {
			case block == "":
				out[i].Threshold, out[i].Limit = n, 0
			case out[i].Blocks == nil: // as in every rule of the table
				out[i].Blocks = map[string]float64{block: n}
			default:
				out[i].Blocks[block] = n
			}
		}
		named[what] = true
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("--health-rules: %s; docs/health-rules.md lists them", strings.Join(wrong, "; "))
	}
	return slices.DeleteFunc(out, func(r Rule) bool { return off[r.Name] }), nil
}

// find returns the rule with that name, or nil.
func (r Rules) find(name string) *Rule {
	for i := range r {
		if r[i].Name == name {
			return &r[i]
		}
	}
	return nil
}

// Readings returns the readings of GPUs and switches that the rules need, with health watches if they are wanted. Without an
// interval of their own they have the interval every.
func (r Rules) Readings(every time.Duration, watches bool) (out []field.Reading) {
	seen := map[field.ID]bool{field.GPUHealth: !watches}
	add := func(id field.ID) {
		d, known := field.ByID(id)
		if id == 0 || !known || seen[id] || d.Level != field.GPU && d.Level != field.Switch { // 0: no Limit
			return
		}
		seen[id] = true
		one := field.Reading{Desc: d, Interval: every}
		if d.Level == field.Switch || id == field.TotalEnergy { // what happens after a reset is not ended by it
			one.Interval = min(every, time.Second)
		}
		out = append(out, one)
	}
	if len(r) == 0 {
		return nil
	}
	for i := range r {
		for _, id := range append(slices.Clip(r[i].Readings), r[i].Limit) {
			add(id)
		}
	}
	add(field.TotalEnergy)
	if d, known := field.ByID(field.XIDEvent); known {
		out = append(out, field.Reading{Desc: d, Default: true})
	}
	return out
}
