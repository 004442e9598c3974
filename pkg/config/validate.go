package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Validate returns everything that a person must put right, one error per flag,
// joined.
func (c *Config) Validate() error {
	return errors.Join(
		atLeast("collect-interval", c.Interval, minInterval),
		atLeast("slow-interval", c.SlowInterval, minInterval),
		atLeast("sample-deadline", c.SampleDeadline, minInterval),
		atLeast("rescan-interval", c.RescanInterval, time.Second),
		c.validateStaleAfter(),
		atLeast("xid-count-window-size", c.XIDWindow, time.Millisecond),
		atLeast("clock-events-count-window-size", c.ClockEventWindow, time.Millisecond),
		atLeast("collector-restart-max", c.RestartMax, 100*time.Millisecond),
		atLeast("release-timeout", c.ReleaseTimeout, 0),
		c.validateMemoryLimit(),
		c.validateConfigMap(),
		c.validateFake(),
		c.validateOwners(),
		c.Web.validate(),
	)
}

func atLeast(name string, got, least time.Duration) error {
	if got >= least {
		return nil
	}
	return fmt.Errorf("--%s is %s: it must be at least %s", name, got, least)
}

func (c *Config) validateStaleAfter() error {
	if c.StaleAfter == 0 {
		return nil
	}
	return atLeast("stale-after", c.StaleAfter, 2*c.Interval)
}

// minMemoryLimit is less than any child takes, so a smaller limit is a slip.
const minMemoryLimit = 32 << 20

func (c *Config) validateMemoryLimit() error {
	if c.MemoryLimit == 0 || c.MemoryLimit >= minMemoryLimit {
		return nil
	}
	return fmt.Errorf("--collector-memory-limit is %s: it must be at least %s, or 0 for none", formatBytes(c.MemoryLimit), formatBytes(minMemoryLimit))
}

func (c *Config) validateConfigMap() error {
	if c.ConfigMapData == NoConfigMap {
		return nil
	}
	ns, name, ok := strings.Cut(c.ConfigMapData, ":")
	if !ok || ns == "" || name == "" || strings.Contains(name, ":") {
		return fmt.Errorf("--configmap-data is %q: write NAMESPACE:NAME, or %s", c.ConfigMapData, NoConfigMap)
	}
	return nil
}

// validateFake refuses options of simulated GPUs without --enable-fake: a
// person who wrote them believes to have simulated GPUs.
func (c *Config) validateFake() error {
	if c.Fake.Devices < 0 {
		return fmt.Errorf("--fake-devices is %d: it must not be negative", c.Fake.Devices)
	}
	if c.Fake.Enabled {
		return nil
	}
	var errs []error
	for _, name := range []string{"fake-profile", "fake-devices", "fake-spec", "fake-seed"} {
		if c.Source(name) != FromDefault {
			errs = append(errs, fmt.Errorf("--%s is set without --enable-fake: add --enable-fake, or leave it out", name))
		}
	}
	return errors.Join(errs...)
}

func (w *Web) validate() error {
	return errors.Join(
		w.validateAddress(),
		atLeast("web-read-timeout", w.ReadTimeout, time.Millisecond),
		atLeast("web-write-timeout", w.WriteTimeout, time.Millisecond),
		atLeast("web-idle-timeout", w.IdleTimeout, time.Millisecond),
		w.validateConnections(),
		notNegative("max-concurrent-scrapes", w.MaxConcurrentScrapes),
	)
}

func (w *Web) validateAddress() error {
	_, port, err := net.SplitHostPort(w.Address)
	if err != nil {
		return fmt.Errorf("--address is %q: write HOST:PORT, :PORT or [IPV6]:PORT", w.Address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("--address is %q: port %q is not a number from 0 to 65535", w.Address, port)
	} else if n == 0 {
		return nil // any free port: tests and demonstrations
	}
	return nil
}

func (w *Web) validateConnections() error {
	if w.MaxConnections < 1 {
		return fmt.Errorf("--max-connections is %d: it must be at least 1", w.MaxConnections)
	}
	return nil
}

func notNegative(name string, n int) error {
	if n < 0 {
		return fmt.Errorf("--%s is %d: it must not be negative", name, n)
	}
	return nil
}
