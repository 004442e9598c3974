package hpc

import (
	"go.uber.org/zap"

	"warpgauge/pkg/mapping"
)

// teller says once for each reason that files are left out, and that they no
// longer are; it counts each file once.
type teller struct {
	health      *mapping.Health
	log         *zap.Logger
	before, now map[string]*problem // by reason
}

// problem is what a look found wrong for one reason.
type problem struct {
	files int
	name  string // of the first
	err   error
}

func newTeller(h *mapping.Health, log *zap.Logger) teller {
	return teller{health: h, log: log, before: map[string]*problem{}, now: map[string]*problem{}}
}

func (t *teller) problem(reason, name string, err error) {
	p := t.now[reason]
	if p == nil {
		p = &problem{name: name, err: err}
		t.now[reason] = p
	}
	p.files++
}

// done ends a look.
func (t *teller) done() {
	for reason, p := range t.now {
		old := t.before[reason]
		if old == nil {
			old = &problem{}
			t.log.Warn("job files are left out, in whole or in part", zap.String("reason", reason),
				zap.Int("files", p.files), zap.String("file", p.name), zap.Error(p.err))
		}
		if p.files > old.files {
			t.health.Counted(reason, p.files-old.files)
		}
	}
	for reason := range t.before {
		if t.now[reason] == nil {
			t.log.Info("job files are in use again, or gone", zap.String("reason", reason))
		}
	}
	t.before, t.now = t.now, map[string]*problem{}
}
