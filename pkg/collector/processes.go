package collector

import (
	"fmt"
	"math"
	"slices"

	"warpgauge/pkg/field"
)

// How the processes on a device travel in rows of numbers.
// What reads them (a collector whose sources supply nothing else) and what makes
// use of them (pkg/owner) share it, and nothing else.
//
// Each device of such a source has a block of ProcessWidth columns, as AppendProcessColumns
// makes it: one cell with the number of processes that the library counts, then
// ProcessSlots slots of four cells. Cells are NaN where there is nothing to say. A
// Sample writes the block of every device that it could ask, whole, with PutProcesses, or
// with BlankProcesses where the library answered without a list (no permission, not
// supported). A device that could not be asked keeps its cells and has its
// DeviceError: then its stamp in the ring says how old they are.
//
// A process is in one slot per device, however many lists of the library
// (compute, graphics, MPS) name it, so that nothing is counted twice. On a board
// with instances, each instance has its own block, where the library tells its
// processes, and the board lists those that are in none of them.
//
// The fields of the columns are numbers beyond the catalogue (FirstProcessField), which
// no CSV can name. A session reads columns of fields that are not in its list
// at its own interval, and knows no plausible range for them: GetProcesses does. Rows are
// wide, so a session of such sources should keep few of them
// (session.Options.RingSpan): only the newest is read.

// ProcessSlots is how many processes a row holds for each device. Where there are more,
// PutProcesses keeps those that use the most memory and the count says that some are missing.
const ProcessSlots = 64

// The cells of a slot.
const (
	cellPID    = iota // as the kernel's initial PID namespace numbers it
	cellMemory        // bytes
	cellBusy          // percent
	cellFlags
	slotCells
)

// ProcessWidth is how many columns a device has.
const ProcessWidth = 1 + ProcessSlots*slotCells

// FirstProcessField is the field of the count; that of cell c of slot s is FirstProcessField +
// 1 + 4s + c.
const FirstProcessField field.ID = 60000

// ProcessFlags say more about a process.
type ProcessFlags uint8

// What is known of a process. A process can be on several lists.
const (
	ProcessCompute   ProcessFlags = 1 << iota // has a compute context
	ProcessGraphics                           // has a graphics context
	ProcessMPS                                // is a client of the MPS server
	ProcessOccupancy                          // Busy is the share of compute units that its waves occupy (AMD), not the share of time

	allFlags = ProcessCompute | ProcessGraphics | ProcessMPS | ProcessOccupancy
)

// Process is what a library tells of one process on one device.
type Process struct {
	// PID is the process's number in the PID namespace of the driver, which is
	// the machine's first one.
	PID    int
	Memory float64 // of the device, bytes; NaN unknown
	// Busy is how much of the device it uses, in percent of the whole device:
	// the part of the time in which its kernels ran (NVIDIA: SM utilisation), or
	// of the compute units (ProcessOccupancy). NaN unknown; 0 only where the library was
	// asked, answers for the device and says nothing else of this process.
	Busy  float64
	Flags ProcessFlags
}

// AppendProcessColumns appends the columns of a device, which is an index into
// Source.Devices.
func AppendProcessColumns(to []Column, device int) []Column {
	for i := range field.ID(ProcessWidth) {
		to = append(to, Column{Device: device, Field: FirstProcessField + i})
	}
	return to
}

// PutProcesses writes what the library tells of a device into its block.
// Shape: len(block) = ProcessWidth. count is how many processes the library counts,
// len(list) or more, or negative where some may be missing and it does not say how
// many (one of several lists failed); list may be sorted by PutProcesses and is not kept. It
// allocates nothing.
func PutProcesses(block []float64, count int, list []Process) {
	if len(list) > ProcessSlots {
		slices.SortFunc(list, byMemory)
		list = list[:ProcessSlots]
	}
	block[0] = float64(count)
	if count < 0 {
		block[0] = math.NaN()
	}
	for i := range list {
		p, cells := &list[i], slot(block, i)
		cells[cellPID] = float64(p.PID)
		cells[cellMemory] = p.Memory
		cells[cellBusy] = p.Busy
		cells[cellFlags] = float64(p.Flags)
	}
	fill(block[1+len(list)*slotCells:])
}

// BlankProcesses writes that nothing is known of the processes of a device.
// Shape: len(block) = ProcessWidth.
func BlankProcesses(block []float64) { fill(block) }

// GetProcesses appends the processes of a block to list. count is how many the library
// counts, negative where it does not say. Whatever the cells hold, the result is
// in range: a slot that is none is left out, a value that cannot be is NaN. It
// allocates only what list lacks.
func GetProcesses(list []Process, block []float64) (out []Process, count int) {
	for i := range ProcessSlots {
		cells := slot(block, i)
		pid := cells[cellPID]
		if !(pid >= 1 && pid <= mostPID) || pid != math.Trunc(pid) {
			continue
		}
		list = append(list, Process{
			PID:    int(pid),
			Memory: within(cells[cellMemory], mostMemory),
			Busy:   within(cells[cellBusy], 100),
			Flags:  flags(cells[cellFlags]),
		})
	}
	count = -1
	if v := block[0]; v >= 0 && v <= mostPID {
		count = int(v)
	}
	return list, count
}

// ProcessBlocks returns where the block of each device begins in a row, -1 for a device
// that has none. The columns may have come from another process: it is an error
// if they are not what AppendProcessColumns makes.
func ProcessBlocks(devices int, columns []Column) ([]int, error) {
	starts := make([]int, devices)
	for i := range starts {
		starts[i] = -1
	}
	if len(columns)%ProcessWidth != 0 {
		return nil, fmt.Errorf("read columns of processes: %d are no multiple of %d", len(columns), ProcessWidth)
	}
	for i := range columns {
		c, start := &columns[i], i-i%ProcessWidth
		if int(c.Field) != int(FirstProcessField)+i-start || c.Device != columns[start].Device || len(c.Labels) > 0 {
			return nil, fmt.Errorf("read columns of processes: column %d is of field %d and device %d", i, c.Field, c.Device)
		}
		if i == start {
			if c.Device < 0 || c.Device >= devices || starts[c.Device] >= 0 {
				return nil, fmt.Errorf("read columns of processes: device %d at column %d is out of range or there twice", c.Device, i)
			}
			starts[c.Device] = start
		}
	}
	return starts, nil
}

// What can be: Linux's PID_MAX_LIMIT (include/linux/threads.h), and more memory
// than boards have.
const (
	mostPID    = 1 << 22
	mostMemory = 1 << 50
)

func slot(block []float64, i int) []float64 { return block[1+i*slotCells:][:slotCells] }

func fill(cells []float64) {
	for i := range cells {
		cells[i] = math.NaN()
	}
}

func within(v, most float64) float64 {
	if v >= 0 && v <= most {
		return v
	}
	return math.NaN()
}

func flags(v float64) ProcessFlags {
	if v >= 0 && v <= float64(allFlags) {
		return ProcessFlags(v)
	}
	return 0
}

// byMemory sorts the greatest first, what is unknown last, and else by number,
// so that the choice does not change from row to row.
func byMemory(a, b Process) int {
	switch {
	case a.Memory > b.Memory, !math.IsNaN(a.Memory) && math.IsNaN(b.Memory):
		return -1
	case b.Memory > a.Memory, !math.IsNaN(b.Memory) && math.IsNaN(a.Memory):
		return 1
	}
	return a.PID - b.PID
}
