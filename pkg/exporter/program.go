package exporter

import (
	"io"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// Program has the parts that all subcommands share.
type Program struct {
	Streams
	Log        *backlog // in front of standard error
	Environ    []string
	Defaults   []string // counters CSVs
	Flags      *config.Set
	Unknown    []string // flags that are left out
	Build      cmdline.Build
	Vendors    VendorTable
	Extensions []Extension
}

// Lookup reads the environment.
func (a *Program) Lookup(name string) (string, bool) {
	for _, v := range slices.Backward(a.Environ) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// Config returns the validated configuration.
func (a *Program) Config() (*config.Config, error) {
	cfg, err := a.Flags.Config()
	if err != nil {
		return nil, &configError{err}
	}
	cfg.DefaultFiles = a.Defaults
	return cfg, nil
}

// configError lists the problems of flags and variables, one per line.
type configError struct{ err error }

func (e *configError) Error() string {
	text := e.err.Error()
	if !strings.Contains(text, "\n") {
		return text
	}
	return "configuration:\n  " + strings.ReplaceAll(text, "\n", "\n  ")
}

func (e *configError) Unwrap() error { return e.err }

// QuietLogger is the logger of commands whose output a person reads: errors
// only, unless a level was asked for.
func (a *Program) QuietLogger(cfg *config.Config) *zap.Logger {
	quiet := *cfg
	if cfg.Source("log-level") == config.FromDefault {
		quiet.Log.Level = zapcore.ErrorLevel
	}
	return NewLogger(&quiet, a.Log)
}

// Streams is where a command writes: what was asked for, and everything else.
type Streams struct{ Out, Err io.Writer }

// Extend adds what extensions read to a list.
func (a *Program) extend(cfg *config.Config, list field.List) field.List {
	list.Hidden = nil
	for _, e := range a.Extensions {
		if r, ok := e.(Reader); ok {
			list.Hidden = append(list.Hidden, r.Readings(cfg)...)
		}
	}
	return list
}
