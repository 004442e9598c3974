//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

const (
	// gpmLeast is how far apart two samples must be: the driver refreshes GPM's
	// counters every 100 ms, says nvml.h. It is a little less, so that a tick of
	// 100 ms which comes early does not wait for the next one.
	gpmLeast = 95 * time.Millisecond

	// gpmAtOnce is how many metrics are read in one call: NVML before driver 570 has
	// room for 98.
	gpmAtOnce = 64

	cycles = 1e9

	// wholeDevice stands for all of a device rather than a GPU instance of it.
	wholeDevice = -1
)

// gpmCalls is what GPM's samples are made and read by: go-nvml, or a test.
type gpmCalls interface {
	GpmSampleAlloc() (nvml.GpmSample, nvml.Return)
	GpmMetricsGet(m *nvml.GpmMetricsGetType) nvml.Return
}

// gpmPart supplies DCGM_FI_PROF_* from NVML's GPU performance monitor (GPM). A
// value is the mean over the time since the field was read last, so fields with
// other intervals have other means; at ticks shorter than gpmLeast it stays until
// that much time has passed. Before the second sample a field is blank.
//
// Whether GPM streams (nvmlGpmSetStreamingEnabled) is left as it is: samples do not
// need it, and the setting is the device's, not ours.
type gpmPart struct {
	api     gpmCalls
	cols    []collector.Column
	metrics []uint32   // by column
	scales  []gpmScale // by column
	groups  []*gpmGroup
	watch   *migWatch
	why     *reasons
	log     *zap.Logger
	now     func() time.Time

	scratch      nvml.GpmMetricsGetType
	takes, reads meter
}

// gpmScale makes a field's value of GPM's.
type gpmScale struct {
	factor float64
	whole  bool // the field is an integer
}

func (s gpmScale) of(v float64) float64 {
	if math.IsInf(v, 0) || v < 0 {
		return math.NaN()
	}
	if s.factor == fromPercent {
		// A share of cycles, of which there are some 10^9 in a second, to as many digits:
		// without noise such as that of 94 × 0.01, 0.9400000000000001.
		v = math.Round(v*cycles/percent) / cycles
	} else {
		v *= s.factor
	}
	if s.whole {
		v = math.Trunc(v)
	}
	return v
}

// gpmSubject is what samples are taken of: a GPU, to which its links belong, or an
// instance.
type gpmSubject struct {
	handle   nvml.Device
	instance int // id of a GPU instance of it, or wholeDevice
	device   int
	mig      bool        // an instance, which may be gone
	state    nvml.Return // what NVML answered last, for the log
}

// take takes a sample.
func (s *gpmSubject) take(into nvml.GpmSample) nvml.Return {
	if s.instance == wholeDevice {
		return into.Get(s.handle)
	}
	return into.MigGet(s.handle, s.instance)
}

// gpmGroup is columns of one subject that are due together, with the two samples that
// they are made of.
type gpmGroup struct {
	*gpmSubject
	first, n     int // its columns
	older, newer nvml.GpmSample
	sampled      bool // there is an older one
	at           time.Time
}

var _ part = (*gpmPart)(nil)

func (p *gpmPart) columns() []collector.Column { return p.cols }

// sample takes a sample for each group with columns that are due, and reads what has
// an older one.
func (p *gpmPart) sample(row []float64, due []bool) error {
	now := p.now()
	for _, g := range p.groups {
		if !slices.Contains(due[g.first:g.first+g.n], true) || g.sampled && now.Sub(g.at) < gpmLeast {
			continue
		}
		g.at = now
		start := time.Now()
		code := g.take(g.newer)
		p.takes.add(start)
		p.fill(g, code, row, due)
		if lost(code) || isFatal(code) {
			return gpmError(code) // the device's state says it
		}
		if code != g.state {
			p.logState(g.gpmSubject, code)
		}
		if code != nvml.SUCCESS && g.mig && p.watch.changed() {
			return fmt.Errorf("%w: nvmlGpmMigSampleGet: %w", collector.ErrColumnsChanged, code)
		}
	}
	return nil
}

// fill writes the due cells of a group, and keeps the sample for the next time. One
// that failed is no start for the next mean.
func (p *gpmPart) fill(g *gpmGroup, code nvml.Return, row []float64, due []bool) {
	end := g.first + g.n
	none := p.why.second
	if code != nvml.SUCCESS {
		none = p.why.blank(code)
	}
	for i := g.first; i < end; i++ {
		if due[i] {
			row[i] = none
		}
	}
	both := g.sampled && code == nvml.SUCCESS
	for at := g.first; both && at < end; at += gpmAtOnce {
		for i, m := range p.read(g, p.metrics[at:min(at+gpmAtOnce, end)]) {
			switch {
			case !due[at+i]:
			case nvml.Return(m.NvmlReturn) == nvml.SUCCESS:
				row[at+i] = p.scales[at+i].of(m.Value)
			default:
				row[at+i] = p.why.blank(nvml.Return(m.NvmlReturn))
			}
		}
	}
	g.sampled = code == nvml.SUCCESS
	g.older, g.newer = g.newer, g.older
}

// read reads metrics over the time between the samples of a group. The answers are
// valid until the next call.
func (p *gpmPart) read(g *gpmGroup, metrics []uint32) []nvml.GpmMetric {
	start := time.Now()
	p.scratch.NumMetrics, p.scratch.Sample1, p.scratch.Sample2 = uint32(len(metrics)), g.older, g.newer
	out := p.scratch.Metrics[:len(metrics)]
	for i, m := range metrics {
		out[i] = nvml.GpmMetric{MetricId: m, Value: math.NaN()}
	}
	code := p.api.GpmMetricsGet(&p.scratch)
	p.reads.add(start)
	for i := range out {
		if code != nvml.SUCCESS {
			out[i].NvmlReturn = uint32(code)
		}
	}
	return out
}

// gpmError is what an answer about a sample means for the GPU.
func gpmError(code nvml.Return) error {
	if lost(code) {
		return gpuError("nvmlGpmSampleGet", code)
	}
	return fmt.Errorf("nvmlGpmSampleGet: %w", fatal(code))
}

func (p *gpmPart) logState(s *gpmSubject, code nvml.Return) {
	s.state = code
	log := p.log
	if s.instance != wholeDevice {
		log = log.With(zap.Int("instance", s.instance))
	}
	if code == nvml.SUCCESS {
		log.Info("profiling samples are available again")
		return
	}
	log.Warn("no profiling samples", zap.Error(code))
}

func (p *gpmPart) calls() []collector.CallCost {
	return []collector.CallCost{p.takes.cost(), p.reads.cost()}
}

func (p *gpmPart) close() {
	for _, g := range p.groups {
		_, _ = g.older.Free(), g.newer.Free() // they are gone either way
	}
	p.groups = nil
}

// newGPM makes the part of a GPU's profiling fields, nil if there are none. The
// first of targets is the GPU; those of instances are as in g.instances.
func newGPM(l *library, g *gpu, targets []target, fields []field.Reading, why *reasons) (part, error) {
	p := &gpmPart{
		api: l.api, why: why, log: why.log, now: time.Now, watch: newMIGWatch(l, g),
		takes: meter{call: "nvmlGpmSampleGet"}, reads: meter{call: "nvmlGpmMetricsGet"},
	}
	plans := planGPM(g, targets, fields, l.has("nvmlGpmMigSampleGet"))
	if len(plans) == 0 {
		return nil, nil //nolint:nilnil // no part, no error
	}
	leaveOut := func(e collector.Explanation) {
		for _, plan := range plans {
			for _, c := range plan.all {
				why.Note(c.device, c.Desc.ID, e)
			}
		}
	}
	if e := withoutGPM(l, g); e.Reason != "" {
		leaveOut(e)
		return nil, nil //nolint:nilnil // no part, no error
	}
	for _, plan := range plans {
		all := slices.Clone(plan.all)
		err := p.add(plan)
		switch {
		case err == nil:
			continue
		case !ends(err):
			plan.all = all
			leaveOut(collector.Explanation{Reason: collector.ReasonUnsupported, Detail: err.Error()})
			err = nil
		}
		p.close()
		return nil, err
	}
	if len(p.cols) == 0 {
		p.close()
		return nil, nil //nolint:nilnil // no part, no error
	}
	return p, nil
}

// withoutGPM says why a GPU has no GPM; the zero Explanation if it has.
func withoutGPM(l *library, g *gpu) (e collector.Explanation) {
	if !l.hasAll("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMetricsGet") {
		return collector.Explanation{Reason: collector.ReasonNoSymbol, Detail: "driver " + l.versions().driver + " has no GPM (525 and newer have)"}
	}
	support, code := g.handle.GpmQueryDeviceSupport()
	switch {
	case code != nvml.SUCCESS:
		e = collector.Explanation{Reason: collector.ReasonUnsupported, Detail: "nvmlGpmQueryDeviceSupport: " + code.Error()}
	case support.IsSupportedDevice == 0:
		e = collector.Explanation{Reason: collector.ReasonOtherCollector, Detail: "the GPU has no GPM (Hopper and newer have); with DCGM there are profiling fields of older GPUs, too"}
	}
	if code == nvml.ERROR_NO_PERMISSION {
		e.Reason = collector.ReasonPermission
	}
	return e
}

// gpmCandidate is a column that GPM could supply.
type gpmCandidate struct {
	target
	field.Reading
	profiling

	metric uint32
	code   nvml.Return // what GPM answered to it when it was tried
}

// gpmPlan is the candidates of one subject.
type gpmPlan struct {
	*gpmSubject
	all []gpmCandidate
}

// planGPM lists what GPM could supply, by what samples are taken of. Without perInstance
// the library takes none of GPU instances.
func planGPM(g *gpu, targets []target, fields []field.Reading, perInstance bool) []*gpmPlan {
	var out []*gpmPlan
	for _, t := range targets {
		s := subjectOf(g, t)
		if s == nil || s.instance != wholeDevice && !perInstance {
			continue
		}
		var all []gpmCandidate
		for _, f := range fields {
			row, ok := profilingOf(f.Desc.ID)
			if !ok || !row.suits(f.Desc, t.level) {
				continue
			}
			if m := row.metricOf(int(t.link)); m != 0 {
				all = append(all, gpmCandidate{target: t, Reading: f, profiling: row, metric: m})
			}
		}
		if len(all) == 0 {
			continue
		}
		i := slices.IndexFunc(out, func(p *gpmPlan) bool { return p.handle == s.handle && p.instance == s.instance })
		if i < 0 {
			i, out = len(out), append(out, &gpmPlan{gpmSubject: s})
		}
		out[i].all = append(out[i].all, all...)
	}
	return out
}

// suits reports whether a field is read of a device of a level.
func (p profiling) suits(d *field.Descriptor, level field.Level) bool {
	switch {
	case p.perLink, level == field.Link:
		return p.perLink && level == field.Link
	case level == field.GPU:
		return true
	}
	return d.Level >= level && d.Level <= field.ComputeInstance
}

// subjectOf is what samples for a target are taken of, nil if there are none. A GPU
// instance is asked for by its id on the GPU: that is the sum of its compute instances.
func subjectOf(g *gpu, t target) *gpmSubject {
	s := &gpmSubject{handle: g.handle, instance: wholeDevice, device: t.device}
	switch t.level {
	case field.Instance:
		s.mig, s.instance = true, g.instances[t.device-1].gi
	case field.ComputeInstance:
		s.mig, s.handle = true, g.instances[t.device-1].handle
	case field.VGPU:
		return nil
	}
	return s
}

// add adds the columns of a plan that GPM knows, in groups of those that are due together.
func (p *gpmPart) add(plan *gpmPlan) error {
	g, err := p.addGroup(plan.gpmSubject)
	if err != nil {
		return err
	}
	if err := p.try(plan, g); err != nil {
		return err
	}
	for len(plan.all) > 0 {
		if g == nil {
			if g, err = p.addGroup(plan.gpmSubject); err != nil {
				return err
			}
		}
		like := plan.all[0].Reading
		g.first = len(p.cols)
		plan.all = slices.DeleteFunc(plan.all, func(c gpmCandidate) bool {
			if c.Interval != like.Interval || c.Default != like.Default {
				return false
			}
			p.cols = append(p.cols, collector.Column{Device: c.device, Field: c.Desc.ID})
			p.scales = append(p.scales, gpmScale{c.scale, c.Desc.Kind == field.Int64})
			p.metrics = append(p.metrics, c.metric)
			return true
		})
		g.n = len(p.cols) - g.first
		g = nil
	}
	return nil
}

// addGroup makes a group without columns.
func (p *gpmPart) addGroup(s *gpmSubject) (*gpmGroup, error) {
	g := &gpmGroup{gpmSubject: s}
	var code nvml.Return
	if g.older, code = p.api.GpmSampleAlloc(); code != nvml.SUCCESS {
		return nil, fmt.Errorf("nvmlGpmSampleAlloc: %w", code)
	}
	if g.newer, code = p.api.GpmSampleAlloc(); code != nvml.SUCCESS {
		_ = g.older.Free() // it is gone either way
		return nil, fmt.Errorf("nvmlGpmSampleAlloc: %w", code)
	}
	p.groups = append(p.groups, g)
	return g, nil
}

// try takes two samples and drops the candidates that GPM does not know. Their values
// mean nothing: no time is between them.
func (p *gpmPart) try(plan *gpmPlan, g *gpmGroup) error {
	_ = g.take(g.older) // the answer to the next one says the same
	code := g.take(g.newer)
	if lost(code) || isFatal(code) {
		return gpmError(code)
	}
	var metrics []uint32
	for i := range plan.all {
		plan.all[i].code = code
		metrics = append(metrics, plan.all[i].metric)
	}
	for at := 0; code == nvml.SUCCESS && at < len(metrics); at += gpmAtOnce {
		for i, m := range p.read(g, metrics[at:min(at+gpmAtOnce, len(metrics))]) {
			plan.all[at+i].code = nvml.Return(m.NvmlReturn)
		}
	}
	plan.drop(p.why)
	return nil
}

// drop forgets candidates that GPM says it has not. INVALID_ARGUMENT means that of a
// metric which is newer than the driver, but of all of them it may as well be said
// of samples without time between.
func (p *gpmPlan) drop(why *reasons) {
	invalid := func(c gpmCandidate) bool { return c.code == nvml.ERROR_INVALID_ARGUMENT }
	all := !slices.ContainsFunc(p.all, func(c gpmCandidate) bool { return !invalid(c) })
	p.all = slices.DeleteFunc(p.all, func(c gpmCandidate) bool {
		e := collector.Explanation{Reason: collector.ReasonUnsupported, Detail: "GPM does not offer it for this GPU"}
		switch {
		case c.code == nvml.ERROR_NOT_SUPPORTED, c.code == nvml.ERROR_FUNCTION_NOT_FOUND:
		case invalid(c) && !all:
			e = collector.Explanation{Reason: collector.ReasonNoSymbol, Detail: fmt.Sprintf("driver %s lacks metric %d of GPM", why.driver, c.metric)}
		default:
			return false
		}
		why.Note(c.device, c.Desc.ID, e)
		return true
	})
}
