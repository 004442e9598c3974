package fake

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// FaultKind is a kind of fault.
type FaultKind string

// The kinds of faults. README.md describes them.
const (
	Hang      FaultKind = "hang"       // Sample does not return; with a field, other calls succeed
	Lost      FaultKind = "lost"       // Sample returns ErrDeviceLost
	Stalled   FaultKind = "stalled"    // Sample returns ErrStalled
	Fails     FaultKind = "fails"      // Sample returns another error
	Absurd    FaultKind = "value"      // a field reads Value
	Blank     FaultKind = "blank"      // a field, or every field, is blank
	XID       FaultKind = "xid"        // one XID event
	Health    FaultKind = "health"     // a health watch warns or fails
	OpenFails FaultKind = "open-fails" // Open returns an error
	Devices   FaultKind = "devices"    // the node has another number of GPUs
)

// Kinds that damage or end the process. They need a World with Options.Isolated.
const (
	Crash   FaultKind = "crash"   // SIGSEGV
	Abort   FaultKind = "abort"   // an assertion's text, then SIGABRT
	Exit    FaultKind = "exit"    // ends with Status
	Spin    FaultKind = "spin"    // Sample does not return and keeps a core busy
	Leak    FaultKind = "leak"    // leaks memory at Rate
	Garbage FaultKind = "garbage" // writes junk to every open Unix socket
)

// Fault is a fault with its time and targets.
type Fault struct {
	Kind FaultKind     // decides which of the other fields are set
	At   time.Duration // after the world's start
	For  time.Duration // 0 means for ever; an XID takes no time
	// While is a file that replaces At and For: the fault lasts while the file exists. So a test does not depend on the clock.
	While string

	GPUs     Spans `yaml:"device"` // affected devices; unused by OpenFails and Devices
	Switches Spans `yaml:"switch"`

	Field   *field.Descriptor `yaml:"-"` // Absurd, Blank, Hang; nil means every field
	Value   float64           // Absurd
	Rise    float64           // Absurd: added to Value for each second since the drivers were loaded, so that a counter has a constant rate
	Label   collector.Label   `yaml:"-"` // Absurd, Blank: only columns with this label; the zero Label means all columns of the field
	XID     int               // XID
	Watch   string            // Health: NVLINK, MEM …
	Fail    bool              `yaml:"-"` // Health: fails; otherwise warns
	Code    string            // Health: health_error_code; empty means a suitable code for Watch
	Message string            // OpenFails, Abort
	Count   int               `yaml:"devices"` // Devices: number of GPUs

	Once   bool // kinds that damage a process: spare processes started after At
	Status int  // Exit
	Rate   int  // Leak: MiB per second

	line int // in the spec file
}

// maxDevices bounds the number of GPUs of a node.
const maxDevices = 1 << 14

// validate returns the errors in f.
func (f *Fault) validate() error {
	switch {
	case faultKeys[f.Kind] == "":
		return fmt.Errorf("unknown kind of fault %q: there are %s", f.Kind, strings.Join(faultKinds(), ", "))
	case f.Kind.has("device") && len(f.GPUs)+len(f.Switches) == 0:
		return fmt.Errorf("fault %q: which device? say device: 3, device: 0-7 or device: all", f.Kind)
	case f.Kind == Absurd && (f.Field == nil || math.IsNaN(f.Value+f.Rise)):
		return fmt.Errorf("fault %q: needs a field and a number; for no value, use blank", f.Kind)
	case f.Kind == XID && (f.XID < 1 || f.XID > 999):
		return fmt.Errorf("fault %q: XIDs are 1 to 999, not %d", f.Kind, f.XID)
	case f.Kind == Health && !slices.Contains(healthWatches(), f.Watch):
		return fmt.Errorf("fault %q: unknown watch %q: there are %s", f.Kind, f.Watch, strings.Join(healthWatches(), ", "))
	case f.Kind == Leak && f.Rate < 1:
		return fmt.Errorf("fault %q: needs a rate of at least 1 MiB per second", f.Kind)
	case f.Kind == Devices && (f.Count < 0 || f.Count > maxDevices):
		return fmt.Errorf("fault %q: 0 to %d devices, not %d", f.Kind, maxDevices, f.Count)
	}
	for _, s := range slices.Concat(f.GPUs, f.Switches) {
		if s.First < 0 || s.Last < s.First || s.Last >= maxDevices {
			return fmt.Errorf("fault %q: devices are 0 to %d, not %d-%d", f.Kind, maxDevices-1, s.First, s.Last)
		}
	}
	return f.validateTimes()
}

func (f *Fault) validateTimes() error {
	switch {
	case f.At < 0 || f.For < 0:
		return errors.New("times must not be negative")
	case f.While != "" && (f.At != 0 || f.For != 0):
		return errors.New("while replaces at and for")
	}
	return nil
}

// fault is a Fault of a world, with its state.
type fault struct {
	Fault
	healed chan struct{} // closed when the fault is healed
	err    error         // of Lost, Stalled, Fails, OpenFails; created once, so that Sample does not allocate
	start  time.Time     // of the world
}

// begin returns when f begins, after the world's start, or false while its file does not exist.
func (f *fault) begin() (at time.Duration, known bool) {
	if f.While == "" {
		return f.At, true
	}
	info, err := os.Stat(f.While)
	if err != nil {
		return 0, false
	}
	return info.ModTime().Sub(f.start), true
}

// begun reports whether f has begun, elapsed after the world's start.
func (f *fault) begun(elapsed time.Duration) bool {
	at, known := f.begin()
	return known && elapsed >= at
}

// active reports whether f is in effect at a time after the world's start.
func (f *fault) active(elapsed time.Duration) bool {
	if !f.begun(elapsed) || f.For > 0 && elapsed-f.At >= f.For {
		return false
	}
	select {
	case <-f.healed:
		return false
	default:
		return true
	}
}

// openError returns the error with which a fault makes Open fail, or nil.
func (w *World) openError(elapsed time.Duration) error {
	for _, f := range *w.faults.Load() {
		if f.Kind == OpenFails && f.active(elapsed) {
			return f.err
		}
	}
	return nil
}

// count returns the number of GPUs: from the newest active fault of kind Devices, or else the world's.
func (w *World) count(elapsed time.Duration) int {
	n, since := w.gpus, time.Duration(-1)
	for _, f := range *w.faults.Load() {
		if f.Kind != Devices || !f.active(elapsed) {
			continue
		}
		if at, _ := f.begin(); at >= since {
			n, since = f.Count, at
		}
	}
	return n
}

var errReleased = errors.New("the simulated node was shut down")

// sampleError returns the error of Sample (or Open) while f is active.
func (f *Fault) sampleError() error {
	switch f.Kind {
	case Lost:
		return fmt.Errorf("simulated fault: %w", collector.ErrDeviceLost)
	case Stalled:
		return fmt.Errorf("simulated fault: %w", collector.ErrStalled)
	case Fails:
		return errors.New("simulated fault: calls fail")
	case OpenFails:
		return fmt.Errorf("open simulated node: %s: %w", cmp.Or(f.Message, "no driver"), collector.ErrNotLoaded)
	}
	return nil
}

// faultKeys lists the spec's keys of each kind of fault, except kind, at and while. A required key ends with "!".
var faultKeys = map[FaultKind]string{
	Hang:      "for device switch field",
	Lost:      "for device switch",
	Stalled:   "for device switch",
	Fails:     "for device switch",
	Absurd:    "for device switch field! value! rise label",
	Blank:     "for device switch field label",
	XID:       "device switch xid!",
	Health:    "for device switch watch! state! code",
	OpenFails: "for message",
	Devices:   "for devices!",
	Crash:     "for once",
	Abort:     "for once message",
	Exit:      "for once status",
	Spin:      "for once device switch",
	Leak:      "for once rate!",
	Garbage:   "for once",
}

// has reports whether faults of a kind have a key.
func (k FaultKind) has(key string) bool { return slices.Contains(strings.Fields(faultKeys[k]), key) }

func faultKinds() []string {
	var names []string
	for k := range faultKeys {
		names = append(names, string(k))
	}
	slices.Sort(names)
	return names
}
