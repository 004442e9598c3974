package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// validate returns all errors of the settings, one per flag, joined.
func (c *Config) validate() error {
	return errors.Join(
		AtLeast("collect-interval", c.Interval, minInterval),
		AtLeast("slow-interval", c.SlowInterval, minInterval),
		AtLeast("sample-deadline", c.SampleDeadline, minInterval),
		AtLeast("rescan-interval", c.RescanInterval, time.Second),
		AtLeast("stale-after", cmp.Or(c.StaleAfter, 2*c.Interval), 2*c.Interval),
		AtLeast("xid-count-window-size", c.XIDWindow, time.Millisecond),
		AtLeast("clock-events-count-window-size", c.ClockEventWindow, time.Millisecond),
		AtLeast("collector-restart-max", c.RestartMax, 100*time.Millisecond),
		c.validateMemoryLimit(),
		c.validateFake(),
		c.validateOwners(),
		jobLabels(c.HPCLabels),
		c.Web.validate(),
	)
}

// AtLeast returns an error that names the flag if a duration or a number is too small.
func AtLeast[T int | time.Duration](name string, got, least T) error {
	if got >= least {
		return nil
	}
	return fmt.Errorf("--%s is %v: it must be at least %v", name, got, least)
}

// minMemoryLimit is less than any child uses, so a smaller limit is a typo.
const minMemoryLimit = 32 << 20

func (c *Config) validateMemoryLimit() error {
	if c.MemoryLimit == 0 || c.MemoryLimit >= minMemoryLimit {
		return nil
	}
	return fmt.Errorf("--collector-memory-limit is %s: it must be at least %s, or 0 for none", formatBytes(c.MemoryLimit), formatBytes(minMemoryLimit))
}

// validateFake rejects options of simulated GPUs without --enable-fake, because their user expects simulated GPUs.
func (c *Config) validateFake() error {
	if c.Simulates() || c.Fake.Devices < 0 {
		return AtLeast("fake-devices", c.Fake.Devices, 0)
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
		AtLeast("web-read-timeout", w.ReadTimeout, time.Millisecond),
		AtLeast("web-write-timeout", w.WriteTimeout, time.Millisecond),
		AtLeast("max-concurrent-scrapes", w.MaxConcurrentScrapes, 0),
	)
}

func (w *Web) validateAddress() error {
	_, port, err := net.SplitHostPort(w.Address)
	if err != nil {
		return fmt.Errorf("--address is %q: write HOST:PORT, :PORT or [IPV6]:PORT", w.Address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil { // 0: any free port
		return fmt.Errorf("--address is %q: port %q is not a number from 0 to 65535", w.Address, port)
	}
	return nil
}

// validateOwners checks the settings of --kubernetes, which have no effect without it.
func (c *Config) validateOwners() error {
	k := &c.Kubernetes
	if !k.Enabled {
		return nil
	}
	return errors.Join(
		SocketPath("pod-resources-kubelet-socket", &k.Socket, false),
		AtLeast("pod-resources-interval", k.Interval, time.Second),
		resourceNames(k.ResourceNames),
	)
}

// SocketPath checks the value of a flag that names a Unix socket. It removes the scheme that the kubelet's own flags have.
func SocketPath(name string, at *string, optional bool) error {
	path := strings.TrimPrefix(*at, "unix://")
	if path == "" && optional {
		return nil
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("--%s is %q: write the absolute path of a Unix socket", name, *at)
	}
	*at = path
	return nil
}

func jobLabels(names []string) error {
	for _, name := range names {
		if name != "user" && name != "partition" {
			return fmt.Errorf("--hpc-job-labels has %q: write user, partition or both", name)
		}
	}
	return nil
}

// resourceNames rejects names that cannot be extended resources, which always have a domain.
func resourceNames(names []string) error {
	var errs []error
	for _, name := range names {
		if domain, rest, ok := strings.Cut(name, "/"); !ok || domain == "" || rest == "" || strings.ContainsAny(name, " \t=") {
			errs = append(errs, fmt.Errorf("--nvidia-resource-names has %q: write names as pods ask for them, such as nvidia.com/gpu.shared", name))
		}
	}
	return errors.Join(errs...)
}
