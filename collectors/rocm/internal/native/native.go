// Package native calls AMD's C libraries, ROCm SMI and AMD SMI, whose functions are only known at run time. Packages
// rocm and amdsmi name the functions and define the arguments. native starts no goroutine; a Library may be used by any
// goroutine, as far as AMD's library allows it.
package native

import (
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
)

// Function is a function of a library. All of them return a 32-bit status.
type Function struct {
	Name     string
	Required bool // the library is unusable without it
}

// maxArgs is the maximum number of arguments of a function.
const maxArgs = 7

// Path returns the loaded file.
func (l *Library) Path() string { return l.path }

// Caller calls functions of a library and counts the calls.
type Caller struct {
	lib          *Library
	count, nanos []atomic.Uint64 // by function
}

// NewCaller returns a Caller with its own counts.
func (l *Library) NewCaller() *Caller {
	n := len(l.functions)
	return &Caller{l, make([]atomic.Uint64, n), make([]atomic.Uint64, n)}
}

// Call calls a function that the library has. Arguments are 32- or 64-bit numbers and addresses of memory from New. It
// allocates nothing and may hang.
func (c *Caller) Call(f int, args ...uint64) int32 {
	var all [maxArgs]uint64
	copy(all[:], args)
	begin := time.Now()
	status := c.lib.call(f, &all)
	c.count[f].Add(1)
	c.nanos[f].Add(uint64(time.Since(begin)))
	return status
}

// Calls returns the cost of the calls. It is safe for any goroutine.
func (c *Caller) Calls() (out []collector.CallCost) {
	for f := range c.count {
		if n := c.count[f].Load(); n > 0 {
			out = append(out, collector.CallCost{Call: c.lib.functions[f].Name, Count: n, Time: time.Duration(c.nanos[f].Load())})
		}
	}
	return out
}
