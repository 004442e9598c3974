package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

const (
	contractCounters = "/etc/dcgm-exporter/default-counters.csv" // dcgm-exporter's default
	ownCounters      = "/etc/warpgauge/default-counters.csv"
)

// DefaultCounters returns the default files of the counters CSV in the order in which
// they are tried.
func DefaultCounters() []string { return []string{contractCounters, ownCounters} }

// builtInName is what messages call the list built in.
const builtInName = "built-in default-counters.csv"

// Counters finds and reads the counters CSV. Its methods are not for concurrent use.
type Counters struct {
	files    *file.Reader
	path     string   // of the file in use; empty: none was found yet
	defaults []string // tried until one is found
}

// Counters returns the counters CSV at path, which may be empty: then it is the one that
// the user has configured, else the first default file that exists, else the list built in.
func (c *Config) Counters(path string) *Counters {
	out := &Counters{files: file.NewReader(field.MaxFileBytes), path: path}
	switch {
	case path != "":
	case c.CollectorsGiven():
		out.path = c.Collectors
	default:
		out.defaults = c.DefaultFiles
	}
	return out
}

// Path returns the file that was read last; empty for the list built in.
func (c *Counters) Path() string { return c.path }

// Read returns the content of the CSV and what messages call it. A file that was found
// once is not left for another; from the list built in, a default file that has appeared
// takes over. One that exists but cannot be read is an error.
func (c *Counters) Read(ctx context.Context, builtIn []byte) (data []byte, name string, err error) {
	if c.path == "" {
		for _, path := range c.defaults {
			if data, err = c.files.Read(ctx, path); !errors.Is(err, fs.ErrNotExist) {
				c.path = path
				return data, path, explain(err, path)
			}
		}
		return builtIn, builtInName, nil
	}
	data, err = c.files.Read(ctx, c.path)
	return data, c.path, explain(err, c.path)
}

// explain says what to do about an error of reading a counters CSV.
func explain(err error, path string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read counters file %q: it does not exist; name another with --collectors (DCGM_EXPORTER_COLLECTORS), or leave it out to use the list built in", path)
	case err != nil:
		return fmt.Errorf("read counters file: %w", err)
	}
	return nil
}
