// Package toy is the collector of an imaginary vendor, an example for "How to add a collector" in ARCHITECTURE.md.
// Its driver has a file for each GPU, named after the GPU's UUID, which contains the temperature.
package toy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Name is the collector's name.
const Name = "toy"

// A Driver answers the collector's calls.
type Driver interface {
	GPUs() []string                          // UUIDs
	Temperature(uuid string) (float64, bool) // in celsius; false if the GPU is lost
}

// Directory is the driver with files below a directory.
type Directory string

// GPUs returns the names of the files.
func (d Directory) GPUs() (out []string) {
	files, _ := filepath.Glob(filepath.Join(string(d), "TOY-*"))
	for _, f := range files {
		out = append(out, filepath.Base(f))
	}
	return out
}

// Temperature reads a GPU's file.
func (d Directory) Temperature(uuid string) (float64, bool) {
	text, err := os.ReadFile(filepath.Join(string(d), uuid))
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	return v, err == nil
}

// Supplies reports whether toys have a reading.
func Supplies(d *field.Descriptor) bool {
	return d.Name == "DCGM_FI_DEV_GPU_TEMP" || d.ID == field.ToyWheelSpeed
}

// New returns the collector.
func New(d Driver) collector.Collector { return &toy{d} }

type toy struct{ driver Driver }

func (*toy) Name() string { return Name }

// Open returns a source for each GPU.
func (c *toy) Open(ctx context.Context, fields field.List) (out []collector.Source, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i, id := range c.driver.GPUs() {
		s := &source{driver: c.driver, uuid: id, devices: []collector.Device{{
			ID: id, Level: field.GPU, GPU: strconv.Itoa(i), UUID: id, Node: "toy" + strconv.Itoa(i), Model: "Toy 1",
		}}}
		for _, r := range fields.Readings() {
			if Supplies(r.Desc) {
				s.columns = append(s.columns, collector.Column{Field: r.Desc.ID})
			}
		}
		s.Complete(s.devices, s.columns, fields.Readings(), func(_ int, d *field.Descriptor) collector.Explanation {
			if e, foreign := collector.ForeignReading(d, field.VendorToy); foreign {
				return e
			}
			return collector.Explanation{Reason: collector.ReasonUnsupported, Detail: "toys do not have it"}
		})
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("look for toy GPUs: %w", collector.ErrNoDevices)
	}
	return out, nil
}

func (*toy) Close() error { return nil }

type source struct {
	driver  Driver
	uuid    string
	devices []collector.Device
	columns []collector.Column
	collector.Absences
}

func (s *source) Devices() []collector.Device { return s.devices }
func (s *source) Columns() []collector.Column { return s.columns }

// Sample reads the temperature. The wheels turn faster when the GPU is hot.
func (s *source) Sample(row []float64, due []bool) error {
	v, ok := s.driver.Temperature(s.uuid)
	if !ok {
		return collector.ErrDeviceLost
	}
	for i := range row {
		switch {
		case !due[i]:
		case s.columns[i].Field == field.ToyWheelSpeed:
			row[i] = 10 * v
		default:
			row[i] = v
		}
	}
	return nil
}
