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
	// Supplies reports whether some device can have a field, as far as known without a device. Nil for simulated GPUs.
	Supplies func(*field.Descriptor) bool
	Maker    *field.Vendor // the devices' vendor; nil for simulated GPUs
	// Processes makes the collector of the processes on the same devices, which runs next to this one. It
	// is nil if there is none, or if processes are off.
	Processes collector.Factory
	// Isolated means that sessions run in a child process, because they load a vendor's library.
	Isolated bool
	// Environment lists the prefixes of variables that the library reads.
	Environment []string
	// Fallback names the collector that serves the same devices when this one cannot.
	Fallback string
	// Echo means that the library's log in the child process goes to standard error.
	Echo bool
	// Simulated rows invent their values.
	Simulated bool
	// Present reports cheaply, without a library, whether the devices can be there; if not, it returns what it looked
	// for. It is called before each session unless the user enabled the collector by name. Nil: they can be there.
	Present func() (string, bool)
}

// VendorTable returns the rows of all built-in collectors in order of priority, and of simulated GPUs if a user wants
// them. start is the exporter's start time; zero: now.
type VendorTable func(cfg *config.Config, start time.Time, log *zap.Logger) ([]Vendor, error)
