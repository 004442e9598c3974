package collector

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"warpgauge/pkg/field"
)

// This file encodes the processes on a device as numbers in a row. Process collectors, whose sources have no other
// columns, write them, and pkg/owner reads them.
//
// Each device of such a source has a block of ProcessWidth columns, which AppendProcessColumns makes: one cell with the
// library's number of processes, then ProcessSlots slots of four cells. Cells without a value are NaN. Sample writes
// the whole block of every device that it could read: with PutProcesses, or with BlankProcesses if the library answered
// without a list (no permission, not supported). A device that could not be read keeps its cells and has a DeviceError;
// its stamp in the ring shows how old they are.
//
// A process has one slot per device, even if several lists of the library (compute, graphics, MPS) contain it. On a board
// with instances, each instance has its own block if the library reports its processes. The board's block then has the
// processes outside its instances.
//
// The columns' field IDs are beyond the catalogue (FirstProcessField), so no CSV can name them. A session reads columns
// whose fields are not in its list at its own interval and without a plausible range; GetProcesses checks the values.
// Rows are wide and only the newest is read, so a session of such sources should keep few (session.Options.RingSpan).

// ProcessSlots is the maximum number of processes per device in a row. PutProcesses keeps the processes with the most
// memory, and the count shows that some are missing.
const ProcessSlots = 64

// The cells of a slot.
const (
	cellPID    = iota // in the kernel's initial PID namespace
	cellMemory        // bytes
	cellBusy          // percent
	cellFlags
	slotCells
)

// ProcessWidth is the number of columns per device.
const ProcessWidth = 1 + ProcessSlots*slotCells

// FirstProcessField is the field of the count. Cell c of slot s has field FirstProcessField + 1 + 4s + c.
const FirstProcessField field.ID = 60000

// ProcessFlags are further properties of a process.
type ProcessFlags uint8

// Properties of a process. A process may have several.
const (
	ProcessCompute   ProcessFlags = 1 << iota // has a compute context
	ProcessGraphics                           // has a graphics context
	ProcessMPS                                // is a client of the MPS server
	ProcessOccupancy                          // Busy is a share of compute units instead of time

	allFlags = ProcessCompute | ProcessGraphics | ProcessMPS | ProcessOccupancy
)

// Process is a library's report of one process on one device.
type Process struct {
	// PID is the process ID in the driver's PID namespace, the machine's initial one.
	PID    int
	Memory float64 // used on the device, bytes; NaN means unknown
	// Busy is the process's usage in percent of the whole device: the share of time in which its kernels ran (NVIDIA:
	// SM utilisation), or of the compute units (ProcessOccupancy). NaN means unknown; 0 requires that the library
	// reports usage for the device and nothing for this process.
	Busy  float64
	Flags ProcessFlags
}

// AppendProcessColumns appends the columns of a device. device is its index in Source.Devices.
func AppendProcessColumns(to []Column, device int) []Column {
	for i := range field.ID(ProcessWidth) {
		to = append(to, Column{Device: device, Field: FirstProcessField + i})
	}
	return to
}

// PutProcesses writes the processes of a device into its block. Shape: len(block) = ProcessWidth. count is the
// library's number of processes, at least len(list), or negative if list may be incomplete (one of several library lists
// failed). PutProcesses may sort list and does not keep it. It allocates nothing.
func PutProcesses(block []float64, count int, list []Process) {
	if len(list) > ProcessSlots {
		// In descending order, unknown memory last, and then by PID, so that every row keeps the same processes.
		slices.SortFunc(list, func(a, b Process) int { return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.PID, b.PID)) })
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

// BlankProcesses marks the processes of a device as unknown. Shape: len(block) = ProcessWidth.
func BlankProcesses(block []float64) { fill(block) }

// GetProcesses appends the processes of a block to list. count is the library's number, negative if unknown. The result
// is in range for any cells: GetProcesses drops invalid slots and turns invalid values into NaN. It allocates only to
// grow list.
func GetProcesses(list []Process, block []float64) (out []Process, count int) {
	for i := range ProcessSlots {
		cells := slot(block, i)
		pid := cells[cellPID]
		if !(pid >= 1 && pid <= maxPID) || pid != math.Trunc(pid) {
			continue
		}
		list = append(list, Process{
			PID:    int(pid),
			Memory: within(cells[cellMemory], maxMemory),
			Busy:   within(cells[cellBusy], 100),
			Flags:  flags(cells[cellFlags]),
		})
	}
	count = -1
	if v := block[0]; v >= 0 && v <= maxPID {
		count = int(v)
	}
	return list, count
}

// ProcessBlocks returns the start of each device's block in a row, or -1 for a device without a block. The columns may
// come from another process, so ProcessBlocks returns an error if AppendProcessColumns would not return them.
func ProcessBlocks(devices int, columns []Column) ([]int, error) {
	starts := slices.Repeat([]int{-1}, devices)
	if len(columns)%ProcessWidth != 0 {
		return nil, fmt.Errorf("read columns of processes: %d is not a multiple of %d", len(columns), ProcessWidth)
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

// Plausible maxima: Linux's PID_MAX_LIMIT (include/linux/threads.h), and more memory than any board has.
const (
	maxPID    = 1 << 22
	maxMemory = 1 << 50
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
