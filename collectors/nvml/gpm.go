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
	// gpmMinGap is the minimum time between two samples. nvml.h says that the driver refreshes GPM's counters every 100
	// ms; a little less keeps an early tick of 100 ms from being skipped.
	gpmMinGap = 95 * time.Millisecond

	// gpmAtOnce is the maximum number of metrics per call: NVML before driver 570 has room for 98.
	gpmAtOnce = 64

	cycles = 1e9

	// wholeDevice selects the whole device instead of one of its GPU instances.
	wholeDevice = -1
)

// gpmPart supplies DCGM_FI_PROF_* from NVML's GPU performance monitor (GPM). A value is the mean since the field was
// last read, so fields with different intervals are averaged over different times. At ticks shorter than gpmMinGap the
// last value stays. Before the second sample a field is blank.
//
// GPM's streaming mode (nvmlGpmSetStreamingEnabled) stays as it is: samples do not need it, and it is a setting of the
// device.
type gpmPart struct {
	api nvml.Interface
	columnList
	metrics []gpmMetric // by column
	groups  []*gpmGroup
	samples []nvml.GpmSample // of groups
	changed func() bool      // whether the GPU has another MIG layout
	why     *reasons
	now     func() time.Time

	scratch      nvml.GpmMetricsGetType
	takes, reads *collector.Meter
}

// gpmMetric is a metric with the conversion of GPM's value to the field's unit.
type gpmMetric struct {
	id     uint32
	factor float64
	whole  bool // the field is an integer
}

func (s gpmMetric) convert(v float64) float64 {
	if math.IsInf(v, 0) || v < 0 {
		return math.NaN()
	}
	if s.factor == fromPercent {
		// A share of about 10^9 cycles per second. Rounding to that precision removes noise such as 94 × 0.01 =
		// 0.9400000000000001.
		v = math.Round(v*cycles/percent) / cycles
	} else {
		v *= s.factor
	}
	if s.whole {
		v = math.Trunc(v)
	}
	return v
}

// takeSample reads a sample.
func (g *gpmGroup) takeSample(into nvml.GpmSample) nvml.Return {
	if g.instance == wholeDevice {
		return into.Get(g.handle)
	}
	return into.MigGet(g.handle, g.instance)
}

// gpmGroup is a set of columns that are due together, with their two samples, of one device: a GPU (with its links) or an
// instance.
type gpmGroup struct {
	handle       nvml.Device
	instance     int         // ID of a GPU instance on it, or wholeDevice
	mig          bool        // an instance, which may be destroyed
	state        nvml.Return // NVML's last answer, for the log
	log          *zap.Logger
	all          []gpmCandidate
	first, n     int // range of its columns
	older, newer nvml.GpmSample
	sampled      bool // older is valid
	at           time.Time
}

// gpmCandidate is a column that GPM may supply.
type gpmCandidate struct {
	target
	field.Reading
	profiling

	gpm  gpmMetric
	code nvml.Return // GPM's answer when it was tried
}

// sample takes a sample for each group with due columns and computes the metrics if the group has an older sample.
func (p *gpmPart) sample(row []float64, due []bool) error {
	now := p.now()
	for _, g := range p.groups {
		if !slices.Contains(due[g.first:g.first+g.n], true) || g.sampled && now.Sub(g.at) < gpmMinGap {
			continue
		}
		g.at = now
		start := p.takes.Begin()
		code := g.takeSample(g.newer)
		p.takes.Record(1, start)
		p.fill(g, code, row, due)
		if err := fatal("nvmlGpmSampleGet", code); err != nil {
			return err // the device's state reports it
		}
		logChange(g.log, &g.state, code, "profiling samples")
		if code != nvml.SUCCESS && g.mig && p.changed() {
			return fmt.Errorf("%w: nvmlGpmMigSampleGet: %w", collector.ErrColumnsChanged, code)
		}
	}
	return nil
}

// fill writes the due cells of a group and keeps the sample for the next mean. A failed sample cannot start a mean.
func (p *gpmPart) fill(g *gpmGroup, code nvml.Return, row []float64, due []bool) {
	end := g.first + g.n
	none := p.why.second
	if code != nvml.SUCCESS {
		none = p.why.blank(code)
	}
	collector.FillDue(row[g.first:end], due[g.first:], none)
	both := g.sampled && code == nvml.SUCCESS
	for at := g.first; both && at < end; at += gpmAtOnce {
		for i, m := range p.readMetrics(g, p.metrics[at:min(at+gpmAtOnce, end)]) {
			switch {
			case !due[at+i]:
			case nvml.Return(m.NvmlReturn) == nvml.SUCCESS:
				row[at+i] = p.metrics[at+i].convert(m.Value)
			default:
				row[at+i] = p.why.blank(nvml.Return(m.NvmlReturn))
			}
		}
	}
	g.sampled = code == nvml.SUCCESS
	g.older, g.newer = g.newer, g.older
}

// readMetrics computes metrics between the two samples of a group. The result is valid until the next call.
func (p *gpmPart) readMetrics(g *gpmGroup, metrics []gpmMetric) []nvml.GpmMetric {
	defer p.reads.Record(1, p.reads.Begin())
	p.scratch.NumMetrics, p.scratch.Sample1, p.scratch.Sample2 = uint32(len(metrics)), g.older, g.newer
	out := p.scratch.Metrics[:len(metrics)]
	for i, m := range metrics {
		out[i] = nvml.GpmMetric{MetricId: m.id, Value: math.NaN()}
	}
	code := p.api.GpmMetricsGet(&p.scratch)
	for i := range out {
		if code != nvml.SUCCESS {
			out[i].NvmlReturn = uint32(code)
		}
	}
	return out
}

// logChange logs that a call begins or ceases to fail. It warns unless the device does not support the call.
func logChange(log *zap.Logger, state *nvml.Return, code nvml.Return, what string) {
	switch {
	case code == *state:
	case code == nvml.SUCCESS:
		log.Info("reading " + what + " again")
	case never(code):
		log.Info("cannot read "+what, zap.Error(code))
	default:
		log.Warn("cannot read "+what, zap.Error(code))
	}
	*state = code
}

func (p *gpmPart) close() {
	for _, s := range p.samples {
		_ = s.Free() // nothing to do about an error
	}
	p.samples = nil
}

// newGPM makes the part for a GPU's profiling fields, nil if there are none. targets starts with the GPU; its instances
// are in the order of g.instances.
func newGPM(l *library, g *gpu, targets []target, fields []field.Reading, why *reasons, c *costs) (part, error) {
	groups := planGPM(g, targets, fields, l.has("nvmlGpmMigSampleGet"))
	if len(groups) == 0 {
		return nil, nil //nolint:nilnil // no part, no error
	}
	p := &gpmPart{
		api: l.api, why: why, now: time.Now, changed: func() bool { return l.migChanged(g) },
		takes: c.meter("nvmlGpmSampleGet"), reads: c.meter("nvmlGpmMetricsGet"),
	}
	e, err := withoutGPM(l, g), error(nil)
	if e.Reason == "" {
		if err = p.try(groups); err != nil && !ends(err) {
			e, err = collector.Explanation{Reason: collector.ReasonUnsupported, Detail: err.Error()}, nil
		}
	}
	if e.Reason != "" {
		for _, g := range groups {
			for _, c := range g.all {
				why.Note(c.device, c.Desc.ID, e)
			}
		}
	} else if err == nil {
		p.bind(groups)
	}
	if len(p.cols) == 0 {
		p.close()
		return nil, err
	}
	return p, nil
}

// withoutGPM returns why a GPU has no GPM, the zero Explanation if it has.
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

// planGPM groups the candidates by device and due time. perInstance is false if the library cannot sample GPU instances.
func planGPM(g *gpu, targets []target, fields []field.Reading, perInstance bool) []*gpmGroup {
	var out []*gpmGroup
	for _, t := range targets {
		of := groupOf(g, t)
		if of.instance != wholeDevice && !perInstance {
			continue
		}
		for _, f := range fields {
			row, ok := profilings()[f.Desc.ID]
			if !ok || !row.suits(f.Desc, t.level) {
				continue
			}
			m := row.metricOf(int(t.link))
			if m == 0 {
				continue
			}
			i := slices.IndexFunc(out, func(o *gpmGroup) bool {
				return o.handle == of.handle && o.instance == of.instance && o.all[0].Interval == f.Interval && o.all[0].Default == f.Default
			})
			if i < 0 {
				group := *of
				i, out = len(out), append(out, &group)
			}
			out[i].all = append(out[i].all, gpmCandidate{target: t, Reading: f, profiling: row, gpm: gpmMetric{m, row.scale, f.Desc.Kind == field.Int64}})
		}
	}
	return out
}

// suits reports whether a device of the level has the field.
func (p profiling) suits(d *field.Descriptor, level field.Level) bool {
	if p.perLink || level == field.Link {
		return p.perLink && level == field.Link
	}
	return d.AskedOf(level)
}

// groupOf returns an empty group on the device whose samples hold a target's values. A GPU
// instance is sampled by its ID on the GPU, as the sum of its compute instances; a link with its GPU.
func groupOf(g *gpu, t target) *gpmGroup {
	switch t.level {
	case field.Instance:
		return &gpmGroup{handle: g.handle, mig: true, instance: g.instances[t.device-1].gi}
	case field.ComputeInstance:
		return &gpmGroup{handle: g.instances[t.device-1].handle, mig: true, instance: wholeDevice}
	}
	return &gpmGroup{handle: g.handle, instance: wholeDevice}
}

// try takes two samples of each group and asks for its metrics. The values mean nothing, because no time lies between the
// samples.
func (p *gpmPart) try(groups []*gpmGroup) error {
	for _, g := range groups {
		for _, s := range []*nvml.GpmSample{&g.older, &g.newer} {
			sample, code := p.api.GpmSampleAlloc()
			if code != nvml.SUCCESS {
				return fmt.Errorf("nvmlGpmSampleAlloc: %w", code)
			}
			*s = sample
			p.samples = append(p.samples, sample)
		}
		_ = g.takeSample(g.older) // readMetrics reports the same error
		code := g.takeSample(g.newer)
		if err := fatal("nvmlGpmSampleGet", code); err != nil {
			return err
		}
		for part := range slices.Chunk(g.all, gpmAtOnce) {
			metrics := make([]gpmMetric, len(part))
			for i := range part {
				metrics[i], part[i].code = part[i].gpm, code
			}
			if code == nvml.SUCCESS {
				for i, m := range p.readMetrics(g, metrics) {
					part[i].code = nvml.Return(m.NvmlReturn)
				}
			}
		}
	}
	return nil
}

// bind makes a column of each candidate that GPM supports. INVALID_ARGUMENT for some metrics means that they are newer
// than the driver. For all metrics of a device it may only mean that no time lies between the samples.
func (p *gpmPart) bind(groups []*gpmGroup) {
	p.groups = groups
	for _, g := range groups {
		valid := slices.ContainsFunc(groups, func(o *gpmGroup) bool {
			return o.handle == g.handle && o.instance == g.instance &&
				slices.ContainsFunc(o.all, func(c gpmCandidate) bool { return c.code != nvml.ERROR_INVALID_ARGUMENT })
		})
		g.first, g.log = len(p.cols), p.why.log
		if g.instance != wholeDevice {
			g.log = g.log.With(zap.Int("instance", g.instance))
		}
		for _, c := range g.all {
			switch {
			case c.code == nvml.ERROR_NOT_SUPPORTED, c.code == nvml.ERROR_FUNCTION_NOT_FOUND:
				p.why.Note(c.device, c.Desc.ID, collector.Explanation{Reason: collector.ReasonUnsupported, Detail: "GPM does not offer it for this GPU"})
			case c.code == nvml.ERROR_INVALID_ARGUMENT && valid:
				p.why.Note(c.device, c.Desc.ID, collector.Explanation{Reason: collector.ReasonNoSymbol, Detail: fmt.Sprintf("driver %s lacks metric %d of GPM", p.why.driver, c.gpm.id)})
			default:
				p.cols = append(p.cols, collector.Column{Device: c.device, Field: c.Desc.ID})
				p.metrics = append(p.metrics, c.gpm)
			}
		}
		g.n = len(p.cols) - g.first
	}
}
