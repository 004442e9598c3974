package collector

import (
	"errors"
	"fmt"
)

// Errors that callers test for.
var (
	ErrNotBuiltIn     = errors.New("not built into this binary")  // for example without cgo
	ErrNotLoaded      = errors.New("library or driver not found") // from Open
	ErrNoDevices      = errors.New("no device found")             // from Open
	ErrDeviceLost     = errors.New("device lost")                 // fell off the bus, was unbound, reset
	ErrStalled        = errors.New("stalled")                     // the vendor's time stamps do not advance, or a call of Open has not returned yet
	ErrHung           = errors.New("hung")                        // a call of Open for the device, for too long
	ErrColumnsChanged = errors.New("devices or columns changed")  // open again; with ErrNotLoaded, the connection is lost

	// ErrMismatch means that the library and its daemon have incompatible versions. From Open.
	ErrMismatch = errors.New("library and daemon are of different versions")

	// ErrNothingToRead means that the collector and its devices supply none of the list's fields, so that nothing stays
	// open. From Open.
	ErrNothingToRead = errors.New("nothing to read")

	// ErrOutdated means that the driver was reloaded or upgraded and no longer matches the open library. The collector
	// must be closed before it can be opened again. If a process cannot replace the library, a new process is needed: a
	// collector in a child process gets a new process at once. From Open, Sample and Rescan.
	ErrOutdated = errors.New("the library no longer fits the driver")
)

// DeviceError says which device of a source an error from Sample concerns.
type DeviceError struct {
	Device int // index into Source.Devices
	Err    error
}

func (e *DeviceError) Error() string { return fmt.Sprintf("sample device %d: %v", e.Device, e.Err) }
func (e *DeviceError) Unwrap() error { return e.Err }
