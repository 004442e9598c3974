package exporter

import (
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// Vendor is a row of the table of collectors.
type Vendor struct {
	Name    string
	Setting config.Tristate
	Open    collector.Factory
	// Supplies reports whether some device can have a field, as far as is known without
	// one. Nil for simulated GPUs.
	Supplies func(*field.Descriptor) bool
	Maker    *field.Vendor // of the devices; nil for simulated GPUs
	// Processes makes the collector of the processes on the same devices, which runs as
	// it does, next to it; nil if there is none, or if they are not wanted.
	Processes collector.Factory
	// Isolated says that sessions run in a child process: a vendor's library is loaded.
	Isolated bool
	// Environment is how the names of variables begin that the library reads.
	Environment []string
	// Fallback names the collector that serves the same devices when this one cannot.
	Fallback string
	// Echo says that what the library logs in its child process goes to standard error.
	Echo bool
	// Simulated rows invent their values.
	Simulated bool
	// Present reports cheaply, without a library, whether the devices can be there, or
	// what was looked for. It is asked before each session unless the collector was
	// enabled by name. Nil: they can.
	Present func() (string, bool)
}

// VendorTable returns the rows of all collectors that are built in, in order of priority, and that of simulated GPUs if a
// user asks for them. start is when the exporter was started; zero: now.
type VendorTable func(cfg *config.Config, start time.Time, log *zap.Logger) ([]Vendor, error)
