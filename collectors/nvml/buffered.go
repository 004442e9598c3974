//go:build linux && cgo

package nvml

import (
	"cmp"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// kept is a reading whose samples the driver buffers (nvmlDeviceGetSamples).
type kept struct {
	field     field.ID
	kind      nvml.SamplingType
	scale     float64 // from the sample's unit to the field's
	perSecond float64 // upper bound, from nvidia-smi -q on busy boards; not documented for clocks
}

var keptSamples = [...]kept{
	{100, nvml.PROCESSOR_CLK_SAMPLES, 1, 60},
	{101, nvml.MEMORY_CLK_SAMPLES, 1, 60},
	{155, nvml.TOTAL_POWER_SAMPLES, 1e-3, 60}, // not used for the instant power: its averaging time is not documented
	{203, nvml.GPU_UTILIZATION_SAMPLES, 1, 6},
	{204, nvml.MEMORY_UTILIZATION_SAMPLES, 1, 6},
	{206, nvml.ENC_UTILIZATION_SAMPLES, 1, 6},
	{207, nvml.DEC_UTILIZATION_SAMPLES, 1, 6},
}

const (
	// maxKept is the buffer size in samples. Drivers keep 120 samples of power and 100 of other readings.
	maxKept = 256

	// silent is how long a buffer may have no usable new sample before the reader assumes that the clock behind the
	// timestamps was set. The slowest buffer gets one sample per second.
	silent = 5 * time.Second

	// ahead is how far a timestamp may run ahead of the elapsed time.
	ahead = 2 * time.Second
)

// bufferedPart supplies the samples that the driver buffers for a GPU, for histograms.
type bufferedPart struct {
	columnList
	buffers []*driverBuffer
	read    samplesReader
	scratch []nvml.Sample
	now     func() time.Time
	cost    *collector.Meter
}

// samplesReader reads samples newer than a timestamp into a slice. It returns how many there were and their type. NVML
// answers ERROR_NOT_FOUND if there are none.
type samplesReader func(kind nvml.SamplingType, since uint64, into []nvml.Sample) (n int, typ nvml.ValueType, code nvml.Return)

// driverBuffer reads the driver's buffer of one reading.
type driverBuffer struct {
	*collector.Buffer
	kept
	first int       // column
	heard time.Time // when the last new sample arrived
	log   *zap.Logger
	state nvml.Return // NVML's last answer, for the log
}

// newBuffered makes the part for a GPU's histograms. It returns nil unless the list has a histogram of a reading that
// the GPU supports (supplied) and the driver buffers.
func newBuffered(read samplesReader, fields []field.Reading, supplied map[columnID]bool, log *zap.Logger, c *costs) (part, error) {
	p := &bufferedPart{read: read, scratch: make([]nvml.Sample, maxKept), now: time.Now, cost: c.meter("nvmlDeviceGetSamples")}
	for _, r := range fields {
		i := slices.IndexFunc(keptSamples[:], func(k kept) bool { return k.field == r.Desc.ID })
		if i < 0 || !r.Histogram || !supplied[columnID{0, r.Desc.ID}] {
			continue
		}
		b := &driverBuffer{Buffer: collector.NewBuffer(keptSamples[i].perSecond, r.Interval), kept: keptSamples[i], first: len(p.cols), heard: p.now(), log: log.With(zap.String("field", r.Desc.Name))}
		newest, code := p.newest(b)
		if err := fatal(p.cost.Call, code); err != nil {
			return nil, err
		}
		if newest == 0 {
			b.log.Info("driver buffers no samples; the histogram uses polled readings", zap.Error(code))
			continue
		}
		b.Start(newest)
		p.cols = b.AppendColumns(p.cols, 0, r.Desc.ID)
		p.buffers = append(p.buffers, b)
	}
	if len(p.buffers) == 0 {
		return nil, nil //nolint:nilnil // no part, no error
	}
	return p, nil
}

func (p *bufferedPart) sample(row []float64, due []bool) error {
	now := p.now()
	for _, b := range p.buffers {
		if !due[b.first] {
			continue
		}
		code := p.appendSamples(b, now)
		b.Put(row[b.first:][:b.Width()])
		logChange(b.log, &b.state, code, "buffered samples for a histogram")
		if err := fatal(p.cost.Call, code); err != nil {
			return err
		}
	}
	return nil
}

// appendSamples adds the samples that arrived since the last call.
func (p *bufferedPart) appendSamples(b *driverBuffer, now time.Time) nvml.Return {
	samples, typ, code := p.ask(b.kind, uint64(b.Last()))
	if code != nvml.SUCCESS && code != nvml.ERROR_NOT_FOUND {
		return code
	}
	slices.SortFunc(samples, func(a, b nvml.Sample) int { return cmp.Compare(a.TimeStamp, b.TimeStamp) })
	last := b.Last()
	limit := last + (now.Sub(b.heard) + ahead).Microseconds() // later timestamps are from before the clock was set back
	for i := range samples {
		if stamp := int64(samples[i].TimeStamp); stamp <= limit {
			b.Add(stamp, b.value(&samples[i], typ))
		}
	}
	switch {
	case b.Last() != last:
		b.heard = now
	case now.Sub(b.heard) >= silent:
		if newest, code := p.newest(b); code == nvml.SUCCESS && newest != last {
			b.Start(newest)
			b.heard = now
		}
	}
	return nvml.SUCCESS
}

// newest returns the timestamp of the last sample in the driver's buffer, 0 if the buffer is empty. After the clock was
// set back, older samples have later timestamps, so position decides, not the maximum.
func (p *bufferedPart) newest(b *driverBuffer) (int64, nvml.Return) {
	samples, _, code := p.ask(b.kind, 0)
	if len(samples) == 0 {
		return 0, code
	}
	return int64(samples[len(samples)-1].TimeStamp), code
}

// ask returns the samples after a timestamp, in the driver's order.
func (p *bufferedPart) ask(kind nvml.SamplingType, since uint64) ([]nvml.Sample, nvml.ValueType, nvml.Return) {
	defer p.cost.Record(1, p.cost.Begin())
	n, typ, code := p.read(kind, since, p.scratch)
	if code != nvml.SUCCESS {
		return nil, typ, code
	}
	return p.scratch[:min(max(n, 0), len(p.scratch))], typ, code
}

// value returns a sample in the field's unit, NaN if it is not available.
func (k *kept) value(s *nvml.Sample, typ nvml.ValueType) float64 {
	v, _ := decode(&nvml.FieldValue{ValueType: uint32(typ), Value: s.SampleValue})
	return v * k.scale
}
