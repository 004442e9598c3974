package rocm

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"warpgauge/collectors/internal/dl"
	"warpgauge/pkg/collector"
)

// libraryAPI describes a library.
type libraryAPI struct {
	Name      string            // "ROCm SMI"
	Sonames   []string          // in order of preference
	Folders   []string          // of an installed release that may hold the library
	Functions []libraryFunction // by the caller's numbers
	Prefix    string            // of the names of statuses
	Statuses  map[int32]string  // names of statuses, without Prefix
}

// libraryFunction is a function of a library. All of them return a 32-bit status.
type libraryFunction struct {
	Name     string
	Required bool // the library is unusable without it
	takes    int  // ROCm SMI: arguments between the device and the outputs
}

// Statuses that both libraries have.
const (
	smiSuccess     = 0
	smiUnsupported = 2
)

// statusError is a status other than smiSuccess.
type statusError struct {
	API  *libraryAPI
	Code int32
}

func (s statusError) Error() string {
	if name := s.API.Statuses[s.Code]; name != "" {
		return fmt.Sprintf("%s%s [code %d]", s.API.Prefix, name, s.Code)
	}
	return fmt.Sprintf("%s status %d", s.API.Name, s.Code)
}

// maxArgs is the maximum number of arguments of a function.
const maxArgs = 7

// library is a loaded library of AMD with its functions: ROCm SMI or AMD SMI. It is never unloaded, because C++
// libraries may crash on dlclose. Loading the same file again returns the same copy.
type library struct {
	api     *libraryAPI
	path    string
	address []unsafe.Pointer // by function; nil if missing in the library
}

// Path returns the loaded file.
func (l *library) Path() string { return l.path }

// Has reports whether the library has the function.
func (l *library) Has(f int) bool { return l.address[f] != nil }

// Failed returns the error of a call's status, or nil for smiSuccess.
func (l *library) Failed(f int, status int32) error {
	if status == smiSuccess {
		return nil
	}
	return fmt.Errorf("call %s: %w", l.api.Functions[f].Name, statusError{l.api, status})
}

// caller calls functions of a library and counts the calls.
type caller struct {
	*library
	meters []collector.Meter // by function
}

// newCaller returns a caller with its own counts.
func (l *library) newCaller() *caller {
	c := &caller{l, make([]collector.Meter, len(l.address))}
	for f := range c.meters {
		c.meters[f].Call = l.api.Functions[f].Name
	}
	return c
}

// Call calls a function, or returns smiUnsupported if the library lacks it. Arguments are 32- or 64-bit numbers and
// addresses of memory from cNew. It allocates nothing and may hang.
func (c *caller) Call(f int, args ...uint64) int32 {
	if !c.Has(f) {
		return smiUnsupported
	}
	var all [maxArgs]uint64
	copy(all[:], args)
	defer c.meters[f].Record(1, c.meters[f].Begin())
	return c.call(f, &all)
}

// Must calls a function and returns an error for every status except smiSuccess.
func (c *caller) Must(f int, args ...uint64) error { return c.Failed(f, c.Call(f, args...)) }

// Calls returns the cost of the calls. It is safe for any goroutine.
func (c *caller) Calls() (out []collector.CallCost) {
	for f := range c.meters {
		if cost := c.meters[f].Cost(); cost.Count > 0 {
			out = append(out, cost)
		}
	}
	return out
}

// pciOf returns the address of a device whose bus, device and function are in the lowest 16 bits of id.
func pciOf(domain, id uint64) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, id>>8&0xff, id>>3&0x1f, id&7)
}

// openLibrary loads the library with the file name or soname named. If named is "", it loads the first existing library. It
// calls no function. Errors: collector.ErrNotBuiltIn, collector.ErrNotLoaded, wrapped.
func openLibrary(api *libraryAPI, named string) (*caller, error) {
	names := api.names(named, "/opt")
	l, err := load(names, api)
	var oe *dl.OpenError
	switch {
	case err == nil:
		return l.newCaller(), nil
	case errors.As(err, &oe) && oe.Absent():
		return nil, fmt.Errorf("%w: load %s: the loader finds no %s", collector.ErrNotLoaded, api.Name, strings.Join(names, ", "))
	case errors.Is(err, dl.ErrUnavailable):
		return nil, fmt.Errorf("%w: load %s: %w", collector.ErrNotBuiltIn, api.Name, err)
	}
	return nil, fmt.Errorf("%w: load %s: unusable library: %w", collector.ErrNotLoaded, api.Name, err)
}

// names returns the names to try: only named if it is set, or else the sonames, then the files in AMD's directories,
// which the loader often does not search. dir is the parent of the releases.
func (a *libraryAPI) names(named, dir string) []string {
	if named != "" {
		return []string{named}
	}
	names := slices.Clone(a.Sonames)
	for _, release := range releases(dir) {
		for _, folder := range a.Folders {
			for _, s := range a.Sonames {
				// Errors for every absent name would hide the important loader error.
				found, _ := filepath.Glob(filepath.Join(release, folder, s)) // the pattern is valid
				names = append(names, found...)
			}
		}
	}
	return names
}

// releases returns the directories of installed releases: the administrator's choice first, then the others, newest
// first. Releases since 7.11 are in /opt/rocm/core-*.
func releases(dir string) []string {
	var found []string
	for _, pattern := range []string{"rocm-*", "rocm/core-*"} {
		more, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is valid
		found = append(found, more...)
	}
	slices.SortFunc(found, func(a, b string) int {
		return -cmp.Or(slices.Compare(numbers(filepath.Base(a)), numbers(filepath.Base(b))), strings.Compare(a, b))
	})
	return append([]string{filepath.Join(dir, "rocm"), filepath.Join(dir, "rocm/core")}, found...)
}

// numbers returns the numbers in a name: 6, 2, 4 for "rocm-6.2.4".
func numbers(name string) []int {
	var n []int
	for _, s := range strings.FieldsFunc(name, func(r rune) bool { return r < '0' || r > '9' }) {
		if v, err := strconv.Atoi(s); err == nil {
			n = append(n, v)
		}
	}
	return n
}
