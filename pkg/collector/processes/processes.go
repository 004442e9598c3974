// Package processes is how the processes on a device travel in rows of numbers.
// What reads them (a collector whose sources supply nothing else) and what makes
// use of them (pkg/owner) share it, and nothing else.
//
// Each device of such a source has a block of Width columns, as AppendColumns
// makes it: one cell with the number of processes that the library counts, then
// Slots slots of four cells. Cells are NaN where there is nothing to say. A
// Sample writes the block of every device that it could ask, whole, with Put, or
// with Blank where the library answered without a list (no permission, not
// supported). A device that could not be asked keeps its cells and has its
// DeviceError: then its stamp in the ring says how old they are.
//
// A process is in one slot per device, however many lists of the library
// (compute, graphics, MPS) name it, so that nothing is counted twice. On a board
// with instances, each instance has its own block, where the library tells its
// processes, and the board lists those that are in none of them.
//
// The fields of the columns are numbers beyond the catalogue (FirstField), which
// no CSV can name. A session reads columns of fields that are not in its list
// at its own interval, and knows no plausible range for them: Get does. Rows are
// wide, so a session of such sources should keep few of them
// (session.Options.RingSpan): only the newest is read.
package processes

import (
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Slots is how many processes a row holds for each device. Where there are more,
// Put keeps those that use the most memory and the count says that some are missing.
const Slots = 64

// The cells of a slot.
const (
	cellPID    = iota // as the kernel's initial PID namespace numbers it
	cellMemory        // bytes
	cellBusy          // percent
	cellFlags
	slotCells
)

// Width is how many columns a device has.
const Width = 1 + Slots*slotCells

// FirstField is the field of the count; that of cell c of slot s is FirstField +
// 1 + 4s + c.
const FirstField field.ID = 60000

// Flags say more about a process.
type Flags uint8

// What is known of a process. A process can be on several lists.
const (
	Compute   Flags = 1 << iota // has a compute context
	Graphics                    // has a graphics context
	MPS                         // is a client of the MPS server
	Occupancy                   // Busy is the share of compute units that its waves occupy (AMD), not the share of time

	allFlags = Compute | Graphics | MPS | Occupancy
)

// Process is what a library tells of one process on one device.
type Process struct {
	// PID is the process's number in the PID namespace of the driver, which is
	// the machine's first one.
	PID    int
	Memory float64 // of the device, bytes; NaN unknown
	// Busy is how much of the device it uses, in percent of the whole device:
	// the part of the time in which its kernels ran (NVIDIA: SM utilisation), or
	// of the compute units (Occupancy). NaN unknown; 0 only where the library was
	// asked, answers for the device and says nothing else of this process.
	Busy  float64
	Flags Flags
}

// AppendColumns appends the columns of a device, which is an index into
// Source.Devices.
func AppendColumns(to []collector.Column, device int) []collector.Column {
	for i := range field.ID(Width) {
		to = append(to, collector.Column{Device: device, Field: FirstField + i})
	}
	return to
}
