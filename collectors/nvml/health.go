//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

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
	linkCost collector.Meter
	linked   bool // a link has been active
	now      func() time.Time
	infoROM  time.Time // when it was last read

	cols    []collector.Column
	watches []boundWatch
	row     []float64 // of inputs
	due     []bool
}

type boundWatch struct {
	columns []int // by reason; the first is for none
	rules   []boundRule
	chosen  int // of the current sample
	result  float64
}

// boundRule is a rule about readings, links or an XID for this GPU.
type boundRule struct {
	reason   int // index into columns
	evaluate func(now time.Time) float64
}

var _ part = (*healthPart)(nil)

// healthInputs returns the readings that newHealthPart needs.
func healthInputs() []field.Reading {
	var out []field.Reading
	for _, r := range healthRules(nvml.DEVICE_ARCH_UNKNOWN) {
		for _, id := range r.inputs {
			if d, ok := field.ByID(id); ok && !wanted(out, id) {
				out = append(out, field.Reading{Desc: d, Default: true})
			}
		}
	}
	return out
}

// newHealth makes the part of a GPU's health. It returns nil if the list does not have the field or the GPU has no
// inputs. While MIG is on for one of the node's GPUs, NVML reports all links as down, so they are not read
// (UpdateNvLinkLinkStateFromNvml of DCGM does the same).
func newHealth(l *library, g *gpu, mig bool, fields []field.Reading, x *xids) (part, error) {
	if !wanted(fields, field.GPUHealth) {
		return nil, nil //nolint:nilnil // no part, no error
	}
	inputs, err := newReadings(g.reader, []target{{reader: g.reader, level: field.GPU}}, healthInputs(), nil, unexplained())
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
	arch := nvml.DeviceArchitecture(nvml.DEVICE_ARCH_UNKNOWN)
	if l.has("nvmlDeviceGetArchitecture") {
		if a, code := g.handle.GetArchitecture(); code == nvml.SUCCESS {
			arch = a
		}
	}
	return newHealthPart(arch, inputs, x, links), nil
}

// newHealthPart makes the part. It owns inputs, the GPU's readings of healthInputs. inputs, x (the GPU's XIDs) and
// links (which reads its NVLinks) are nil if the GPU has none.
func newHealthPart(arch nvml.DeviceArchitecture, inputs part, x *xids, links func() linkStates) *healthPart {
	p := &healthPart{inputs: inputs, xids: x, links: links, now: time.Now, linkCost: collector.Meter{Call: "nvmlDeviceGetNvLinkState"}}
	at := map[field.ID]int{}
	if inputs != nil {
		for i, c := range inputs.columns() {
			if c.Device == 0 && len(c.Labels) == 0 {
				at[c.Field] = i
			}
		}
		p.row, p.due = make([]float64, len(inputs.columns())), make([]bool, len(inputs.columns()))
	}
	for _, r := range healthRules(arch) {
		if evaluate := p.bindRule(r, at); evaluate != nil {
			p.addRule(r.watch, r.code, evaluate)
		}
	}
	if x != nil {
		for _, r := range xidRules(arch) {
			p.addRule(r.watch, r.code, func(time.Time) float64 {
				if _, occurred := x.codes[r.xid]; occurred {
					return r.result
				}
				if r.watch == allWatch && x.set != nil {
					return healthPass
				}
				return math.NaN()
			})
		}
	}
	return p
}

// bindRule returns a rule's evaluation, nil if the GPU has none of its inputs. at maps the inputs to columns.
func (p *healthPart) bindRule(r healthRule, at map[field.ID]int) func(now time.Time) float64 {
	if r.inputs == nil {
		if p.links == nil {
			return nil
		}
		return p.evaluateLinks
	}
	states, in, grown := make([]field.ConditionState, len(r.inputs)), make([]float64, len(r.inputs)), make([]float64, len(r.inputs))
	cells, has := make([]int, len(r.inputs)), false
	for i, id := range r.inputs {
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
				worst = max(worst, r.condition.Evaluate(&states[i], in[i], now))
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
	i := slices.IndexFunc(p.watches, func(w boundWatch) bool { return p.cols[w.columns[0]].Labels[1].Value == watch })
	if i < 0 {
		i = len(p.watches)
		p.watches = append(p.watches, boundWatch{columns: []int{p.addColumn(watch, healthOK)}})
	}
	w := &p.watches[i]
	reason := slices.IndexFunc(w.columns, func(c int) bool { return p.cols[c].Labels[0].Value == code })
	if reason < 0 {
		reason = len(w.columns)
		w.columns = append(w.columns, p.addColumn(watch, code))
	}
	w.rules = append(w.rules, boundRule{reason, evaluate})
}

func (p *healthPart) addColumn(watch, code string) int {
	p.cols = append(p.cols, collector.Column{Field: field.GPUHealth, Labels: []collector.Label{
		{Name: "health_error_code", Value: code}, {Name: "health_watch", Value: watch},
	}})
	return len(p.cols) - 1
}

func (p *healthPart) columns() []collector.Column { return p.cols }

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
	for i := range p.watches {
		w := &p.watches[i]
		w.evaluate(now)
		for reason, c := range w.columns {
			if !due[c] {
				continue
			}
			row[c] = math.NaN()
			if reason == w.chosen {
				row[c] = w.result
			}
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

// evaluate chooses the worst result and its reason.
func (w *boundWatch) evaluate(now time.Time) {
	w.chosen, w.result = 0, math.NaN()
	for _, r := range w.rules {
		switch result := r.evaluate(now); {
		case math.IsNaN(result), result <= w.result:
		case result > healthPass:
			w.chosen, w.result = r.reason, result
		default:
			w.result = result
		}
	}
}

// evaluateLinks fails if a link is not active. If no link ever was, perhaps nothing is connected, so the result is
// unknown.
func (p *healthPart) evaluateLinks(time.Time) float64 {
	start := time.Now()
	s := p.links()
	p.linkCost.Record(1, start)
	p.linked = p.linked || s.active != 0
	if s.known == 0 || !p.linked {
		return math.NaN()
	}
	return known(0, s.known&^s.active != 0, healthFail)
}

func (p *healthPart) calls() []collector.CallCost {
	var out []collector.CallCost
	if p.inputs != nil {
		out = p.inputs.calls()
	}
	if p.links != nil {
		out = append(out, p.linkCost.Cost())
	}
	return out
}

func (p *healthPart) close() {
	if p.inputs != nil {
		p.inputs.close()
	}
}
