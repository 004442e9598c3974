package processes

import (
	"fmt"
	"math"
	"slices"

	"warpgauge/pkg/collector"
)

// Put writes what the library tells of a device into its block.
// Shape: len(block) = Width. count is how many processes the library counts,
// len(list) or more, or negative where some may be missing and it does not say how
// many (one of several lists failed); list may be sorted by Put and is not kept. It
// allocates nothing.
func Put(block []float64, count int, list []Process) {
	if len(list) > Slots {
		slices.SortFunc(list, byMemory)
		list = list[:Slots]
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

// Blank writes that nothing is known of the processes of a device.
// Shape: len(block) = Width.
func Blank(block []float64) { fill(block) }

// Get appends the processes of a block to list. count is how many the library
// counts, negative where it does not say. Whatever the cells hold, the result is
// in range: a slot that is none is left out, a value that cannot be is NaN. It
// allocates only what list lacks.
func Get(list []Process, block []float64) (out []Process, count int) {
	for i := range Slots {
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

// Blocks returns where the block of each device begins in a row, -1 for a device
// that has none. The columns may have come from another process: it is an error
// if they are not what AppendColumns makes.
func Blocks(devices int, columns []collector.Column) ([]int, error) {
	starts := make([]int, devices)
	for i := range starts {
		starts[i] = -1
	}
	if len(columns)%Width != 0 {
		return nil, fmt.Errorf("read columns of processes: %d are no multiple of %d", len(columns), Width)
	}
	for i := range columns {
		c, start := &columns[i], i-i%Width
		if int(c.Field) != int(FirstField)+i-start || c.Device != columns[start].Device || len(c.Labels) > 0 {
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

func flags(v float64) Flags {
	if v >= 0 && v <= float64(allFlags) {
		return Flags(v)
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
