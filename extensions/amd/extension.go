// Package amd stands in for AMD's device-metrics-exporter (https://github.com/ROCm/device-metrics-exporter): AMD's
// devices under its names, its configuration file, what AMD's GPU Operator sets, and the paths that AMD's tools ask.
// Names are immutable values that a field list carries; the Extension makes them whenever the exporter reads a list.
// It starts no goroutine.
package amd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
	"warpgauge/pkg/verdict"
)

// Dialect is the name of AMD's names in --field-names.
const Dialect = "amd"

// Extension stands in for AMD's exporter in one process.
type Extension struct {
	set *config.Set

	// Flags.
	path             string // of the configuration of AMD's exporter; "": none
	bind             string
	gpus, pods, jobs bool

	// Set at start.
	operator bool        // AMD's operator has started this process
	start    *configFile // nil: there was none, or it was wrong
	failed   error       // why the operator's file is not used

	// Set by Read.
	given bool // the user named the file, or it was good once: it must be there
	later bool // the first read is over

	used     atomic.Pointer[configFile]    // with the list in service; nil: none
	verdicts atomic.Pointer[verdict.Board] // before Start nil
}

var (
	_ exporter.Extension = (*Extension)(nil)
	_ config.Dialect     = (*Extension)(nil)
)

// Start returns the paths that AMD's tools ask, if a configuration of AMD's exporter is used.
func (e *Extension) Start(c exporter.Core) ([]exporter.Stage, []exporter.Route, error) {
	e.verdicts.Store(c.Verdicts)
	if e.operator {
		c.Log.Info("runs as AMD's GPU Operator starts its exporter: defaults are those of AMD's exporter",
			zap.String("address", c.Config.Web.Address), zap.String("names", c.Config.FieldNames), zap.String("config", e.path),
			zap.String("health_socket", e.flag("health-amd-socket")), zap.String("jobs", c.Config.HPCJobDir), zap.Bool("kubernetes", c.Config.Kubernetes.Enabled))
	}
	if e.failed != nil {
		c.Log.Error("the configuration of AMD's exporter is not used", zap.Error(e.failed))
	}
	if e.path == "" {
		return nil, nil, nil
	}
	return nil, []exporter.Route{
		{Pattern: "GET /gpumetrics", Handler: gpuMetrics(c.Board.Load, c.Config.EffectiveStaleAfter())},
		{Pattern: "GET /inbandraserrors", Handler: http.HandlerFunc(noRASErrors)},
	}, nil
}

// flag returns the value of a flag of another extension; "" if that is not built in.
func (e *Extension) flag(name string) string {
	all := e.set.Flags()
	if i := slices.IndexFunc(all, func(f *config.Flag) bool { return f.Name == name }); i >= 0 {
		return all[i].Value.String()
	}
	return ""
}

// Name returns the dialect's name in --field-names.
func (e *Extension) Name() string { return Dialect }

// Read reads the configuration of AMD's exporter. The operator's file may be missing until it has been there once. It
// may be wrong at start; Start reports that.
func (e *Extension) Read(ctx context.Context, readFile func(context.Context, string) ([]byte, error)) ([]byte, error) {
	if e.path == "" {
		return nil, nil
	}
	data, err := readFile(ctx, e.path)
	missing, first := errors.Is(err, fs.ErrNotExist), !e.later
	e.later = true
	if err != nil {
		err = readError(err)
	} else if _, err = parseFile(data, e.path); err == nil {
		e.given = true
		return data, nil
	}
	if !e.given && (missing || first) && ctx.Err() == nil {
		return nil, nil
	}
	return nil, err
}

// Apply returns the list with AMD's names, as data configures them; nil: as the file that was used last. The problems
// name the parts of the file that cannot be served.
func (e *Extension) Apply(list field.List, inPlace bool, data []byte) (field.List, []field.Problem) {
	f := e.used.Load()
	if data != nil {
		if read, err := parseFile(data, e.path); err == nil { // else Read has refused it
			f = read
		}
	}
	f = cmp.Or(f, &configFile{})
	names, why := NewNames(f.names, e.snapshot)
	list.Dialect = names.Dialect(inPlace)
	var out []field.Problem
	for _, text := range append(together(why), f.problems...) {
		out = append(out, field.Problem{File: e.path, Severity: field.Warning, Message: text})
	}
	return list, out
}

// Use logs the keys of the file that have no effect, and sets the level of the log.
func (e *Extension) Use(data []byte, log *zap.Logger, level *zap.AtomicLevel) {
	f, err := parseFile(data, e.path)
	if err != nil {
		return // Read has refused it
	}
	was := e.used.Swap(f)
	log = log.With(zap.String("file", e.path))
	if len(f.unused) > 0 && (was == nil || !slices.Equal(f.unused, was.unused)) {
		log.Info("configuration of AMD's exporter: these keys have no meaning here", zap.Strings("keys", f.unused))
	}
	if later := f.restart(e.start); len(later) > 0 {
		log.Warn("configuration of AMD's exporter: these keys take effect at the next start", zap.Strings("keys", later))
	}
	if c := e.set.Settings(); level != nil && !c.Log.Debug && c.Source("log-level") <= config.FromFile {
		if l, err := zapcore.ParseLevel(cmp.Or(f.level, "info")); err == nil {
			level.SetLevel(l)
		}
	}
}

// snapshot returns the verdicts on devices.
func (e *Extension) snapshot() *verdict.Snapshot {
	if b := e.verdicts.Load(); b != nil {
		return b.Load()
	}
	return &verdict.Snapshot{}
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
		first := names[reason]
		more := ""
		if len(first) > shown {
			first, more = first[:shown], fmt.Sprintf(" and %d more", len(first)-shown)
		}
		out = append(out, strings.TrimPrefix(strings.Join(first, ", ")+more+": "+reason, ": "))
	}
	return out
}
