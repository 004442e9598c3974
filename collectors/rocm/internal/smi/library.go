// Package smi calls AMD's C libraries, ROCm SMI and AMD SMI. It looks up their functions at run time. Package rocm names
// the functions of ROCm SMI. AMD calls AMD SMI for values that /sys lacks: error records (CPER) with AMD's field IDs (AFID)
// and facts about boards.
//
// The package starts no goroutine. Any goroutine may use a Library if AMD's library allows it. One goroutine makes all
// calls of an AMD and keeps its thread, because libraries before ROCm 6.1.1 bind locks to the thread that starts them.
package smi

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

// API describes a library.
type API struct {
	Name      string           // "ROCm SMI"
	Sonames   []string         // in order of preference
	Folders   []string         // of an installed release that may hold the library
	Functions []Function       // by the caller's numbers
	Prefix    string           // of the names of statuses
	Statuses  map[int32]string // names of statuses, without Prefix
}

// Function is a function of a library. All of them return a 32-bit status.
type Function struct {
	Name     string
	Required bool // the library is unusable without it
}

// Statuses that both libraries have.
const (
	Success     = 0
	Unsupported = 2
)

// StatusError is a status other than Success.
type StatusError struct {
	API  *API
	Code int32
}

func (s StatusError) Error() string {
	if name := s.API.Statuses[s.Code]; name != "" {
		return fmt.Sprintf("%s%s [code %d]", s.API.Prefix, name, s.Code)
	}
	return fmt.Sprintf("%s status %d", s.API.Name, s.Code)
}

// maxArgs is the maximum number of arguments of a function.
const maxArgs = 7

// Library is a loaded library with its functions. It is never unloaded, because C++ libraries may crash on dlclose.
// Loading the same file again returns the same copy.
type Library struct {
	api     *API
	path    string
	address []unsafe.Pointer // by function; nil if missing in the library
}

// Path returns the loaded file.
func (l *Library) Path() string { return l.path }

// Has reports whether the library has the function.
func (l *Library) Has(f int) bool { return l.address[f] != nil }

// Failed returns the error of a call's status, or nil for Success.
func (l *Library) Failed(f int, status int32) error {
	if status == Success {
		return nil
	}
	return fmt.Errorf("call %s: %w", l.api.Functions[f].Name, StatusError{l.api, status})
}

// Caller calls functions of a library and counts the calls.
type Caller struct {
	*Library
	count, nanos []atomic.Uint64 // by function
}

// NewCaller returns a Caller with its own counts.
func (l *Library) NewCaller() *Caller {
	n := len(l.address)
	return &Caller{l, make([]atomic.Uint64, n), make([]atomic.Uint64, n)}
}

// Call calls a function, or returns Unsupported if the library lacks it. Arguments are 32- or 64-bit numbers and
// addresses of memory from New. It allocates nothing and may hang.
func (c *Caller) Call(f int, args ...uint64) int32 {
	if !c.Has(f) {
		return Unsupported
	}
	var all [maxArgs]uint64
	copy(all[:], args)
	begin := time.Now()
	status := c.call(f, &all)
	c.count[f].Add(1)
	c.nanos[f].Add(uint64(time.Since(begin)))
	return status
}

// Must calls a function and returns an error for every status except Success.
func (c *Caller) Must(f int, args ...uint64) error { return c.Failed(f, c.Call(f, args...)) }

// Cost is the number of calls of a function and their total time.
type Cost struct {
	Call  string
	Count uint64
	Time  time.Duration
}

// Calls returns the cost of the calls. It is safe for any goroutine.
func (c *Caller) Calls() (out []Cost) {
	for f := range c.count {
		if n := c.count[f].Load(); n > 0 {
			out = append(out, Cost{c.api.Functions[f].Name, n, time.Duration(c.nanos[f].Load())})
		}
	}
	return out
}

// PCI returns the address of a device whose bus, device and function are in the lowest 16 bits of id.
func PCI(domain, id uint64) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, id>>8&0xff, id>>3&0x1f, id&7)
}
