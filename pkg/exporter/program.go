package exporter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/view"
)

// Program holds the parts that all commands share. NewProgram makes one.
type Program struct {
	Streams
	Log        *Backlog // in front of standard error
	Environ    []string
	Defaults   []string // counters CSVs to try if the user names none
	BuiltIn    []byte   // the counters CSV if no file exists
	Flags      *config.Set
	Unknown    []string // unknown flags, which are ignored
	Build      config.Build
	Vendors    VendorTable
	Extensions []Extension
}

// NewProgram returns a program with its tables, before any flag is parsed. environ is the environment, as os.Environ returns
// it; version is the linker's, if any.
func NewProgram(s Streams, environ []string, version string, vendors VendorTable, extensions ...Extension) *Program {
	a := &Program{Streams: s, Log: NewBacklog(s.Err), Environ: environ, Build: config.ReadBuild(version), Vendors: vendors, Extensions: extensions}
	a.Flags = config.NewSet(a.Lookup)
	for _, e := range extensions {
		e.Flags(a.Flags)
	}
	return a
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
		if text := err.Error(); strings.Contains(text, "\n") { // several problems, one per line
			err = errors.New("configuration:\n  " + strings.ReplaceAll(text, "\n", "\n  "))
		}
		return nil, err
	}
	cfg.DefaultFiles = a.Defaults
	return cfg, nil
}

// QuietLogger returns the logger of commands with output for people: errors only, unless the user set a level.
func (a *Program) QuietLogger(cfg *config.Config) *zap.Logger {
	level := cfg.LogLevel()
	if cfg.Source("log-level") == config.FromDefault {
		level = zapcore.ErrorLevel
	}
	return newLoggerAt(cfg, a.Log, level)
}

// logNotices logs the settings without effect.
func (a *Program) logNotices(log *zap.Logger) {
	for _, n := range append(a.Flags.Notices(), a.Flags.UnknownVariables(a.Environ)...) {
		log.Warn(n.Text, zap.Stringer("source", n.Source))
	}
	for _, word := range a.Unknown {
		log.Warn("ignoring an unknown flag", zap.String("flag", word))
	}
}

// Streams are a command's outputs: its result, and everything else.
type Streams struct{ Out, Err io.Writer }

// Extend adds the extensions' readings to a list.
func (a *Program) extend(cfg *config.Config, list field.List) field.List {
	list.Hidden = nil
	for _, e := range a.Extensions {
		if r, ok := e.(Reader); ok {
			list.Hidden = append(list.Hidden, r.Readings(cfg, list)...)
		}
	}
	return list
}

// NewFiles returns the reader and parser of the counters CSV at path, or of the configured one if path is empty. level
// is the log's, if a configuration file may change it.
func (a *Program) NewFiles(cfg *config.Config, path string, level *zap.AtomicLevel) *lists.Files {
	readMap := func(ctx context.Context, namespace, name string) ([]byte, error) {
		return kube.ReadConfigMap(ctx, namespace, name, "warpgauge/"+a.Build.Version)
	}
	return lists.NewFiles(cfg, cfg.Counters(path, readMap), a.BuiltIn, level)
}

// ParseList parses a list. It also returns a function that finds the list's problems on the devices of a View, which
// may be nil. A guarded list is parsed as a server's.
func (a *Program) ParseList(in *config.Content, files *lists.Files, guarded bool) (*lists.Parsed, func(*view.View) ([]field.Problem, error)) {
	for _, e := range a.Extensions {
		if g, ok := e.(Guard); ok && guarded {
			p, refused := g.ParseGuarded(in, files)
			return p, func(v *view.View) ([]field.Problem, error) {
				if v == nil {
					v = &view.View{}
				}
				return refused(v)
			}
		}
	}
	p := files.Parse(in)
	if guarded {
		p.Err = errors.New("no extension of this program guards lists")
	}
	return p, func(*view.View) ([]field.Problem, error) { return p.Problems, p.Err }
}

// Collectors returns the configured rows, with process collectors if their values are wanted or an extension shows them.
func (a *Program) Collectors(cfg *config.Config, log *zap.Logger) ([]Vendor, error) {
	processes := cfg.Kubernetes.ProcessValuesWanted() || slices.ContainsFunc(a.Extensions, func(e Extension) bool {
		v, ok := e.(ProcessViewer)
		return ok && v.ViewsProcesses()
	})
	// With an isolated simulated node the parent also makes the collector, to find mistakes in its spec at start,
	// but never opens it.
	all, err := a.Vendors(cfg, time.Time{}, log)
	if err != nil {
		return nil, err
	}
	var out []Vendor
	for _, v := range all {
		if v.Setting == config.Off || !cfg.Uses(v.Name) {
			continue
		}
		if v.Setting == config.On {
			v.Present = nil
		}
		if v.Simulated {
			log.Warn("serving simulated GPUs: their numbers are invented", zap.String("collector", v.Name))
		}
		v.Isolated = v.Isolated && (v.Simulated || cfg.Isolation == config.IsolationProcess)
		if !processes {
			v.Processes = nil
		}
		out = append(out, v)
	}
	return out, nil
}

// childFactory returns the factory of a collector for its child process. start is the exporter's start time.
func (a *Program) childFactory(cfg *config.Config, name string, start time.Time, log *zap.Logger) (collector.Factory, error) {
	all, err := a.Vendors(cfg, start, log)
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		for _, f := range []collector.Factory{v.Open, v.Processes} {
			if f != nil && f().Name() == name {
				return f, nil
			}
		}
	}
	return nil, fmt.Errorf("no collector %q", name)
}

// Serve runs the exporter until a signal or the end of ctx. Its error needs action by a person.
func (a *Program) Serve(ctx context.Context) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	// Do this before reading the CSV, so that a SIGHUP from now on is not lost; without it a SIGHUP would end the process.
	sig := subscribe()
	defer sig.release()

	level := zap.NewAtomicLevelAt(cfg.LogLevel())
	log := newLoggerAt(cfg, a.Log, level)
	log.Info("starting", zap.String("version", a.Build.Version), zap.String("revision", a.Build.Revision))
	if a.Build.Pure {
		log.Warn("built without cgo, so this program loads no vendor's library; build with a C compiler, or use a package or the image")
	}
	a.logNotices(log)
	a.frugal()
	defer time.AfterFunc(dropAfter, dropStart).Stop()
	stages, err := a.stages(ctx, cfg, log, level, sig)
	if err != nil {
		return err
	}
	return sig.guard(ctx, log, func(ctx context.Context) error {
		err := RunStages(ctx, log, stages...)
		log.Info("stopped")
		return err
	})
}

// frugal sets Go's defaults for this process and its children: it collects at half the usual growth, on one processor.
// Calls into a library leave that one, and further ones would only look for work, at each of many short ticks.
func (a *Program) frugal() {
	if _, set := a.Lookup("GOGC"); !set {
		debug.SetGCPercent(50)
	}
	if _, set := a.Lookup("GOMAXPROCS"); !set {
		runtime.GOMAXPROCS(1)
	}
}

// Stages builds the exporter and opens its port, so that configuration errors appear before anything runs.
func (a *Program) stages(ctx context.Context, cfg *config.Config, log *zap.Logger, level zap.AtomicLevel, sig *signals) ([]Stage, error) {
	files := a.NewFiles(cfg, "", &level)
	first, err := files.First(ctx, log)
	if err != nil {
		return nil, err
	}
	p, err := a.NewPipeline(cfg, first.Fields, log)
	if err != nil {
		return nil, err
	}
	p.FindOwners()
	p.ServeLists(first, files)
	p.Registry.MustRegister(a.Log.Metric())
	if err := p.Extend(); err != nil {
		return nil, err
	}
	p.AddPages()

	srv := p.NewServer()
	if err := srv.Listen(ctx); err != nil {
		return nil, err
	}
	stages := append(p.Stages(), Stage{
		Name: "lists",
		Run: func(ctx context.Context) error {
			return p.Lists.Run(ctx, lists.Signals{Reload: sig.hangup, Release: sig.letGo, Resume: sig.resume})
		},
	})
	stages = append(stages, p.Extended...)
	stages = append(stages, p.watches()...)
	return append(stages, Stage{Name: "HTTP server", Run: srv.Run, Grace: DrainTimeout + 300*time.Millisecond}, notifier(log)), nil
}
