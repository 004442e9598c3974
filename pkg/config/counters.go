package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"warpgauge/pkg/file"
)

const (
	contractCounters = "/etc/dcgm-exporter/default-counters.csv" // dcgm-exporter's default
	ownCounters      = "/etc/warpgauge/default-counters.csv"
)

// DefaultCounters returns the default files of the counters CSV, first choice first.
func DefaultCounters() []string { return []string{contractCounters, ownCounters} }

// builtInName names the built-in list in messages.
const builtInName = "built-in default-counters.csv"

// Counters finds and reads the field list. Only one goroutine at a time may call Read; any may call the other methods.
type Counters struct {
	files     *file.Reader
	configMap func(ctx context.Context, namespace, name string) ([]byte, error)
	mapName   string // NAMESPACE:NAME; empty: none
	yaml      string // path of the configuration file; empty: none
	dialects  []Dialect
	names     []string // of all dialects

	path     string   // path of the CSV in use; empty: none found yet
	named    bool     // by the user, with a flag or a variable
	defaults []string // tried until one is found

	mu   sync.Mutex
	seen map[string][]byte // content of each file at the last read; nil: unreadable
}

// Content is the result of one read.
type Content struct {
	CSV  []byte
	Name string // name of the CSV, in messages
	YAML *YAML  // the current configuration file; nil: none

	yaml     []byte
	dialects map[string][]byte // existing files of dialects, by name of the dialect
}

// Equal reports whether both have the same content.
func (c *Content) Equal(o *Content) bool {
	return bytes.Equal(c.CSV, o.CSV) && bytes.Equal(c.yaml, o.yaml) && maps.EqualFunc(c.dialects, o.dialects, bytes.Equal)
}

// Hash returns the SHA-256 of the CSV, as sha256sum prints it. With configuration files it covers the CSV followed by them.
func (c *Content) Hash() string {
	h := sha256.New()
	h.Write(c.CSV)
	h.Write(c.yaml)
	for _, name := range slices.Sorted(maps.Keys(c.dialects)) {
		h.Write(c.dialects[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Paths returns the files of the last read.
func (c *Counters) Paths() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.seen))
}

// Seen returns a file's content at the last read, and whether it could be read.
func (c *Counters) Seen(path string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data := c.seen[path]
	return data, data != nil
}

// Read returns the current field list. It stays with a file once found; a new default file replaces the
// built-in list. A file that exists but cannot be read is an error.
func (c *Counters) Read(ctx context.Context, builtIn []byte) (*Content, error) {
	out := &Content{dialects: map[string][]byte{}}
	given := c.path // the user's choice, or a default file that was found
	for _, d := range c.dialects {
		switch data, err := d.Read(ctx, c.readFile); {
		case err != nil:
			return nil, err
		case data != nil:
			out.dialects[d.Name()] = data
		}
	}
	if c.yaml != "" {
		data, err := c.readFile(ctx, c.yaml)
		if err != nil {
			return nil, fmt.Errorf("read configuration file: %w", err)
		}
		y, err := parseYAML(data, c.yaml, c.names...)
		if err != nil {
			return nil, err
		}
		out.yaml, out.YAML = data, y
		switch {
		case c.named:
		case y.file != "":
			given = y.file
		case len(y.fields) > 0:
			out.CSV, out.Name = y.csv(), c.yaml
			return out, nil
		}
	}
	var err error
	switch {
	case c.mapName != "":
		namespace, name, _ := strings.Cut(c.mapName, ":")
		out.Name = "ConfigMap " + c.mapName
		out.CSV, err = c.configMap(ctx, namespace, name)
		return out, err
	case given != "":
		out.Name = given
		out.CSV, err = c.readFile(ctx, given)
		return out, explain(err, given)
	}
	for _, path := range c.defaults {
		if out.CSV, err = c.readFile(ctx, path); !errors.Is(err, fs.ErrNotExist) {
			c.path = path
			out.Name = path
			return out, explain(err, path)
		}
	}
	out.CSV, out.Name = builtIn, builtInName
	return out, nil
}

// readFile reads a file and records the result, unless it is a missing default file.
func (c *Counters) readFile(ctx context.Context, path string) ([]byte, error) {
	data, err := c.files.Read(ctx, path)
	if ctx.Err() != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.seen[path] = append([]byte{}, data...) // not nil, even of an empty file
	case !slices.Contains(c.defaults, path) || c.path == path:
		c.seen[path] = nil
	}
	return data, err
}

// explain adds advice to an error of reading a counters CSV.
func explain(err error, path string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read counters file %q: it does not exist; name another with --collectors (DCGM_EXPORTER_COLLECTORS), or leave it out to use the list built in", path)
	case err != nil:
		return fmt.Errorf("read counters file: %w", err)
	}
	return nil
}
