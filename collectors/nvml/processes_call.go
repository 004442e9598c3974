//go:build linux && cgo

package nvml

/*
#include "processes.h"
*/
import "C"

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/dl"
)

// The calls are numbered as in processes.h: an index out of range does not compile.
var (
	_ = [1]struct{}{}[listCompute-C.WG_COMPUTE]
	_ = [1]struct{}{}[listGraphics-C.WG_GRAPHICS]
	_ = [1]struct{}{}[listMPS-C.WG_MPS]
	_ = [1]struct{}{}[askBusy-C.WG_BUSY]
	_ = [1]struct{}{}[numAsks-C.WG_PROCESS_CALLS]
)

// processQuery asks for the processes of a GPU or a MIG device, in one crossing.
// It allocates when there are more processes than ever before. For one goroutine.
type processQuery struct {
	c       *C.struct_wg_processes
	found   []C.struct_wg_process
	samples []C.struct_wg_busy
	answer  C.struct_wg_process_answer
}

// newProcessQuery makes one of an nvmlDevice_t. outside asks for the processes
// alone that are in no instance of it, busy also for how busy they are.
func newProcessQuery(lib *dl.Library, raw uintptr, outside, busy bool) (*processQuery, error) {
	leaveOut := C.int(0)
	if outside {
		leaveOut = 1
	}
	var newer, older []generation
	if busy {
		newer, older = processCalls[askBusy][:1], processCalls[askBusy][1:]
	}
	c := C.wg_processes_new(C.uint64_t(raw), leaveOut,
		firstOf(lib, processCalls[listCompute][:]), firstOf(lib, processCalls[listGraphics][:]), firstOf(lib, processCalls[listMPS][:]),
		firstOf(lib, newer), firstOf(lib, older))
	if c == nil {
		return nil, errNoMemory
	}
	const usual = 64
	return &processQuery{c: c, found: make([]C.struct_wg_process, usual), samples: make([]C.struct_wg_busy, usual)}, nil
}

// ask asks, and again with more room as long as there is more to tell. It may hang
// where the driver does.
func (q *processQuery) ask(since uint64) {
	var spent C.struct_wg_process_answer
	for {
		C.wg_processes_ask(q.c, C.uint64_t(since), &q.found[0], C.uint32_t(len(q.found)), &q.samples[0], C.uint32_t(len(q.samples)), &q.answer)
		for i := range spent.made {
			spent.made[i] += q.answer.made[i]
			spent.nanos[i] += q.answer.nanos[i]
		}
		if q.answer.more == 0 || len(q.found) >= C.WG_MOST_PROCESSES {
			q.answer.made, q.answer.nanos = spent.made, spent.nanos
			return
		}
		q.found = make([]C.struct_wg_process, 4*len(q.found))
		q.samples = make([]C.struct_wg_busy, 4*len(q.samples))
	}
}

// code is what NVML answered last to one of the calls.
func (q *processQuery) code(call int) nvml.Return { return nvml.Return(q.answer.code[call]) }

// spent is what one of the calls has cost in the newest run.
func (q *processQuery) spent(call int) (count, nanos uint64) {
	return uint64(q.answer.made[call]), uint64(q.answer.nanos[call])
}

// processes is how many process returns. nameless are those besides whose number
// is not known.
func (q *processQuery) processes() (n, nameless int) {
	return int(q.answer.processes), int(q.answer.nameless)
}

// process is what lists tell of one: bit 1 << list is set for each that names it.
// memory is NaN where it is not available.
func (q *processQuery) process(i int) (pid int, memory float64, lists uint) {
	p := &q.found[i]
	return int(p.pid), float64(p.memory), uint(p.lists)
}

// appendSamples appends the samples.
func (q *processQuery) appendSamples(to []busySample) []busySample {
	for i := range q.samples[:q.answer.samples] {
		s := &q.samples[i]
		to = append(to, busySample{pid: int(s.pid), percent: float64(s.percent), stamp: int64(s.stamp)})
	}
	return to
}

func (q *processQuery) close() {
	C.wg_processes_free(q.c)
	q.c = nil
}
