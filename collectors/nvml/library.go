//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/collectors/internal/dl"
	"warpgauge/pkg/collector"
)

// library is a loaded NVML.
type library struct {
	api  nvml.Interface
	path string      // as the loader resolved it
	file os.FileInfo // the file at path when it was loaded
	dl   *dl.Library // the same library, for addresses

	// has reports whether the library defines a symbol. go-nvml binds at the first call, and the loader ends the process
	// if the symbol is missing, so every call that a supported driver may lack is checked first.
	has func(symbol string) bool

	current atomic.Pointer[versions] // of the newest initialisation; nil before the first
}

// versions holds the versions of driver and NVML: "550.54.15", "12.550.54.15".
type versions struct{ driver, nvml string }

func (l *library) versions() versions {
	if v := l.current.Load(); v != nil {
		return *v
	}
	return versions{}
}

// hasAll reports whether the library defines all of the symbols.
func (l *library) hasAll(symbols ...string) bool {
	return !slices.ContainsFunc(symbols, func(s string) bool { return !l.has(s) })
}

// firstOf returns the address of the first of the functions that the library has, nil if it has none.
func (l *library) firstOf(names []generation) unsafe.Pointer {
	for _, name := range names {
		if f, err := l.dl.Lookup(name.symbol); err == nil {
			return f
		}
	}
	return nil
}

// binding is the NVML that this process is bound to. It is package-level state, because go-nvml's state is process-wide:
//
//   - go-nvml's calls are undefined symbols of the executable. At a function's first call the loader
//     binds it to the first library that defines it, and never unloads that library again. So a
//     process has one NVML for its whole life.
//   - go-nvml picks the versions of symbols in its own package-level variables when it loads a
//     library. It is loaded once, before any other call.
//
// NVML counts its initialisations: each collector initialises it in Open and shuts it down in Close.
type binding struct {
	turn chan struct{} // held while the library is loaded or initialised, where NVML may hang
	lib  *library      // nil before the first success
}

var process = &binding{turn: make(chan struct{}, 1)}

// open loads and initialises NVML, or only initialises the library that this process is already bound to. An error
// names the attempts and the remedy, and leaves nothing open. It wraps collector.ErrNotLoaded, or collector.ErrOutdated
// if only a new process can use the driver's library. Each success needs a close.
func (b *binding) open(ctx context.Context, o Options) (*library, error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for an earlier call to load NVML: %w", ctx.Err())
	}
	if b.lib != nil {
		return b.lib, b.lib.initialize(o)
	}
	lib, err := load(o)
	if err != nil {
		return nil, err
	}
	b.lib = lib
	return lib, nil
}

// close undoes one initialisation. The last close releases NVML's descriptors, so that the driver can be reset or
// unloaded. The library's code stays mapped.
func (l *library) close() error {
	if code := shutdown(l.dl); code != nvml.SUCCESS && code != nvml.ERROR_UNINITIALIZED {
		return fmt.Errorf("shut down NVML (%s): %w", l.path, code)
	}
	return nil
}

// initialize initialises the bound library again: the driver may have been reset or reloaded since.
func (l *library) initialize(o Options) error {
	code := l.start()
	if code == nvml.SUCCESS {
		return nil
	}
	was := l.versions()
	err := o.explain(l.path, was.nvml, code)
	if other := l.other(o); other != "" {
		return fmt.Errorf("%w: this process is bound to %s of driver %s, and there is %s now: restart warpgauge, or run it with --isolation=process (%w)",
			collector.ErrOutdated, l.path, was.driver, other, err)
	}
	return err
}

// start initialises the library and reads the versions, which shows whether the initialisation works. After an error
// the library is unchanged.
func (l *library) start() nvml.Return {
	code := initialize(l.dl)
	if code != nvml.SUCCESS {
		return code
	}
	driver, code := textOf(l.dl, "nvmlSystemGetDriverVersion")
	if code != nvml.SUCCESS {
		_ = shutdown(l.dl) // the first code is the reason
		return code
	}
	own, _ := textOf(l.dl, "nvmlSystemGetNVMLVersion")
	l.current.Store(&versions{driver, own})
	return nvml.SUCCESS
}

// other returns the library that a new process would load, or "" if it is the same one.
func (l *library) other(o Options) string {
	for _, name := range o.candidates() {
		if name == soname {
			name = l.path // the file that the loader found for that name
		}
		st, err := os.Stat(name)
		if err == nil && !os.SameFile(st, l.file) && problemOf(name) == "" {
			return name
		}
	}
	return ""
}

// load tries the candidates and binds go-nvml to the first that can be initialised. It unloads the candidates before,
// to which nothing is bound yet.
func load(o Options) (*library, error) {
	var tried attempts
	for _, name := range o.candidates() {
		l, err := try(o, name)
		if err == nil {
			if err = l.bind(); err == nil {
				o.Log.Info("library loaded", zap.String("file", l.path), zap.String("driver", l.versions().driver))
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
	if problem := problemOf(name); problem != "" {
		return nil, unusable(name, problem)
	}
	d, err := dl.Open([]string{name})
	if err != nil {
		return nil, err
	}
	l := &library{path: d.Path(), dl: d, has: d.Has}
	if l.file, err = os.Stat(l.path); err == nil {
		err = l.check(o)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return l, nil
}

// check initialises the library. After an error the library is unchanged.
func (l *library) check(o Options) error {
	for _, s := range required {
		if !l.has(s) {
			return unusable(l.path, "it lacks "+s+": use the NVML of a supported driver (470 or newer)")
		}
	}
	code := l.start()
	if code == nvml.SUCCESS {
		return nil
	}
	version, _ := textOf(l.dl, "nvmlSystemGetNVMLVersion") // works without initialisation
	return &initError{o.explain(l.path, version, code), code}
}

// required lists the functions without which nothing works. NVML of driver 470 has all of them, most since driver 319.
var required = [...]string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion",
	"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3",
}

// bind makes go-nvml call l, which is initialised. go-nvml can only load a library together with an initialisation,
// which bind undoes at once. It never calls go-nvml's Shutdown, which would unload the library and rewrite its globals.
func (l *library) bind() error {
	l.api = nvml.New(nvml.WithLibraryPath(l.path))
	code := l.api.Init()
	_ = shutdown(l.dl) // NVML is initialised twice: drop one reference, or the only one if Init failed
	if code != nvml.SUCCESS {
		return errors.Join(&initError{fmt.Errorf("initialise %s again: %w", l.path, code), code}, l.dl.Close())
	}
	return nil
}
