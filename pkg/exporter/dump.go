package exporter

import (
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

const (
	dumpPrefix = "warpgauge-dump-"
	// A dump follows a change of sources, states or owners, at least this long after the last dump. Without
	// changes it is written at this maximum interval.
	dumpPause = 10 * time.Second
	dumpEvery = time.Hour
)

// dumper writes the exporter's state into files for fault analysis: collectors, devices, states, and the
// newest value of every column. It reads memory only, and scrapes never wait for it.
type dumper struct {
	o       config.Dump
	version string
	board   *view.Board
	status  func() []session.CollectorStatus
	owners  *Owners // nil: the mappings are off
	now     func() time.Time
	log     *zap.Logger

	row view.Row
}

// dumped is one file.
type dumped struct {
	Time       time.Time
	Version    string
	Collectors []dumpedCollector
	Sources    []dumpedSource
	Users      map[string][]string `json:",omitempty"` // by device's ID
	Mappings   string              `json:",omitempty"` // their problems
}

type dumpedCollector struct {
	session.CollectorStatus

	Devices []dumpedDevice
}

type dumpedDevice struct {
	session.DeviceStatus

	State string
}

type dumpedSource struct {
	Collector string
	Devices   []collector.Device
	Rows      uint64 // so far
	Values    []dumpedValue
}

type dumpedValue struct {
	Device int // index into the source's devices
	Field  string
	Labels []collector.Label `json:",omitempty"`
	Value  *float64          // null: blank
}

// Run writes a dump when something has changed.
func (d *dumper) run(ctx context.Context) error {
	tick := time.NewTicker(dumpPause)
	defer tick.Stop()
	d.log.Info("dumps for debugging are written", zap.String("directory", d.o.Directory), zap.Duration("first_in", dumpPause))
	last, wrote := "", time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		mark := d.mark()
		if mark == last && d.now().Sub(wrote) < dumpEvery {
			continue
		}
		last, wrote = mark, d.now()
		file, err := d.write()
		if err != nil {
			d.log.Warn("debugging dump cannot be written", zap.Error(err))
			continue
		}
		d.log.Debug("debugging dump written", zap.String("file", file))
		if err := d.clean(); err != nil {
			d.log.Warn("old debugging dumps cannot be removed", zap.Error(err))
		}
	}
}

// mark changes when sources, states or owners change.
func (d *dumper) mark() string {
	var b strings.Builder
	fmt.Fprint(&b, d.board.Load().Version)
	if d.owners != nil {
		fmt.Fprint(&b, " ", d.owners.keeper.Version())
	}
	for _, c := range d.status() {
		fmt.Fprint(&b, " ", c.Name, c.Up, c.Cause)
		for i := range c.Devices {
			fmt.Fprint(&b, c.Devices[i].State)
		}
	}
	return b.String()
}

// directory opens the directory of the dumps.
func (d *dumper) directory() (*os.Root, error) {
	return file.Private{Path: d.o.Directory, Of: "dumps", Flag: "dump-directory"}.Open()
}

// write writes one file and returns its name. The file appears whole or not at all.
func (d *dumper) write() (name string, err error) {
	root, err := d.directory()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }() // files are closed on their own
	name = dumpPrefix + d.now().UTC().Format("20060102-150405.000") + "-" + rand.Text() + ".json"
	if d.o.Compression {
		name += ".gz"
	}
	if err := file.WriteWhole(root, name, d.encode); err != nil {
		return "", fmt.Errorf("write dump %q: %w", name, err)
	}
	return filepath.Join(d.o.Directory, name), nil
}

func (d *dumper) encode(w io.Writer) error {
	to, end := w, func() error { return nil }
	if d.o.Compression {
		z := gzip.NewWriter(w)
		to, end = z, z.Close
	}
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	return errors.Join(e.Encode(d.content()), end())
}

func (d *dumper) content() dumped {
	v := d.board.Load()
	out := dumped{Time: d.now().UTC(), Version: d.version, Users: map[string][]string{}}
	for _, c := range d.status() {
		one := dumpedCollector{CollectorStatus: c}
		for _, s := range c.Devices {
			one.Devices = append(one.Devices, dumpedDevice{s, s.State.String()})
		}
		out.Collectors = append(out.Collectors, one)
	}
	for _, s := range v.Sources {
		out.Sources = append(out.Sources, d.source(s))
		for i := range s.Devices {
			if users := d.owners.Describe(&s.Devices[i]); len(users) > 0 {
				out.Users[s.Devices[i].ID] = users
			}
		}
	}
	var problems strings.Builder
	d.owners.WriteProblems(&problems, dumpPause)
	out.Mappings = problems.String()
	return out
}

func (d *dumper) source(s *view.Source) dumpedSource {
	out := dumpedSource{Collector: s.Collector, Devices: s.Devices, Rows: s.Ring.Head()}
	known := s.Ring.Latest(&d.row) && len(d.row.Cells) == len(s.Columns)
	for i, c := range s.Columns {
		if c.Buffer > 0 {
			continue
		}
		v := dumpedValue{Device: c.Device, Field: fmt.Sprint(c.Field), Labels: c.Labels}
		if desc, ok := field.ByID(c.Field); ok {
			v.Field = desc.Name
		}
		if known && !math.IsNaN(d.row.Cells[i]) && !math.IsInf(d.row.Cells[i], 0) {
			cell := d.row.Cells[i]
			v.Value = &cell
		}
		out.Values = append(out.Values, v)
	}
	return out
}

// clean removes dumps after their retention time. It only touches files with a dump's name.
func (d *dumper) clean() error {
	if d.o.RetentionHours <= 0 {
		return nil
	}
	oldest := d.now().Add(-time.Duration(d.o.RetentionHours) * time.Hour)
	root, err := d.directory()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	files, err := file.List(root, dumpPrefix, oldest)
	if err != nil {
		return fmt.Errorf("list dumps: %w", err)
	}
	var errs []error
	for _, f := range files {
		if f.ModTime().Before(oldest) {
			errs = append(errs, root.Remove(f.Name()))
		}
	}
	return errors.Join(errs...)
}
