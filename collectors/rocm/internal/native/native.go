// Package native calls AMD's C libraries, ROCm SMI and AMD SMI, whose functions are only known
// at run time. It knows neither: its callers, package rocm and package amdsmi, name the functions and say
// what the arguments are. A Library may be used by any goroutine, as far as AMD's library allows it.
package native

import (
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
)

// Function is a function of a library. All return a number of 32 bits, the status.
type Function struct {
	Name     string
	Required bool // without it the library is of no use
}

// maxArgs is how many arguments a function takes at most.
const maxArgs = 7

// Path is the file that was loaded.
func (l *Library) Path() string { return l.path }

// Caller makes calls of a library, and counts them.
type Caller struct {
	lib          *Library
	count, nanos []atomic.Uint64 // by function
}

// NewCaller returns a Caller that has counted nothing.
func (l *Library) NewCaller() *Caller {
	n := len(l.functions)
	return &Caller{l, make([]atomic.Uint64, n), make([]atomic.Uint64, n)}
}

// Call makes one call of a function that the library has. Arguments are numbers of 32 or 64 bits,
// and addresses of what New has made. It allocates nothing, and may hang.
func (c *Caller) Call(f int, args ...uint64) int32 {
	var all [maxArgs]uint64
	copy(all[:], args)
	begin := time.Now()
	status := c.lib.call(f, &all)
	c.count[f].Add(1)
	c.nanos[f].Add(uint64(time.Since(begin)))
	return status
}

// Calls returns what the calls have cost. Any goroutine may call it.
func (c *Caller) Calls() (out []collector.CallCost) {
	for f := range c.count {
		if n := c.count[f].Load(); n > 0 {
			out = append(out, collector.CallCost{Call: c.lib.functions[f].Name, Count: n, Time: time.Duration(c.nanos[f].Load())})
		}
	}
	return out
}
