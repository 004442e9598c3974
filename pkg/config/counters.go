package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const (
	contractCounters = "/etc/dcgm-exporter/default-counters.csv" // dcgm-exporter's default
	ownCounters      = "/etc/warpgauge/default-counters.csv"
)

// DefaultCounters returns the default files of the counters CSV in the order in which
// they are tried.
func DefaultCounters() []string { return []string{contractCounters, ownCounters} }

// Counters names a counters CSV.
type Counters struct {
	Path string // empty: the list built in
}

// Name is what messages call the list.
func (c Counters) Name() string {
	if c.Path == "" {
		return "built-in default-counters.csv"
	}
	return c.Path
}

// Read returns the bytes of the list.
func (c Counters) Read(builtIn []byte) ([]byte, error) {
	if c.Path == "" {
		return builtIn, nil
	}
	data, err := os.ReadFile(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read counters file %q: it does not exist; name another with --collectors (DCGM_EXPORTER_COLLECTORS), or leave it out to use the list built in", c.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("read counters file: %w", err)
	}
	return data, nil
}

// FindCounters returns the CSV that the user named, else the first default file that
// exists, else the list built in. A default file that exists but cannot be examined is
// returned too, so that reading it gives the error.
func (c *Config) FindCounters() Counters {
	if c.CollectorsGiven() {
		return Counters{Path: c.Collectors}
	}
	for _, path := range c.DefaultFiles {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return Counters{Path: path}
		}
	}
	return Counters{}
}
