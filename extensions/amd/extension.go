// Package amd replaces AMD's device-metrics-exporter (https://github.com/ROCm/device-metrics-exporter). It supports AMD's
// metric names, its configuration file, the settings of AMD's GPU Operator and the HTTP paths of AMD's tools. Names are
// immutable and part of a field list; the Extension creates them whenever the exporter reads a list. It starts no goroutine.
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
	"warpgauge/pkg/events"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
)

// Dialect is the value of --field-names for AMD's names.
const Dialect = "amd"

// Extension replaces AMD's exporter.
type Extension struct {
	set *config.Set

	// Flags.
	path             string // of AMD's configuration file, or ""
	bind             string
	gpus, pods, jobs bool

	// Set at start.
	operator bool        // started by AMD's operator
	start    *configFile // nil: absent or invalid
	failed   error       // why the operator's file was rejected

	// Set by Read.
	given bool // the file must exist: the user named it, or it was valid once
	later bool // after the first read

	used     atomic.Pointer[configFile]   // applied with the list in service, or nil
	verdicts atomic.Pointer[events.Board] // nil before Start
}

var (
	_ exporter.Extension = (*Extension)(nil)
	_ config.Dialect     = (*Extension)(nil)
)

// Start returns the routes for AMD's tools if AMD's configuration or operator is in use.
func (e *Extension) Start(c exporter.Core) ([]exporter.Stage, []exporter.Route, error) {
	e.verdicts.Store(c.Verdicts)
	if e.operator {
		c.Log.Info("started as by AMD's GPU Operator; using the defaults of AMD's exporter",
			zap.String("address", c.Config.Web.Address), zap.String("names", c.Config.FieldNames), zap.String("config", e.path),
			zap.String("health_socket", e.flag("health-amd-socket")), zap.String("health_directory", e.flag("health-directory")), zap.String("jobs", c.Config.HPCJobDir), zap.Bool("kubernetes", c.Config.Kubernetes.Enabled))
	}
	if e.failed != nil {
		c.Log.Error("cannot use the configuration of AMD's exporter", zap.Error(e.failed))
	}
	if e.path == "" {
		return nil, nil, nil
	}
	return nil, []exporter.Route{
		{Pattern: "GET /gpumetrics", Handler: gpuMetrics(c.Board.Load, c.Config.EffectiveStaleAfter())},
		{Pattern: "GET /inbandraserrors", Handler: http.HandlerFunc(noRASErrors)},
	}, nil
}

// flag returns the value of another extension's flag, or "" without that extension.
func (e *Extension) flag(name string) string {
	all := e.set.Flags()
	if i := slices.IndexFunc(all, func(f *config.Flag) bool { return f.Name == name }); i >= 0 {
		return all[i].Value.String()
	}
	return ""
}

// Name returns the dialect's name in --field-names.
func (e *Extension) Name() string { return Dialect }

// Read reads AMD's configuration file. The operator's file may be absent until it was read once. It may be invalid at
// start; Start reports that.
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

// Apply returns the list with AMD's names, as configured by data. If data is nil, it uses the last applied file. The
// problems name the parts of the file that cannot be applied.
func (e *Extension) Apply(list field.List, inPlace bool, data []byte) (field.List, []field.Problem) {
	f := e.used.Load()
	if data != nil {
		if read, err := parseFile(data, e.path); err == nil { // Read reported the error
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

// Use applies the file's log level and logs its keys without effect.
func (e *Extension) Use(data []byte, log *zap.Logger, level *zap.AtomicLevel) {
	f, err := parseFile(data, e.path)
	if err != nil {
		return // Read reported the error
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

// snapshot returns the current verdicts.
func (e *Extension) snapshot() *events.Snapshot {
	if b := e.verdicts.Load(); b != nil {
		return b.Load()
	}
	return &events.Snapshot{}
}

// together merges lines of the form NAME: REASON that have the same reason.
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
