//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// healthWatch is one of DCGM's health systems that judge a GPU.
type healthWatch struct {
	system uint32 // DCGM_HEALTH_WATCH_…
	name   string // label health_watch
}

// healthAll is the system of incidents that belong to no other: XIDs after which
// a GPU cannot be used.
const healthAll = 0xffffffff

// healthWatches are in the order of dcgm_structs.h. Those of switches, adapters
// and IMEX domains are no GPU's.
var healthWatches = [...]healthWatch{
	{0x1, "PCIE"}, {0x2, "NVLINK"}, {0x4, "PMU"}, {0x8, "MCU"}, {0x10, "MEM"}, {0x20, "SM"},
	{0x40, "INFOROM"}, {0x80, "THERMAL"}, {0x100, "POWER"}, {0x200, "DRIVER"}, {healthAll, "ALL"},
}

const (
	healthSystems = 0x3ff            // the bits of those but ALL
	healthKeep    = 10 * time.Minute // how long the engine keeps what it judges by: DCGM's own default
)

// health supplies DCGM_EXP_GPU_HEALTH_STATUS. The reason is a label, so each watch
// of a GPU has a column for none and one for every reason that the session knows;
// of these one holds the result and the others are blank. A reason that is new
// takes a new Open, and is never forgotten.
type health struct {
	session *session
	log     *zap.Logger
	group   handleID
	places  []int // of the GPUs, in the node
	ids     []uint32
	watches []boundHealth // GPU by GPU, in the order of healthWatches
	cols    []collector.Column

	check  *aside
	answer *healthAnswer // of the call
	failed bool          // and told
}

type boundHealth struct {
	codes  []uint32 // the first is that of none
	first  int      // column of the first
	chosen int      // index into codes; −1: a code that has no column yet
	result float64
}

var _ part = (*health)(nil)

// newHealth makes the engine watch the health of a node's GPUs; nil if the list
// does not ask for it, or the engine cannot.
func newHealth(s *session, n *node, list []field.Reading, o Options) (*health, error) {
	places := n.byKind(kindGPU)
	if !asks(list, field.GPUHealth) || len(places) == 0 {
		return nil, nil
	}
	h := &health{session: s, log: o.Log, places: places}
	entities := make([]entity, len(places))
	for i, p := range places {
		entities[i] = n.entities[p]
		h.ids = append(h.ids, n.entities[p].id)
	}
	var err error
	if h.group, err = s.engine.createGroup(fmt.Sprintf("warpgauge-health-%d", nextGroup.Add(1)), entities); err != nil {
		return nil, fmt.Errorf("watch health: %w", err)
	}
	every := min(o.SlowInterval, time.Minute) // most of it looks back one minute
	if err := s.engine.watchHealth(h.group, healthSystems, every, healthKeep); err != nil {
		_ = s.engine.destroyGroup(h.group)
		if severed(err) {
			return nil, fmt.Errorf("watch health: %w", err)
		}
		o.Log.Info("host engine does not watch health, it is left out", zap.String("field", "DCGM_EXP_GPU_HEALTH_STATUS"), zap.Error(err))
		return nil, nil
	}
	for i, p := range places {
		for _, w := range healthWatches {
			h.bind(p, w, s.reasons(healthKey{h.ids[i], w.system}))
		}
	}
	h.answer = newHealthAnswer()
	h.check = newAside(s, "dcgmHealthCheck", func() error { return s.engine.health(h.group, h.answer) })
	return h, nil
}

// bind adds the columns of one watch of a GPU.
func (h *health) bind(place int, w healthWatch, reasons []uint32) {
	b := boundHealth{codes: append([]uint32{0}, reasons...), first: len(h.cols)}
	for _, code := range b.codes {
		h.cols = append(h.cols, collector.Column{Device: place, Field: field.GPUHealth, Labels: []collector.Label{
			{Name: "health_error_code", Value: errorName(code)}, {Name: "health_watch", Value: w.name},
		}})
	}
	h.watches = append(h.watches, b)
}

func (h *health) columns() []collector.Column { return h.cols }

// sample asks for a verdict if one is due. Without an answer all of it is blank:
// that a GPU cannot be judged is not that it is well.
func (h *health) sample(row []float64, due []bool) error {
	if !slices.Contains(due, true) {
		return nil
	}
	answered, err := h.check.ask()
	if err != nil && severed(err) { // errors.As allocates
		return err
	}
	h.tell(err)
	known := answered && err == nil
	changed := known && h.judge()
	for i := range h.watches {
		w := &h.watches[i]
		for j := range w.codes {
			if c := w.first + j; due[c] {
				row[c] = math.NaN()
				if known && j == w.chosen {
					row[c] = w.result
				}
			}
		}
	}
	if changed {
		return fmt.Errorf("%w: health has a reason that it did not have before", collector.ErrColumnsChanged)
	}
	return nil
}

// tell logs when checks begin to fail.
func (h *health) tell(err error) {
	if err != nil && !h.failed {
		h.log.Warn("health is unknown", zap.Error(err))
	}
	h.failed = err != nil
}

// judge chooses for each watch the worst incident, and reports whether there is
// one that has no column.
func (h *health) judge() (changed bool) {
	for i := range h.watches {
		h.watches[i].chosen, h.watches[i].result = 0, 0
	}
	for i := range h.answer.len() {
		in := h.answer.at(i)
		w := h.watch(in)
		if w == nil || float64(in.health) <= w.result {
			continue
		}
		w.result = float64(in.health)
		w.chosen = slices.Index(w.codes, in.code)
		if w.chosen < 0 {
			if h.session.learn(healthKey{in.entity.id, in.system}, in.code) {
				h.log.Warn("health has a new reason", zap.Uint32("device", in.entity.id),
					zap.String("field", errorName(in.code)), zap.String("err", h.answer.message(i)))
			}
			changed = true
		}
	}
	return changed
}

// watch finds where an incident belongs; nil if that is no watch of a GPU here.
func (h *health) watch(in incident) *boundHealth {
	if in.entity.kind != kindGPU {
		return nil
	}
	gpu := slices.Index(h.ids, in.entity.id)
	at := slices.IndexFunc(healthWatches[:], func(w healthWatch) bool { return w.system == in.system })
	if gpu < 0 || at < 0 {
		return nil
	}
	return &h.watches[gpu*len(healthWatches)+at]
}

func (h *health) calls() []collector.CallCost { return []collector.CallCost{h.check.cost()} }

func (h *health) close() {
	h.check.close(func() {
		_ = h.session.engine.destroyGroup(h.group)
		h.answer.free()
	})
}

// healthKey is one watch of one GPU.
type healthKey struct{ gpu, system uint32 }

// reasons are those that a watch had in this session.
func (s *session) reasons(k healthKey) []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.health[k])
}

// learn notes a reason, and reports whether it is new.
func (s *session) learn(k healthKey, code uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.health[k], code) {
		return false
	}
	if s.health == nil {
		s.health = map[healthKey][]uint32{}
	}
	s.health[k] = append(s.health[k], code)
	return true
}

// unsupported reports whether an answer means that the engine, or the library,
// cannot do something at all.
func unsupported(err error) bool {
	var s status
	if !errors.As(err, &s) {
		return false
	}
	switch s {
	case statusNotSupported, statusNoModule, statusNoProfiling, statusGPUUnknown, statusNoSymbol:
		return true
	}
	return false
}
