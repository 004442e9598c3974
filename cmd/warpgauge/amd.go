package main

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
)

// relax leaves out flags in front of any command that are unknown, if AMD's GPU Operator has
// started this: its exporter warns of them and runs. A word behind one is taken for its value.
func relax(a *exporter.Program, args []string, known []cli.Flag) []string {
	if !config.Relaxed(a.Lookup) || len(args) == 0 {
		return args
	}
	out := args[:1:1]
	for i := 1; i < len(args); i++ {
		word := args[i]
		if !strings.HasPrefix(word, "-") || word == "-" || word == "--" {
			return append(out, args[i:]...)
		}
		name, _, whole := strings.Cut(strings.TrimLeft(word, "-"), "=")
		at := slices.IndexFunc(known, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
		takes := !whole && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") // the next word
		if at < 0 {
			a.Unknown = append(a.Unknown, word)
			if takes {
				i++
			}
			continue
		}
		out = append(out, word)
		if b, ok := known[at].(interface{ IsBoolFlag() bool }); takes && !(ok && b.IsBoolFlag()) {
			i++
			out = append(out, args[i])
		}
	}
	return out
}

// amdExtension stands in for AMD's exporter.
type amdExtension struct{}

// Flags implements exporter.Extension; package config has the rows.
func (amdExtension) Flags(*config.Set) {}

// Dialect names fields as AMD's exporter does.
func (amdExtension) Dialect(cfg *config.Config, level *zap.AtomicLevel) lists.Dialect {
	return &amdDialect{cfg: cfg, level: level}
}

// Start implements exporter.Extension.
func (amdExtension) Start(c exporter.Core) ([]exporter.Stage, []exporter.Route, error) {
	standsIn(c.Config, c.Log)
	if c.Config.Operator.File == "" {
		return nil, nil, nil
	}
	return nil, []exporter.Route{
		{Pattern: "GET /gpumetrics", Handler: gpuMetrics(c.Engine.Board().Load, c.Config.EffectiveStaleAfter())},
		{Pattern: "GET /inbandraserrors", Handler: http.HandlerFunc(noRASErrors)},
	}, nil
}

// standsIn says that this runs in place of AMD's exporter, and what of its configuration is
// not as there.
func standsIn(cfg *config.Config, log *zap.Logger) {
	o := &cfg.Operator
	if o.Detected {
		log.Info("runs as AMD's GPU Operator starts its exporter: defaults are those of AMD's exporter",
			zap.String("address", cfg.Web.Address), zap.String("names", cfg.FieldNames), zap.String("config", o.File),
			zap.String("jobs", cfg.HPCJobDir), zap.Bool("kubernetes", cfg.Kubernetes.Enabled))
	}
	if o.Failed != nil {
		log.Error("the configuration of AMD's exporter is not used", zap.Error(o.Failed))
	}
}

// amdDialect gives lists the names that the configuration of AMD's exporter asks for.
type amdDialect struct {
	cfg   *config.Config
	level *zap.AtomicLevel // of the log; nil: it does not change
	last  *config.AMD      // the last good configuration; nil: none
}

// Rename implements lists.Dialect for lists that have AMD's names. A content without a configuration uses the last one.
func (c *amdDialect) Rename(list field.List, in *config.Content) (field.List, []field.Problem) {
	a := cmp.Or(in.AMD, c.last)
	if list.AMD == nil || a == nil {
		return list, nil
	}
	wanted := a.Names
	wanted.InPlace = list.AMD.InPlace
	list, why := list.WithAMD(wanted)
	var out []field.Problem
	for _, text := range append(together(why), a.Problems...) {
		out = append(out, field.Problem{File: c.cfg.Operator.File, Severity: field.Warning, Message: text})
	}
	return list, out
}

// together joins lines of the form NAME: REASON that have the same reason.
func together(lines []string) (out []string) {
	const shown = 5
	names := map[string][]string{}
	var reasons []string
	for _, line := range lines {
		name, reason, ok := strings.Cut(line, ": ")
		if !ok {
			name, reason = "", line
		}
		if names[reason] == nil {
			reasons = append(reasons, reason)
		}
		names[reason] = append(names[reason], name)
	}
	for _, reason := range reasons {
		of := names[reason]
		more := ""
		if len(of) > shown {
			of, more = of[:shown], fmt.Sprintf(" and %d more", len(of)-shown)
		}
		out = append(out, strings.TrimPrefix(strings.Join(of, ", ")+more+": "+reason, ": "))
	}
	return out
}

// Accepted implements lists.Dialect: it keeps the configuration, and gives the log its level.
func (c *amdDialect) Accepted(in *config.Content, log *zap.Logger) {
	a, was := in.AMD, c.last
	if a == nil || a == was {
		return
	}
	c.last = a
	log = log.With(zap.String("file", c.cfg.Operator.File))
	if len(a.Unused) > 0 && (was == nil || !slices.Equal(a.Unused, was.Unused)) {
		log.Info("configuration of AMD's exporter: these keys have no meaning here", zap.Strings("keys", a.Unused))
	}
	if later := a.Restart(c.cfg.Operator.Start); len(later) > 0 {
		log.Warn("configuration of AMD's exporter: these keys take effect at the next start", zap.Strings("keys", later))
	}
	if c.level != nil && !c.cfg.Log.Debug && c.cfg.Source("log-level") <= config.FromFile {
		if level, err := zapcore.ParseLevel(cmp.Or(a.Level, "info")); err == nil {
			c.level.SetLevel(level)
		}
	}
}
