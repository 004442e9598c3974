//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// infoROMEvery is how often the InfoROM checksums are read, because the driver reads a flash memory for them. DCGM uses
// the same interval.
const infoROMEvery = time.Hour

// healthPart supplies DCGM_EXP_GPU_HEALTH_STATUS of a GPU from readings and XIDs.
//
// The reason is a label, so each watch has a column per possible reason and one for "no reason". Exactly one of them
// holds the result; the others are blank. So health can change from row to row without a new Open. A watch without
// inputs has no column; a watch whose inputs have no value now is blank.
type healthPart struct {
	inputs   part              // readings of the GPU; nil if none
	xids     *xids             // nil if none
	links    func() linkStates // reads its NVLinks; nil if none
	linkCost *collector.Meter
	linked   bool // a link has been active
	now      func() time.Time
	infoROM  time.Time // when it was last read

	columnList
	watches []boundWatch
	rules   []boundRule
	row     []float64 // of inputs
	due     []bool
}

// boundWatch is a watch with its result in the current sample.
type boundWatch struct {
	name   string
	passed int // column for "no reason"
	chosen int // column of the result
	result float64
}

// boundRule is a rule about readings, links or XIDs for this GPU.
type boundRule struct {
	watch, column int // of the rule's reason
	evaluate      func(now time.Time) float64
}

// healthInputs returns the readings that newHealthPart needs.
func healthInputs() []field.Reading {
	var out []field.Reading
	for _, r := range healthRules() {
		for _, id := range r.Readings {
			if d, ok := field.ByID(id); ok && !field.Asks(out, id) {
				out = append(out, field.Reading{Desc: d, Default: true})
			}
		}
	}
	return out
}

// newHealth makes the part of a GPU's health. It returns nil if the list does not have the field or the GPU has no
// inputs. While MIG is on for one of the node's GPUs, NVML reports all links as down, so they are not read
// (UpdateNvLinkLinkStateFromNvml of DCGM does the same).
func newHealth(l *library, g *gpu, mig bool, fields []field.Reading, x *xids, c *costs) (part, error) {
	if !field.Asks(fields, field.GPUHealth) {
		return nil, nil //nolint:nilnil // no part, no error
	}
	inputs, err := newReadings(g.reader, []target{{reader: g.reader, level: field.GPU}}, healthInputs(), nil, unexplained(), c)
	if err != nil {
		return nil, err
	}
	var links func() linkStates
	if !mig && readLinkStates(l, g.handle).known != 0 {
		links = func() linkStates { return readLinkStates(l, g.handle) }
	}
	if inputs == nil && x == nil && links == nil {
		return nil, nil //nolint:nilnil // no part, no error
	}
	return newHealthPart(inputs, x, links, c.meter("nvmlDeviceGetNvLinkState")), nil
}

// newHealthPart makes the part. inputs are the GPU's readings of healthInputs. inputs, x (the GPU's XIDs) and
// links (which reads its NVLinks) are nil if the GPU has none.
func newHealthPart(inputs part, x *xids, links func() linkStates, linkCost *collector.Meter) *healthPart {
	p := &healthPart{inputs: inputs, xids: x, links: links, now: time.Now, linkCost: linkCost}
	at := map[field.ID]int{}
	if inputs != nil {
		for i, c := range inputs.columns() {
			if c.Device == 0 && len(c.Labels) == 0 {
				at[c.Field] = i
			}
		}
		p.row, p.due = make([]float64, len(inputs.columns())), make([]bool, len(inputs.columns()))
	}
	for _, r := range healthRules() {
		if evaluate := p.bindRule(r, at); evaluate != nil {
			p.addRule(r.watch, r.code, evaluate)
		}
	}
	for _, r := range xidRules {
		if x == nil {
			break
		}
		p.addRule(r.watch, r.code, func(time.Time) float64 {
			if slices.ContainsFunc(r.xids, func(xid uint64) bool { return x.codes[xid] }) {
				return r.result
			}
			if r.watch == allWatch && x.set != nil {
				return healthPass
			}
			return math.NaN()
		})
	}
	return p
}

// bindRule returns a rule's evaluation, nil if the GPU has none of its inputs. at maps the inputs to columns.
func (p *healthPart) bindRule(r healthRule, at map[field.ID]int) func(now time.Time) float64 {
	if r.Readings == nil {
		if p.links == nil {
			return nil
		}
		return p.evaluateLinks
	}
	n := len(r.Readings)
	states, in, grown := make([]field.ConditionState, n), make([]float64, n), make([]float64, n)
	cells, has := make([]int, n), false
	for i, id := range r.Readings {
		cells[i] = -1
		if c, ok := at[id]; ok {
			cells[i], has = c, true
		}
	}
	if !has {
		return nil
	}
	return func(now time.Time) float64 {
		worst := field.Silent
		for i, c := range cells {
			in[i] = math.NaN()
			if c >= 0 {
				in[i] = p.row[c]
			}
			if r.judge != nil {
				grown[i] = states[i].Growth.Add(time.Minute, now, in[i])
			} else {
				worst = max(worst, r.Evaluate(&states[i], in[i], now))
			}
		}
		if r.judge != nil {
			return r.judge(in, grown)
		}
		return [...]float64{field.Silent: math.NaN(), field.Well: healthPass, field.Between: healthPass, field.Unwell: r.result}[worst]
	}
}

// addRule adds a rule to its watch, which it creates if needed, with a column for the rule's reason.
func (p *healthPart) addRule(watch, code string, evaluate func(now time.Time) float64) {
	i := slices.IndexFunc(p.watches, func(w boundWatch) bool { return w.name == watch })
	if i < 0 {
		i = len(p.watches)
		p.watches = append(p.watches, boundWatch{name: watch, passed: p.addColumn(watch, healthOK)})
	}
	reason := slices.IndexFunc(p.cols, func(c collector.Column) bool { return c.Labels[0].Value == code && c.Labels[1].Value == watch })
	if reason < 0 {
		reason = p.addColumn(watch, code)
	}
	p.rules = append(p.rules, boundRule{i, reason, evaluate})
}

func (p *healthPart) addColumn(watch, code string) int {
	p.cols = append(p.cols, collector.Column{Field: field.GPUHealth, Labels: []collector.Label{
		{Name: "health_error_code", Value: code}, {Name: "health_watch", Value: watch},
	}})
	return len(p.cols) - 1
}

func (p *healthPart) sample(row []float64, due []bool) error {
	if !slices.Contains(due, true) {
		return nil
	}
	now := p.now()
	if p.xids != nil {
		p.xids.poll()
	}
	if p.inputs != nil {
		p.markInputs(now)
		if err := p.inputs.sample(p.row, p.due); err != nil {
			return err
		}
	}
	p.evaluate(now)
	collector.FillDue(row, due, math.NaN())
	for _, w := range p.watches {
		if due[w.chosen] {
			row[w.chosen] = w.result
		}
	}
	return nil
}

// markInputs marks the inputs as due, the InfoROM only once in infoROMEvery.
func (p *healthPart) markInputs(now time.Time) {
	infoROM := p.infoROM.IsZero() || now.Sub(p.infoROM) >= infoROMEvery
	if infoROM {
		p.infoROM = now
	}
	for i, c := range p.inputs.columns() {
		p.due[i] = c.Field != field.InfoROMValid || infoROM
	}
}

// evaluate chooses the worst result of each watch and its reason.
func (p *healthPart) evaluate(now time.Time) {
	for i := range p.watches {
		p.watches[i].chosen, p.watches[i].result = p.watches[i].passed, math.NaN()
	}
	for _, r := range p.rules {
		w := &p.watches[r.watch]
		switch result := r.evaluate(now); {
		case math.IsNaN(result), result <= w.result:
		case result > healthPass:
			w.chosen, w.result = r.column, result
		default:
			w.result = result
		}
	}
}

// evaluateLinks fails if a link is not active. If no link ever was, perhaps nothing is connected, so the result is unknown.
func (p *healthPart) evaluateLinks(time.Time) float64 {
	start := p.linkCost.Begin()
	s := p.links()
	p.linkCost.Record(1, start)
	p.linked = p.linked || s.active != 0
	if s.known == 0 || !p.linked {
		return math.NaN()
	}
	return known(0, s.known&^s.active != 0, healthFail)
}

// Results of a watch, as DCGM numbers them.
const (
	healthPass = 0
	healthWarn = 10
	healthFail = 20
)

// healthOK is the label health_error_code of a watch that passes.
const healthOK = "DCGM_FR_OK"

// healthRule is one reason why a watch does not pass: a condition on each of its readings, or what judge decides. A rule
// without readings checks the GPU's links.
type healthRule struct {
	watch, code string  // labels health_watch and health_error_code
	result      float64 // of the watch if the condition holds
	field.Condition
	judge judge
}

// judge returns a result, or NaN if the readings do not decide. grown holds the counters' increases in the last minute.
type judge func(in, grown []float64) float64

// maxRetiredPages is DCGM's limit (common/DcgmGPUHardwareLimits.h).
const maxRetiredPages = 63

// healthRules returns the rules of the watches that NVML's readings can decide. They follow DCGM 4.6's health module
// (modules/health/DcgmHealthWatch.cpp of https://github.com/NVIDIA/DCGM), with the codes that dcgm-exporter prints;
// testdata/dcgm-health.csv lists the lines there. If two rules apply, the worse result counts, or the first of two equal
// ones. PMU, MCU and SM are missing because DCGM has no rule for them.
func healthRules() []healthRule {
	judged := func(watch, code string, of judge, inputs ...field.ID) healthRule {
		return healthRule{watch: watch, code: code, Condition: field.Condition{Readings: inputs}, judge: of}
	}
	shown := func(watch, code string, result float64, c field.Condition) healthRule {
		return healthRule{watch: watch, code: code, result: result, Condition: c}
	}
	return []healthRule{
		judged("PCIE", "DCGM_FR_PCI_REPLAY_RATE", judgeReplays, field.PCIeReplays, field.PCIeGeneration, field.PCIeWidth),

		{watch: "NVLINK", code: "DCGM_FR_NVLINK_DOWN"},
		shown("NVLINK", linkCritical, healthFail, field.LinkReplay),
		shown("NVLINK", linkCritical, healthFail, field.LinkErrorNow),
		shown("NVLINK", linkCritical, healthFail, field.Link5Error),
		shown("NVLINK", linkCritical, healthFail, field.Link5RecoveryFailed),
		shown("NVLINK", "DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD", healthFail, field.LinkCRCErrors),
		shown("NVLINK", "DCGM_FR_NVLINK_EFFECTIVE_BER_THRESHOLD", healthFail, field.LinkEffectiveBER),
		shown("NVLINK", "DCGM_FR_NVLINK_SYMBOL_BER_THRESHOLD", healthFail, field.LinkSymbolBER),
		judged("NVLINK", "DCGM_FR_FIELD_VIOLATION", judgeFabric, field.FabricHealthMask),
		judged("NVLINK", "DCGM_FR_FABRIC_PROBE_STATE", judgeFabricManager, field.FabricManagerStatus),
		shown("NVLINK", "DCGM_FR_NVLINK_ERROR_THRESHOLD", healthWarn, field.LinkCRCError),
		shown("NVLINK", linkCritical, healthWarn, field.Link5Recovered),

		shown("MEM", "DCGM_FR_VOLATILE_DBE_DETECTED", healthFail, field.AnyUncorrectedError),
		shown("MEM", rowRemapFailure, healthFail, field.RowRemapFailed),
		shown("MEM", "DCGM_FR_FAULTY_MEMORY", healthFail, field.UnrepairableMemory),
		judged("MEM", "DCGM_FR_RETIRED_PAGES_LIMIT", judgeRetired, field.RetiredPagesCorrected, field.RetiredPagesUncorrected),
		// DCGM also demands more than one page within a week, but it keeps samples for ten minutes only
		// (dcgmHealthSet) and uses 0 for the missing one.
		shown("MEM", "DCGM_FR_RETIRED_PAGES_DBE_LIMIT", healthFail, field.ManyUncorrectablePages),
		shown("MEM", pendingRetirements, healthWarn, field.PageRetirementPending),
		shown("MEM", "DCGM_FR_UNCORRECTABLE_ROW_REMAP_LIMIT", healthWarn, field.ManyRemappedRows),

		shown("INFOROM", "DCGM_FR_CORRUPT_INFOROM", healthWarn, field.InfoROMCorrupt),

		shown("THERMAL", slowedByHeat, healthWarn, field.SlowedByHeat),
		shown("POWER", slowedByPower, healthWarn, field.SlowedByPower),
		judged("POWER", "DCGM_FR_POWER_UNREADABLE", unreadable(), field.PowerUsage),

		shown("DRIVER", "DCGM_FR_GPU_RECOVERY_RESET", healthFail, field.RecoveryReset),
		shown("DRIVER", "DCGM_FR_GPU_RECOVERY_REBOOT", healthFail, field.RecoveryReboot),
		shown("DRIVER", "DCGM_FR_GPU_RECOVERY_DRAIN_RESET", healthFail, field.RecoveryDrainReset),
		shown("DRIVER", "DCGM_FR_GPU_RECOVERY_DRAIN_P2P", healthWarn, field.RecoveryDrainP2P),
	}
}

// Codes that readings and XIDs share. DCGM 4 renamed the codes of slowed clocks to CLOCKS_EVENT_…; dcgm-exporter's
// labels keep the old names.
const (
	linkCritical       = "DCGM_FR_NVLINK_ERROR_CRITICAL"
	rowRemapFailure    = "DCGM_FR_ROW_REMAP_FAILURE"
	pendingRetirements = "DCGM_FR_PENDING_PAGE_RETIREMENTS"
	slowedByHeat       = "DCGM_FR_CLOCK_THROTTLE_THERMAL"
	slowedByPower      = "DCGM_FR_CLOCK_THROTTLE_POWER"
	otherXID           = "DCGM_FR_XID_ERROR"
)

// allWatch is the watch of XIDs that make a GPU unusable. It passes while none has occurred. In other watches an XID
// can only make the result worse.
const allWatch = "ALL"

// xidRule names the XIDs that make a watch warn or fail.
type xidRule struct {
	watch, code string
	result      float64
	xids        []uint64
}

// xidRules repeats DCGM's BuildXidMappings without XID 93 of Volta, because the checksums judge Volta's InfoROM. An XID
// counts until the collector closes, as it must for a reset of the GPU; in DCGM it counts until the host engine ends.
var xidRules = [...]xidRule{
	{allWatch, "DCGM_FR_FALLEN_OFF_BUS", healthFail, []uint64{79}},
	{allWatch, "DCGM_FR_UNCONTAINED_ERROR", healthFail, []uint64{95}},
	{allWatch, otherXID, healthFail, []uint64{48, 74, 119, 120, 140}},
	{allWatch, "DCGM_FR_CONTAINED_ERROR", healthWarn, []uint64{94}},
	{"PCIE", otherXID, healthWarn, []uint64{38, 39, 42}},
	{"NVLINK", otherXID, healthWarn, []uint64{67, 73, 121, 137}},
	{"MEM", rowRemapFailure, healthFail, []uint64{64}},
	{"MEM", pendingRetirements, healthWarn, []uint64{63}},
	{"MEM", otherXID, healthWarn, []uint64{31, 32, 43}},
	{"THERMAL", slowedByHeat, healthWarn, []uint64{60}},
	{"THERMAL", otherXID, healthWarn, []uint64{61, 62}},
	{"POWER", slowedByPower, healthWarn, []uint64{57}},
	{"POWER", otherXID, healthWarn, []uint64{54, 56, 58, 78}},
}

// known returns NaN if v is blank, result if is holds, and pass otherwise.
func known(v float64, is bool, result float64) float64 {
	switch {
	case math.IsNaN(v):
		return v
	case is:
		return result
	}
	return healthPass
}

// unreadable warns if a reading that had a value is blank now.
func unreadable() judge {
	had := false
	return func(in, _ []float64) float64 {
		missing := math.IsNaN(in[0])
		had = had || !missing
		switch {
		case !missing:
			return healthPass
		case had:
			return healthWarn
		}
		return math.NaN()
	}
}

// judgeReplays allows the bit error rate of PCIe's specification, 1e-12. Each bit error costs a replay.
func judgeReplays(in, grown []float64) float64 {
	perLane := [...]float64{2.5, 5, 8, 16, 32, 64} // Gbit/s by generation
	gen, lanes := in[1], in[2]
	if grown[0] == 0 {
		return healthPass
	}
	if math.IsNaN(grown[0]) || !(gen >= 1) || !(lanes >= 1) {
		return math.NaN()
	}
	g := perLane[int(min(gen, float64(len(perLane))))-1]
	return known(grown[0], grown[0] > math.Ceil(g*1e9*1e-12*60*lanes), healthWarn)
}

// judgeRetired adds up pages of both kinds. One kind may be blank.
func judgeRetired(in, _ []float64) float64 {
	sum := in[0] + in[1]
	for _, v := range in {
		if math.IsNaN(sum) {
			sum = v
		}
	}
	return known(sum, sum >= maxRetiredPages, healthFail)
}

// judgeFabric decodes the mask NVML_GPU_FABRIC_HEALTH_MASK_* of nvml.h: two bits each for bandwidth, route recovery,
// route and access time-outs, where 1 means trouble, then four bits where 1 means a correct configuration. 0 means
// that the GPU does not know; a mask of zeros only gives no result.
func judgeFabric(in, _ []float64) float64 {
	if !(in[0] >= 0) || uint64(in[0])&0xfff == 0 {
		return math.NaN()
	}
	mask := uint64(in[0])
	bad := mask>>8&0xf > 1
	for shift := 0; shift < 8; shift += 2 {
		bad = bad || mask>>shift&3 == 1
	}
	return known(in[0], bad, healthFail)
}

// judgeFabricManager decodes DCGM's state: 0 means that the GPU is in no fabric, 2 starting, 3 started. All other
// states are failures: not started, failed, unrecognised.
func judgeFabricManager(in, _ []float64) float64 {
	if state := in[0]; state >= 0 && state <= 3 {
		return [...]float64{math.NaN(), healthFail, healthWarn, healthPass}[int(state)]
	}
	return known(in[0], true, healthFail)
}
