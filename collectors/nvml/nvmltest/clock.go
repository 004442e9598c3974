package nvmltest

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// clock is the simulated time. All values depend on it.
type clock struct {
	epoch  int64 // CLOCK_MONOTONIC in ns at simulated time 0
	frozen bool
	at     float64 // seconds, while frozen
}

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux has it
	}
	return ts.Nano()
}

func (c *clock) start() { c.epoch = monotonic() }

func (c *clock) now() float64 {
	if c.frozen {
		return c.at
	}
	return float64(monotonic()-c.epoch) / 1e9
}

func (c *clock) line() string {
	if c.frozen {
		return fmt.Sprintf("time frozen %.9f", c.at)
	}
	return fmt.Sprintf("time epoch %d", c.epoch)
}

// Freeze stops the simulated time at that many seconds: no value changes.
func (n *Node) Freeze(seconds float64) {
	n.change(func() error { n.clock.frozen, n.clock.at = true, seconds; return nil })
}

// Advance moves a frozen time forward.
func (n *Node) Advance(d time.Duration) {
	n.change(func() error { n.clock.at = n.clock.now() + d.Seconds(); return nil })
}

// Now returns the simulated time in seconds.
func (n *Node) Now() float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.clock.now()
}

// Load is a GPU's load from 0 to 1 over time. Utilisations, power, energy, clocks,
// temperatures, GPM metrics and traffic counters follow it.
type Load struct{ text string }

// Steady returns a constant load.
func Steady(load float64) Load { return Load{fmt.Sprintf("%g", load)} }

// SetLoad changes a GPU's load (all GPUs: Host) from now on. Counters keep their values.
func (n *Node) SetLoad(gpu int, l Load) {
	n.change(func() error {
		n.loads = append(n.loads, fmt.Sprintf("load %s %.9f %s", selector(gpu), n.clock.now(), l.text))
		return nil
	})
}
