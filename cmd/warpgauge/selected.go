package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// selection is the answer to --devices, --switch-devices and --cpu-devices.
type selection struct {
	gpus, switches, cpus config.Selector
	log                  *zap.Logger

	mu     sync.Mutex
	warned string // what was logged last about ids that do not exist
}

// wrap makes a factory whose collectors show the selected devices only.
func (s *selection) wrap(f collector.Factory) collector.Factory {
	return func() collector.Collector {
		inner := f()
		c := &selected{Collector: inner, by: s}
		if r, ok := inner.(collector.Rescanner); ok {
			return &selectedRescanner{selected: c, Rescanner: r}
		}
		return c
	}
}

// selected hides devices of a collector.
type selected struct {
	collector.Collector
	by *selection
}

// selectedRescanner is selected over a collector that can rescan.
type selectedRescanner struct {
	*selected
	collector.Rescanner
}

var (
	_ collector.Collector = (*selected)(nil)
	_ collector.Rescanner = (*selectedRescanner)(nil)
)

// Open opens the collector and drops what is not selected. A source of which
// nothing is hidden is passed on as it is, so the usual case costs nothing.
func (c *selected) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	sources, err := c.Collector.Open(ctx, fields)
	if err != nil {
		return nil, err
	}
	var all []collector.Device
	parts := instanceFields{}
	for _, src := range sources {
		all = append(all, src.Devices()...)
		parts.add(src)
	}
	c.by.warnMissing(all)
	var kept []collector.Source
	for _, src := range sources {
		if s := c.by.narrow(src, parts); s != nil {
			kept = append(kept, s)
		}
	}
	if len(kept) == 0 && len(sources) > 0 {
		return nil, fmt.Errorf("%w: there are %d devices, but none that --devices=%s --switch-devices=%s --cpu-devices=%s select",
			collector.ErrNoDevices, len(all), c.by.gpus, c.by.switches, c.by.cpus)
	}
	return kept, nil
}

// instanceFields are the fields that the MIG instances of a GPU supply, by the
// id of the GPU.
type instanceFields map[string]map[field.ID]bool

func (p instanceFields) add(src collector.Source) {
	devices := src.Devices()
	for _, c := range src.Columns() {
		d := &devices[c.Device]
		if d.Level != field.Instance {
			continue
		}
		if p[d.Parent] == nil {
			p[d.Parent] = map[field.ID]bool{}
		}
		p[d.Parent][c.Field] = true
	}
}

// matches says whether a device is wanted. Links belong to their GPU or switch.
func (s *selection) matches(d *collector.Device) bool {
	switch d.Level {
	case field.GPU:
		return s.gpus.MatchWhole(index(d.GPU))
	case field.Instance, field.ComputeInstance:
		return s.gpus.MatchPart(index(d.InstanceID))
	case field.Link:
		if d.Switch != "" {
			return s.switches.MatchPart(index(d.Link))
		}
		return s.gpus.MatchWhole(index(d.GPU))
	case field.Switch:
		return s.switches.MatchWhole(index(d.Switch))
	case field.CPU:
		return s.cpus.MatchWhole(index(d.CPU))
	case field.Core:
		return s.cpus.MatchPart(index(d.Core))
	}
	return true
}

// index reads the number of "3" or "nvswitch3". Without one it is -1, which
// only a selector without a list matches.
func index(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "nvswitch"))
	if err != nil {
		return -1
	}
	return n
}

// warnMissing logs ids that a person wrote and no device has, once per finding.
func (s *selection) warnMissing(all []collector.Device) {
	present := map[string]bool{}
	for i := range all {
		d := &all[i]
		present["GPU "+d.GPU] = true
		present["MIG instance "+d.InstanceID] = true
		present["switch "+strings.TrimPrefix(d.Switch, "nvswitch")] = true
		present["CPU "+d.CPU] = true
		present["core "+d.Core] = true
	}
	var missing []string
	note := func(sel config.Selector, whole, part string) {
		wholes, parts := sel.Named()
		for _, n := range wholes {
			if name := fmt.Sprintf("%s %d", whole, n); !present[name] {
				missing = append(missing, name)
			}
		}
		for _, n := range parts {
			if name := fmt.Sprintf("%s %d", part, n); part != "" && !present[name] {
				missing = append(missing, name)
			}
		}
	}
	note(s.gpus, "GPU", "MIG instance")
	note(s.switches, "switch", "")
	note(s.cpus, "CPU", "core")
	text := strings.Join(missing, ", ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if text != "" && text != s.warned {
		s.log.Warn("selected devices do not exist (yet)", zap.String("device", text))
	}
	s.warned = text
}

// repeats says whether a column tells of a whole GPU what its instances tell of
// their shares. With f the instances speak for the GPU there; what they do not
// have (temperature, power, clocks …) stays with the GPU, once; and so does an
// XID that concerns the whole GPU, which no instance tells of.
func (s *selection) repeats(c collector.Column, d *collector.Device, parts instanceFields) bool {
	return s.gpus.Flexible() && d.Level == field.GPU && parts[d.ID][c.Field] && c.Field != field.XIDErrors && c.Field != field.XIDEvent
}

// narrow returns src without what is not selected, nil if nothing is left.
func (s *selection) narrow(src collector.Source, parts instanceFields) collector.Source {
	n := &narrowed{src: src, devices: src.Devices(), columns: src.Columns()}
	place := make([]int, len(n.devices)) // of a device of src among those kept, -1: hidden
	var kept []collector.Device
	for i := range n.devices {
		place[i] = -1
		if s.matches(&n.devices[i]) {
			place[i] = len(kept)
			kept = append(kept, n.devices[i])
		}
	}
	if len(kept) == 0 {
		return nil
	}
	n.place = place
	n.row = make([]float64, len(n.columns))
	n.due = make([]bool, len(n.columns))
	var columns []collector.Column
	for i, c := range n.columns {
		if p := place[c.Device]; p >= 0 && !s.repeats(c, &n.devices[c.Device], parts) {
			c.Device = p
			columns = append(columns, c)
			n.at = append(n.at, i)
		}
	}
	if len(columns) == len(n.columns) && len(kept) == len(n.devices) {
		return src
	}
	n.devices, n.columns = kept, columns
	return n
}

// narrowed is a source of which some devices are hidden. Their columns are
// never due, so they are not read either.
type narrowed struct {
	src     collector.Source
	devices []collector.Device
	columns []collector.Column
	place   []int // by device of src: the device here, or -1
	at      []int // by column here: the column of src

	// Of the goroutine that samples.
	row []float64
	due []bool
}

var (
	_ collector.Source    = (*narrowed)(nil)
	_ collector.CallMeter = (*narrowed)(nil)
)

func (n *narrowed) Devices() []collector.Device { return n.devices }
func (n *narrowed) Columns() []collector.Column { return n.columns }

// Calls passes on what the source can tell of its library calls.
func (n *narrowed) Calls() []collector.CallCost {
	if m, ok := n.src.(collector.CallMeter); ok {
		return m.Calls()
	}
	return nil
}

func (n *narrowed) Sample(row []float64, due []bool) error {
	for i, at := range n.at {
		n.row[at], n.due[at] = row[i], due[i]
	}
	err := n.src.Sample(n.row, n.due)
	for i, at := range n.at {
		row[i] = n.row[at]
	}
	if err == nil {
		return nil
	}
	return n.translate(err)
}

// translate renumbers the devices that err concerns and leaves out hidden ones.
func (n *narrowed) translate(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		parts := slices.Clone(joined.Unwrap())
		for i, e := range parts {
			parts[i] = n.translate(e)
		}
		return errors.Join(parts...)
	}
	var one *collector.DeviceError
	if !errors.As(err, &one) || one.Device < 0 || one.Device >= len(n.place) {
		return err
	}
	switch p := n.place[one.Device]; p {
	case one.Device:
		return err
	case -1:
		return nil
	default:
		return &collector.DeviceError{Device: p, Err: one.Err}
	}
}
