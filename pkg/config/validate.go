package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// validate returns everything that a user must correct, one error per flag, joined.
func (c *Config) validate() error {
	return errors.Join(
		atLeast("collect-interval", c.Interval, minInterval),
		atLeast("slow-interval", c.SlowInterval, minInterval),
		atLeast("sample-deadline", c.SampleDeadline, minInterval),
		atLeast("rescan-interval", c.RescanInterval, time.Second),
		c.validateStaleAfter(),
		atLeast("xid-count-window-size", c.XIDWindow, time.Millisecond),
		atLeast("clock-events-count-window-size", c.ClockEventWindow, time.Millisecond),
		atLeast("collector-restart-max", c.RestartMax, 100*time.Millisecond),
		c.validateMemoryLimit(),
		c.validateFake(),
		c.validateOwners(),
		jobLabels(c.HPCLabels),
		c.History.validate(),
		c.Recorder.validate(&c.History),
		c.Health.validate(),
		c.Remote.validate(),
		c.Web.validate(),
	)
}

func atLeast(name string, got, least time.Duration) error {
	if got >= least {
		return nil
	}
	return fmt.Errorf("--%s is %s: it must be at least %s", name, got, least)
}

func atLeastN(name string, got, least int) error {
	if got >= least {
		return nil
	}
	return fmt.Errorf("--%s is %d: it must be at least %d", name, got, least)
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

// validateFake refuses options of simulated GPUs without --enable-fake: a user who
// wrote them expects simulated GPUs.
func (c *Config) validateFake() error {
	if c.Simulates() || c.Fake.Devices < 0 {
		return atLeastN("fake-devices", c.Fake.Devices, 0)
	}
	var errs []error
	for _, name := range []string{"fake-profile", "fake-devices", "fake-spec", "fake-seed"} {
		if c.Source(name) != FromDefault {
			errs = append(errs, fmt.Errorf("--%s is set without --enable-fake: add --enable-fake, or leave it out", name))
		}
	}
	return errors.Join(errs...)
}

// minHistory is less than what a series of each field of one GPU takes.
const minHistory = 1 << 20

func (h *History) validate() error {
	if !h.Wanted() {
		return nil
	}
	err := atLeast("history-age", h.Age, time.Second)
	if h.Bytes < minHistory {
		err = errors.Join(err, fmt.Errorf("--history-bytes is %s: it must be at least %s, or 0 for none", formatBytes(h.Bytes), formatBytes(minHistory)))
	}
	return err
}

// Limits of a recording.
const (
	minRecordings  = 1 << 20
	maxRecorded    = time.Hour
	recorderMargin = 10 * time.Second // from the last sample to the file
)

func (r *Recorder) validate(h *History) error {
	if r.Directory == "" || !h.Wanted() { // without a history nothing is recorded
		return nil
	}
	errs := []error{
		atLeast("recorder-before", r.Before, time.Second),
		atLeastN("recorder-files", r.Files, 1),
	}
	if !filepath.IsAbs(r.Directory) {
		errs = append(errs, fmt.Errorf("--%s is %q: write an absolute path", flagRecorder, r.Directory))
	}
	if r.Bytes < minRecordings {
		errs = append(errs, fmt.Errorf("--recorder-bytes is %s: it must be at least %s", formatBytes(r.Bytes), formatBytes(minRecordings)))
	}
	switch span := r.Before + r.After; {
	case span > maxRecorded:
		errs = append(errs, fmt.Errorf("--recorder-before and --recorder-after are %s together: they can be at most %s", shortDuration(span), shortDuration(maxRecorded)))
	case span+recorderMargin > h.Age:
		errs = append(errs, fmt.Errorf("--recorder-before and --recorder-after are %s together: --history-age must be at least %s", shortDuration(span), shortDuration(span+recorderMargin)))
	}
	return errors.Join(errs...)
}

func (w *Web) validate() error {
	return errors.Join(
		w.validateAddress(),
		atLeast("web-read-timeout", w.ReadTimeout, time.Millisecond),
		atLeast("web-write-timeout", w.WriteTimeout, time.Millisecond),
		atLeast("web-idle-timeout", w.IdleTimeout, time.Millisecond),
		atLeastN("max-connections", w.MaxConnections, 1),
		atLeastN("max-concurrent-scrapes", w.MaxConcurrentScrapes, 0),
	)
}

func (w *Web) validateAddress() error {
	_, port, err := net.SplitHostPort(w.Address)
	if err != nil {
		return fmt.Errorf("--address is %q: write HOST:PORT, :PORT or [IPV6]:PORT", w.Address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil { // 0 is any free port
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
		socketPath("pod-resources-kubelet-socket", &k.Socket, false),
		socketPath("container-runtime-socket", &c.Containers.Socket, true),
		atLeast("pod-resources-interval", k.Interval, time.Second),
		resourceNames(k.ResourceNames),
	)
}

// socketPath takes the scheme off that the kubelet's own flags have.
func socketPath(name string, at *string, optional bool) error {
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

// resourceNames refuses what cannot be an extended resource, which always has a
// domain.
func resourceNames(names []string) error {
	var errs []error
	for _, name := range names {
		if domain, rest, ok := strings.Cut(name, "/"); !ok || domain == "" || rest == "" || strings.ContainsAny(name, " \t=") {
			errs = append(errs, fmt.Errorf("--nvidia-resource-names has %q: write names as pods ask for them, such as nvidia.com/gpu.shared", name))
		}
	}
	return errors.Join(errs...)
}
