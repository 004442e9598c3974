package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Where the counters CSV is looked for when nobody names one, in this order.
const (
	ContractCounters = "/etc/dcgm-exporter/default-counters.csv" // dcgm-exporter's place
	OwnCounters      = "/etc/warpgauge/default-counters.csv"
)

// Counters is the place of a counters CSV.
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

// FindCounters returns the CSV that a person named, else the first of the
// candidates that exists, else the list built in. A candidate that is there but
// cannot be looked at is returned too, so that reading it tells why.
func (c *Config) FindCounters(candidates ...string) Counters {
	if c.CollectorsGiven() {
		return Counters{Path: c.Collectors}
	}
	for _, path := range candidates {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return Counters{Path: path}
		}
	}
	return Counters{}
}
