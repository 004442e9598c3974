//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
)

// library is a loaded NVML. It is shared by the collectors of this process; each
// holds one reference, from acquire to release.
type library struct {
	api  nvml.Interface
	path string      // as the loader resolved it
	file os.FileInfo // of path when it was loaded
	dl   *dl.Library // the same library, for addresses

	of atomic.Pointer[versions] // the initialisation in force; nil before the first. Calls that were abandoned read it, too

	events boards   // GPUs that somebody listens to
	met    rollCall // GPUs that there were

	mu      sync.Mutex
	symbols map[string]bool // that were looked up
}

// versions are those of the driver and of NVML: "550.54.15", "12.550.54.15".
type versions struct{ driver, nvml string }

func (l *library) versions() versions {
	if v := l.of.Load(); v != nil {
		return *v
	}
	return versions{}
}

// has reports whether the library defines a symbol. go-nvml binds at the first
// call, and the loader ends the process where the symbol is missing, so this is
// asked before each call of one that a supported driver may lack.
func (l *library) has(symbol string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, known := l.symbols[symbol]
	if !known {
		found = l.dl.Has(symbol)
		l.symbols[symbol] = found
	}
	return found
}

// hasAll reports whether the library defines all of the symbols.
func (l *library) hasAll(symbols ...string) bool {
	return !slices.ContainsFunc(symbols, func(s string) bool { return !l.has(s) })
}

// registry is the NVML of this process. There is one for all collectors, and it
// is package-level state, because what it guards is process-wide:
//
//   - go-nvml's calls are undefined symbols of the executable. The loader binds
//     each, at its first call, to the first library that defines it, for ever, and
//     then never unloads that library. A process therefore has one NVML in its life.
//   - go-nvml picks the versions of symbols in its own package-level variables when
//     a library is loaded. It is loaded once, before anything else is called, so
//     that two collectors, side by side during a reload, do not race for them.
//
// A library stays initialised while a collector has acquired it, and beyond that
// while something holds it: a call that hangs must not have it shut down under
// itself, and what listens to events is handed from one collector to the next.
type registry struct {
	turn  chan struct{} // holds a token while someone is inside; NVML may hang in there
	bound *library      // the NVML of this process; nil before the first success
	live  bool          // bound is initialised

	mu    sync.Mutex // never held during a call
	refs  int        // collectors
	holds int
	free  chan struct{} // closed when holds comes to 0 or a collector joins; nil: nobody waits
}

var process = &registry{turn: make(chan struct{}, 1)}

func (r *registry) enter(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for an earlier call to load NVML: %w", ctx.Err())
	}
}

func (r *registry) leave() { <-r.turn }

// acquire loads and initialises NVML, or joins the collectors that have it
// already. An error says what was tried and what to do; nothing stays open then.
// It wraps collector.ErrNotLoaded, or collector.ErrOutdated where only another
// process can use the driver's library.
func (r *registry) acquire(ctx context.Context, o Options) (*library, error) {
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	var err error
	switch {
	case r.bound == nil:
		r.bound, err = load(o)
	case !r.live:
		err = r.revive(o)
	default:
		if code := r.bound.greet(); code != nvml.SUCCESS {
			err = fmt.Errorf("%w: NVML was initialised before the driver went (nvmlSystemGetDriverVersion: %w)", collector.ErrOutdated, code)
		}
	}
	if err != nil {
		return nil, err
	}
	r.live = true
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refs++
	r.wake()
	return r.bound, nil
}

// hold keeps a library that is in use initialised until release is called, once.
func (r *registry) hold(*library) (release func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds++
	return r.letGo
}

func (r *registry) letGo() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds--; r.holds == 0 {
		r.wake()
	}
	return nil
}

// wake lets those who wait look again. r.mu is held.
func (r *registry) wake() {
	if r.free != nil {
		close(r.free)
		r.free = nil
	}
}

// release gives back what acquire gave. The last one waits until nothing holds
// the library and closes NVML's descriptors, so that the driver can be reset or
// unloaded. The library's code stays mapped.
func (r *registry) release() error {
	r.mu.Lock()
	r.refs--
	r.mu.Unlock()
	for {
		_ = r.enter(context.Background()) // cannot fail
		wait, used := r.whatHolds()
		if wait == nil {
			defer r.leave()
			if used || !r.live {
				return nil
			}
			return r.close()
		}
		r.leave()
		<-wait
	}
}

// whatHolds reports whether a collector uses the library; if none does but
// something holds it, wait is closed when that may have changed.
func (r *registry) whatHolds() (wait <-chan struct{}, used bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refs > 0 || r.holds == 0 {
		return nil, r.refs > 0
	}
	if r.free == nil {
		r.free = make(chan struct{})
	}
	return r.free, false
}

func (r *registry) close() error {
	r.live = false
	if code := shutdown(r.bound.dl); code != nvml.SUCCESS && code != nvml.ERROR_UNINITIALIZED {
		return fmt.Errorf("shut down NVML (%s): %w", r.bound.path, code)
	}
	return nil
}

// revive initialises the library that this process is bound to once more: the
// driver may have been reset or loaded again since.
func (r *registry) revive(o Options) error {
	code := initialize(r.bound.dl)
	if code == nvml.SUCCESS {
		if code = r.bound.greet(); code == nvml.SUCCESS {
			return nil
		}
		_ = shutdown(r.bound.dl) // the code before it is the reason
	}
	was := r.bound.versions()
	err := explain(o, r.bound.path, was.nvml, code)
	if other := r.other(o); other != "" {
		return fmt.Errorf("%w: this process is bound to %s of driver %s, and there is %s now: restart warpgauge, or run it with --isolation=process (%w)",
			collector.ErrOutdated, r.bound.path, was.driver, other, err)
	}
	return err
}

// other names a library that a new process would use rather than the one that
// this process is bound to, or "".
func (r *registry) other(o Options) string {
	for _, name := range o.candidates() {
		if name == soname {
			name = r.bound.path // what the loader found by that name
		}
		st, err := os.Stat(name)
		if err == nil && !os.SameFile(st, r.bound.file) && elfProblem(name) == "" {
			return name
		}
	}
	return ""
}

// greet asks for the versions, which shows whether the initialisation holds.
func (l *library) greet() nvml.Return {
	driver, code := textOf(l.dl, "nvmlSystemGetDriverVersion")
	if code != nvml.SUCCESS {
		return code
	}
	own, _ := textOf(l.dl, "nvmlSystemGetNVMLVersion")
	l.of.Store(&versions{driver, own})
	return nvml.SUCCESS
}

// load tries the candidates and binds go-nvml to the first that can be
// initialised. What fails before that is unloaded again: nothing is bound to it.
func load(o Options) (*library, error) {
	var tried attempts
	for _, name := range o.candidates() {
		l, err := try(o, name)
		if err == nil {
			if err = bind(l); err == nil {
				o.Log.Info("library loaded", zap.String("file", l.path), zap.String("driver", l.versions().driver))
				if lacks := lackingIn(l.has); len(lacks) > 0 {
					o.Log.Debug("the driver lacks functions, and fields that need them are absent", zap.Strings("lacks", lacks))
				}
				return l, nil
			}
		}
		if tried.add(name, err) {
			break
		}
	}
	return nil, tried.err(o)
}

// try loads and initialises one candidate.
func try(o Options, name string) (*library, error) {
	if problem := elfProblem(name); problem != "" {
		return nil, &unusableError{name, problem}
	}
	d, err := dl.Open([]string{name})
	if err != nil {
		return nil, err
	}
	l := &library{path: d.Path(), dl: d, symbols: make(map[string]bool)}
	if l.file, err = os.Stat(l.path); err == nil {
		err = l.check(o)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return l, nil
}

// check initialises the library, or leaves it as it was.
func (l *library) check(o Options) error {
	for _, s := range required {
		if !l.has(s) {
			return &unusableError{l.path, "it lacks " + s + ", so it is no NVML of a driver that is supported (470 or newer)"}
		}
	}
	code := initialize(l.dl)
	if code == nvml.SUCCESS {
		if code = l.greet(); code == nvml.SUCCESS {
			return nil
		}
		_ = shutdown(l.dl) // the code before it is the reason
	}
	version, _ := textOf(l.dl, "nvmlSystemGetNVMLVersion") // needs no initialisation
	return &initError{code, explain(o, l.path, version, code)}
}

// required is what must be there for anything to work; all of it is in NVML of
// driver 470, and most of it since 319.
var required = [...]string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion",
	"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3",
}

// bind makes l, which is initialised, the one that go-nvml calls. go-nvml loads a
// library only together with an initialisation; that one is given back, and its
// Shutdown, which would unload the library and rewrite its globals, never called.
func bind(l *library) error {
	l.api = nvml.New(nvml.WithLibraryPath(l.path))
	code := l.api.Init()
	if code != nvml.SUCCESS {
		_ = shutdown(l.dl) // the code before it is the reason
		return errors.Join(&initError{code, fmt.Errorf("initialise %s again: %w", l.path, code)}, l.dl.Close())
	}
	_ = shutdown(l.dl) // the one of two
	return nil
}
