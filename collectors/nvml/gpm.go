//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// gpmLeast is how far apart two samples must be: the driver refreshes GPM's
// counters every 100 ms, says nvml.h. It is a little less, so that a tick of
// 100 ms which comes early does not wait for the next one.
const gpmLeast = 95 * time.Millisecond

// gpmPart supplies DCGM_FI_PROF_* from NVML's GPU performance monitor (GPM). A
// value is the mean over the time since the field was read last, so fields with
// other intervals have other means; at ticks shorter than gpmLeast it stays until
// that much time has passed. Before the second sample a field is blank.
//
// Whether GPM streams (nvmlGpmSetStreamingEnabled) is left as it is: samples do not
// need it, and the setting is the device's, not ours.
type gpmPart struct {
	batch    *gpmCalls
	cols     []collector.Column // as the metrics of batch
	scales   []gpmScale         // by column
	subjects []gpmSubject
	groups   []gpmGroup // by subject
	watch    *migWatch
	log      *zap.Logger
	now      func() time.Time

	takes, reads meterPair
}

type meterPair struct{ count, nanos atomic.Uint64 }

func (m *meterPair) add(count, nanos uint64) {
	m.count.Add(count)
	m.nanos.Add(nanos)
}

func (m *meterPair) cost(call string) collector.CallCost {
	return collector.CallCost{Call: call, Count: m.count.Load(), Time: time.Duration(m.nanos.Load())}
}

// gpmScale makes a field's value of GPM's.
type gpmScale struct {
	factor float64
	whole  bool // the field is an integer
}

func (s gpmScale) of(v float64, code nvml.Return) float64 {
	if code != nvml.SUCCESS || math.IsInf(v, 0) || v < 0 {
		return math.NaN()
	}
	v *= s.factor
	if s.whole {
		v = math.Trunc(v)
	}
	return v
}

// gpmSubject is what samples are taken of: a GPU, to which its links belong, or an
// instance.
type gpmSubject struct {
	raw      uintptr
	instance uint32 // of raw; wholeDevice otherwise
	device   int
	mig      bool // an instance, which may be gone
	groups   int
	// buffers are one more than groups, so that there is always one that no group
	// keeps as its older sample.
	buffers []uint64

	newer int         // buffer of the run in hand
	taken int         // number of its take; −1 if none
	state nvml.Return // of the newest, for the log
}

// gpmGroup is columns of one subject that are due together.
type gpmGroup struct {
	subject  int
	first, n int // columns
	older    int // buffer; −1 before the first sample
	at       time.Time
	due      bool // in the run in hand
	read     int  // number; −1 if there is nothing to compare with
}

var _ part = (*gpmPart)(nil)

func (p *gpmPart) columns() []collector.Column { return p.cols }

func (p *gpmPart) sample(row []float64, due []bool) error {
	now := p.now()
	p.plan(due, now)
	p.batch.run()
	if len(p.batch.takes) == 0 {
		return nil
	}
	takes, takeNanos, reads, readNanos := p.batch.spent()
	p.takes.add(takes, takeNanos)
	p.reads.add(reads, readNanos)
	for i := range p.groups {
		if g := &p.groups[i]; g.due {
			p.fill(g, row, due, now)
		}
	}
	return p.err()
}

// plan wants a sample of each subject with columns that are due, and reads of the
// groups that have an older one.
func (p *gpmPart) plan(due []bool, now time.Time) {
	p.batch.begin()
	for i := range p.subjects {
		p.subjects[i].taken = -1
	}
	for i := range p.groups {
		g := &p.groups[i]
		g.due = slices.Contains(due[g.first:g.first+g.n], true) && (g.older < 0 || now.Sub(g.at) >= gpmLeast)
		if !g.due {
			continue
		}
		s := &p.subjects[g.subject]
		if s.taken < 0 {
			s.newer = p.spare(g.subject)
			s.taken = p.batch.take(s.raw, s.instance, s.buffers[s.newer])
		}
		g.read = -1
		if g.older >= 0 {
			g.read = p.batch.read(s.buffers[g.older], s.buffers[s.newer], g.first, g.n, s.taken)
		}
	}
}

// spare is a buffer of a subject that none of its groups keeps.
func (p *gpmPart) spare(subject int) int {
	for b := range p.subjects[subject].buffers {
		kept := false
		for i := range p.groups {
			g := &p.groups[i]
			kept = kept || g.subject == subject && g.older == b
		}
		if !kept {
			return b
		}
	}
	return 0 // there is one more than groups
}

// fill writes the due cells of a group, and keeps the sample for the next time. One
// that failed is no start for the next mean.
func (p *gpmPart) fill(g *gpmGroup, row []float64, due []bool, now time.Time) {
	s := &p.subjects[g.subject]
	read := g.read >= 0 && p.batch.taken(s.taken) == nvml.SUCCESS
	for i := g.first; i < g.first+g.n; i++ {
		if !due[i] {
			continue
		}
		row[i] = math.NaN()
		if read {
			row[i] = p.scales[i].of(p.batch.value(i))
		}
	}
	g.older, g.at = s.newer, now
	if p.batch.taken(s.taken) != nvml.SUCCESS {
		g.older = -1
	}
}

// err says what the answers of the run mean for the GPU, and logs what changed.
func (p *gpmPart) err() error {
	var out error
	for i := range p.subjects {
		s := &p.subjects[i]
		if s.taken < 0 {
			continue
		}
		code := p.batch.taken(s.taken)
		if code != s.state {
			p.tell(s, code)
		}
		switch {
		case out != nil:
		case lost(code), isFatal(code):
			out = gpmError(code)
		case code != nvml.SUCCESS && s.mig && p.watch.changed():
			out = fmt.Errorf("%w: nvmlGpmMigSampleGet: %w", collector.ErrColumnsChanged, code)
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

func (p *gpmPart) tell(s *gpmSubject, code nvml.Return) {
	s.state = code
	if code == nvml.SUCCESS {
		p.log.Info("profiling samples are there again", zap.Int("device", s.device))
		return
	}
	p.log.Warn("no profiling samples", zap.Int("device", s.device), zap.Error(code))
}

func (p *gpmPart) calls() []collector.CallCost {
	return []collector.CallCost{p.takes.cost("nvmlGpmSampleGet"), p.reads.cost("nvmlGpmMetricsGet")}
}

func (p *gpmPart) close() { p.batch.close() }

// wants reports whether a field is read of a device of a level.
func (p profiling) wants(d *field.Descriptor, level field.Level) bool {
	switch {
	case p.perLink, level == field.Link:
		return p.perLink && level == field.Link
	case level == field.GPU:
		return true
	}
	return d.Level >= level && d.Level <= field.ComputeInstance
}
