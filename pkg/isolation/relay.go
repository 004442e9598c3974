package isolation

import (
	"slices"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// relay writes a child's log entries to the parent's log. While held it keeps
// them back, for children that start now and then only to say the same again.
type relay struct {
	log       *zap.Logger
	collector string
	pid       int

	mu    sync.Mutex
	taken int // since the last tick
	held  bool
	kept  []logEntry
}

func (r *relay) take(m *logEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken++; r.taken > logsPerTick {
		return
	}
	if !r.held {
		r.write(m)
	} else if len(r.kept) < logsPerTick {
		r.kept = append(r.kept, *m)
	}
}

// tick begins another share of entries.
func (r *relay) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = 0
}

func (r *relay) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = true
}

// release writes what was kept back, but for what a child before has said: entries
// that carry that reason.
func (r *relay) release(said string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.kept {
		if m := &r.kept[i]; said == "" || !slices.ContainsFunc(m.fields, func(f logField) bool { return f.value == said }) {
			r.write(m)
		}
	}
	r.held, r.kept = false, nil
}

// write bounds the level: nothing that a child says may end the parent.
func (r *relay) write(m *logEntry) {
	level := min(max(zapcore.Level(m.level), zapcore.DebugLevel), zapcore.ErrorLevel)
	log := r.log
	if m.name != "" {
		log = log.Named(m.name)
	}
	fields := make([]zap.Field, 0, len(m.fields)+3)
	if !slices.ContainsFunc(m.fields, func(f logField) bool { return f.key == "collector" }) {
		fields = append(fields, zap.String("collector", r.collector))
	}
	for _, f := range m.fields {
		fields = append(fields, f.field())
	}
	if m.dropped > 0 {
		fields = append(fields, zap.Uint64("dropped", m.dropped))
	}
	log.Log(level, m.text, append(fields, zap.Int("pid", r.pid))...)
}
