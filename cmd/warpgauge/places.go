package main

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/arbiter"
	"warpgauge/pkg/config"
	"warpgauge/pkg/view"
)

// The two collectors that can read the same GPUs.
const (
	nameDCGM = "dcgm"
	nameNVML = "nvml"
)

// places say where the Views of each collector go, by its name.
type places map[string]func(*view.View)

// places makes them, in the order of the table. Where DCGM and NVML are both
// wanted, an arbiter has one place for the two.
func (e *engine) places(cfg *config.Config, all []enabled, merger *view.Merger, reg prometheus.Registerer, log *zap.Logger) places {
	out := places{}
	var names []string
	for _, c := range all {
		names = append(names, c.factory().Name())
	}
	if slices.Contains(names, nameDCGM) && slices.Contains(names, nameNVML) {
		e.speaker = arbiter.New(arbiter.Options{
			Primary: nameDCGM, Secondary: nameNVML,
			Publish:    merger.Part().Publish,
			Standby:    func(ctx context.Context, rest bool) error { return e.Standby(ctx, nameNVML, rest) },
			Patience:   patience(cfg),
			Confidence: 2 * patience(cfg),
			Interval:   cfg.Interval,
			Logger:     log, Registerer: reg,
		})
		out[nameDCGM], out[nameNVML] = e.speaker.Primary, e.speaker.Secondary
	}
	for _, name := range names {
		if out[name] == nil {
			out[name] = merger.Part().Publish
		}
	}
	return out
}

// patience is how long DCGM's values may stand still before NVML takes the GPUs
// over: long enough for a slow poll, and short of the time after which the page
// leaves old values out.
func patience(cfg *config.Config) time.Duration {
	return min(max(5*time.Second, 3*cfg.Interval), cfg.EffectiveStaleAfter()/2)
}

// of hands the parts of Views that several collectors share to their places. A
// collector without sources has an empty part.
func (p places) of(names []string) func(*view.View) {
	return func(v *view.View) {
		for _, name := range names {
			part := &view.View{Version: v.Version}
			for _, s := range v.Sources {
				if s.Collector == name {
					part.Sources = append(part.Sources, s)
				}
			}
			p[name](part)
		}
	}
}
