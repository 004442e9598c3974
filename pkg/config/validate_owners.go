package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// validateOwners looks at what is asked who uses a device. Settings that nobody
// heeds are not held against anybody.
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

// socketPath takes the scheme off, with which the kubelet's own flags have such
// paths.
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
