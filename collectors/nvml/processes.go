//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
)

// processPart supplies the processes of a GPU and of its MIG devices: one block of columns each, see
// collector.AppendProcessColumns.
type processPart struct {
	cols     []collector.Column
	subjects []processSubject
	now      func() time.Time
	begin    time.Time
	meters   [numAsks]collector.Meter
}

// processSubject is a GPU or MIG device whose processes are listed.
type processSubject struct {
	*processQuery
	device int
	means  *busyMeans // nil if drivers do not report it: with MIG
	log    *zap.Logger
	state  [2]nvml.Return // last logged answers of lists and of samples
}

var _ part = (*processPart)(nil)

// newProcessPart makes the part for a GPU's processes. With MIG, the GPU lists the processes outside its instances, and
// a split GPU instance leaves its processes to its compute instances.
func newProcessPart(l *library, g *gpu, log *zap.Logger) *processPart {
	p := &processPart{now: time.Now, begin: time.Now()}
	for i := range p.meters {
		p.meters[i].Call = processCalls[i][0].symbol
	}
	p.addSubject(0, newProcessQuery(l, g.handle, g.mig, !g.mig), log.With(zap.String("device", g.device.ID)))
	for i, in := range g.instances {
		if in.ci >= 0 {
			p.addSubject(1+i, newProcessQuery(l, in.handle, false, false), log.With(zap.String("device", in.device.ID)))
		}
	}
	return p
}

func (p *processPart) addSubject(device int, q *processQuery, log *zap.Logger) {
	s := processSubject{device: device, processQuery: q, log: log}
	if q.busy != nil || q.busyOld != nil {
		s.means = new(busyMeans)
	}
	p.subjects = append(p.subjects, s)
	p.cols = collector.AppendProcessColumns(p.cols, device)
}

func (p *processPart) columns() []collector.Column { return p.cols }

// sample asks each subject in turn. A subject without a list is blank. A subject that does not answer has its own
// error.
func (p *processPart) sample(row []float64, due []bool) error {
	now := p.now()
	var errs error
	for i := range p.subjects {
		at := i * collector.ProcessWidth
		if !due[at] {
			continue
		}
		err := p.subjects[i].sample(row[at:at+collector.ProcessWidth], now, now.Sub(p.begin), &p.meters)
		if err != nil && ends(err) {
			return err
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

func (s *processSubject) sample(block []float64, now time.Time, up time.Duration, meters *[numAsks]collector.Meter) error {
	var since uint64
	if s.means != nil {
		since = s.means.begin(now, up)
	}
	s.ask(since, meters)
	lists, err := s.listed()
	if err != nil {
		return err
	}
	switch code := s.codes[askBusy]; {
	case s.means == nil:
	case isFatal(code):
		return fatal(code)
	case code == nvml.SUCCESS:
		s.means.addSamples(s.samples)
	case code == nvml.ERROR_NOT_FOUND:
		s.means.idle()
	}
	s.logState(lists)
	if lists != nvml.SUCCESS {
		collector.BlankProcesses(block)
		return nil //nolint:nilerr // the device answered: it has no list
	}
	for i := range s.found {
		if p := &s.found[i]; s.means != nil {
			p.Busy = s.means.mean(p.PID)
		}
	}
	collector.PutProcesses(block, s.count(), s.found)
	return nil
}

// listed summarises the answers of the lists. If one of them says that the GPU is lost, it is lost; otherwise the
// device answers if any list does.
func (s *processSubject) listed() (nvml.Return, error) {
	reason := nvml.ERROR_FUNCTION_NOT_FOUND
	answered := false
	for i := range numLists {
		switch code := s.codes[i]; {
		case isFatal(code):
			return code, fatal(code)
		case lost(code):
			return code, gpuError(processCalls[i][0].symbol, code)
		case code == nvml.SUCCESS:
			answered = true
		case i == listCompute:
			reason = code
		}
	}
	if answered {
		return nvml.SUCCESS, nil
	}
	switch reason {
	case nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION:
		return reason, nil
	}
	return reason, &collector.DeviceError{Device: s.device, Err: gpuError(processCalls[listCompute][0].symbol, reason)}
}

// count returns the number of processes, −1 if one of NVML's lists is missing.
func (q *processQuery) count() int {
	for i := range numLists {
		switch q.codes[i] {
		case nvml.SUCCESS, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND: // no processes of that kind
		default:
			return -1
		}
	}
	return len(q.found) + q.nameless
}

// logState logs when a device starts or stops listing its processes.
func (s *processSubject) logState(lists nvml.Return) {
	busy := s.codes[askBusy]
	if busy == nvml.ERROR_NOT_FOUND || s.means == nil {
		busy = nvml.SUCCESS
	}
	now := [2]nvml.Return{lists, busy}
	if now == s.state {
		return
	}
	s.state = now
	switch {
	case lists != nvml.SUCCESS:
		s.log.Info("cannot list processes", zap.Error(lists))
	case busy != nvml.SUCCESS:
		s.log.Info("listing processes without their utilization", zap.Error(busy))
	default:
		s.log.Info("listing processes")
	}
}

func (p *processPart) calls() []collector.CallCost {
	out := make([]collector.CallCost, numAsks)
	for i := range out {
		out[i] = p.meters[i].Cost()
	}
	return out
}

func (*processPart) close() {}

// processQuery lists the processes of a GPU or a MIG device. It allocates only when there are more processes than ever
// before. It is for one goroutine.
type processQuery struct {
	device  nvml.Device
	outside bool                     // skip processes in instances
	lists   [numLists]unsafe.Pointer // function addresses, nil if the library lacks them
	busy    unsafe.Pointer           // nvmlDeviceGetProcessesUtilizationInfo; nil if not used
	busyOld unsafe.Pointer           // nvmlDeviceGetProcessUtilization; nil if not used
	buf     []byte

	// The newest answers.
	codes    [numAsks]nvml.Return // ERROR_FUNCTION_NOT_FOUND if the library lacks it
	found    []collector.Process  // each once, however many lists have it; Busy is NaN
	nameless int                  // processes with PID 0, which are not in found
	samples  []busySample
}

// Layout of the structs that the functions fill, in bytes, from nvml.h.
const (
	// nvmlProcessInfo_v2_t, which _v2 and _v3 of the functions fill. Under the same name, drivers 535.43 to 535.86 fill
	// eight more bytes per entry in _v3, and there were reports of eight bytes less:
	// https://github.com/XuehaiPan/nvitop/pull/79 and 226. go-nvml's buffers are too short for the longer entries.
	infoMemory, infoInstance, infoSize = 8, 16, 24
	infoShort, infoLong                = infoInstance, infoSize + 8

	samplePID, sampleSM, sampleSize = 8, 12, 40 // nvmlProcessUtilizationInfo_v1_t

	oldStamp, oldSM, oldSize = 8, 16, 32 // nvmlProcessUtilizationSample_t; the PID comes first

	entrySize = sampleSize // the largest entry
	filler    = 0xa5
)

const (
	usualProcesses = 128
	maxProcesses   = 4096
)

// newProcessQuery returns a query for a GPU or MIG device. outside skips the processes in instances; busy also reads
// utilization.
func newProcessQuery(l *library, d nvml.Device, outside, busy bool) *processQuery {
	q := &processQuery{device: d, outside: outside, buf: make([]byte, usualProcesses*entrySize)}
	for i := range q.lists {
		q.lists[i] = l.firstOf(processCalls[i])
	}
	if busy {
		q.busy = l.firstOf(processCalls[askBusy][:1])
		q.busyOld = l.firstOf(processCalls[askBusy][1:])
	}
	return q
}

func (q *processQuery) room() int { return len(q.buf) / entrySize }

// grow makes room for n entries. It returns false at the maximum.
func (q *processQuery) grow(n int) bool {
	n = min(max(n+n/4, 2*q.room()), maxProcesses)
	if n <= q.room() {
		return false
	}
	q.buf = make([]byte, n*entrySize)
	return true
}

// ask reads all lists, then utilization samples newer than since. It stops at a fatal answer. It may hang when the
// driver does.
func (q *processQuery) ask(since uint64, meters *[numAsks]collector.Meter) {
	q.found, q.samples, q.nameless = q.found[:0], q.samples[:0], 0
	for i := range q.codes {
		q.codes[i] = nvml.ERROR_FUNCTION_NOT_FOUND
	}
	for list, f := range q.lists {
		if f == nil {
			continue
		}
		count, code := q.fill(&meters[list], func(room int) (int, nvml.Return) { return listProcesses(f, q.device, q.buf, room) })
		q.codes[list] = code
		if isFatal(code) {
			return
		}
		if code == nvml.SUCCESS {
			q.readList(list, count)
		}
	}
	if q.busy != nil {
		count, code := q.fill(&meters[askBusy], func(room int) (int, nvml.Return) { return listBusy(q.busy, q.device, since, q.buf, room) })
		q.codes[askBusy] = code
		for i := range count {
			e := q.buf[i*sampleSize:]
			q.addSample(binary.NativeEndian.Uint64(e), binary.NativeEndian.Uint32(e[samplePID:]), binary.NativeEndian.Uint32(e[sampleSM:]))
		}
		if q.busyOld == nil || !never(code) {
			return
		}
		q.busy = nil // permanently: this driver or device does not support it
	}
	if q.busyOld != nil {
		start := time.Now()
		q.codes[askBusy] = q.askOld(since)
		meters[askBusy].Record(1, start)
	}
}

// askOld first asks for the number of samples, as this function requires.
func (q *processQuery) askOld(since uint64) nvml.Return {
	count, code := listOldBusy(q.busyOld, q.device, since, nil, 0)
	switch {
	case code != nvml.ERROR_INSUFFICIENT_SIZE:
		return code
	case count == 0:
		return nvml.ERROR_NOT_FOUND
	case count > q.room() && !q.grow(min(count, maxProcesses)), count > q.room():
		return nvml.ERROR_INSUFFICIENT_SIZE
	}
	count, code = listOldBusy(q.busyOld, q.device, since, q.buf, count)
	switch {
	case code != nvml.SUCCESS:
		return code
	case count > q.room():
		return nvml.ERROR_INSUFFICIENT_SIZE
	}
	for i := range count {
		e := q.buf[i*oldSize:]
		q.addSample(binary.NativeEndian.Uint64(e[oldStamp:]), binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[oldSM:]))
	}
	return code
}

func (q *processQuery) addSample(stamp uint64, pid, percent uint32) {
	q.samples = append(q.samples, busySample{pid: int(pid), percent: float64(percent), stamp: int64(stamp)})
}

// fill makes a call that fills the buffer, and repeats it with a larger buffer if needed. It returns the number of
// entries.
func (q *processQuery) fill(m *collector.Meter, call func(room int) (int, nvml.Return)) (int, nvml.Return) {
	for {
		for i := range q.buf {
			q.buf[i] = filler
		}
		start := time.Now()
		count, code := call(q.room())
		m.Record(1, start)
		switch {
		case code == nvml.ERROR_INSUFFICIENT_SIZE && q.grow(min(count, maxProcesses)):
		case code == nvml.SUCCESS && count > q.room():
			return 0, nvml.ERROR_INSUFFICIENT_SIZE
		case code != nvml.SUCCESS:
			return 0, code
		default:
			return count, code
		}
	}
}

// readList reads the processes of a list. The driver's version is not known here, so the last byte that differs from
// the filler shows how long the driver's entries are.
func (q *processQuery) readList(list, count int) {
	end := count * infoLong
	for end > 0 && q.buf[end-1] == filler {
		end--
	}
	size := infoLong
	switch {
	case end <= count*infoShort:
		size = infoShort
	case end <= count*infoSize:
		size = infoSize
	}
	for i := range count {
		e := q.buf[i*size:]
		pid := binary.NativeEndian.Uint32(e)
		inInstance := size > infoShort && binary.NativeEndian.Uint32(e[infoInstance:]) != noInstance
		switch {
		case q.outside && inInstance:
		case pid == 0:
			q.nameless++
		default:
			q.addProcess(int(pid), known64(binary.NativeEndian.Uint64(e[infoMemory:])), list)
		}
	}
}

// addProcess adds a process or merges another list's entry of it: each list reports the whole process.
func (q *processQuery) addProcess(pid int, memory float64, list int) {
	i := slices.IndexFunc(q.found, func(p collector.Process) bool { return p.PID == pid })
	if i < 0 {
		i, q.found = len(q.found), append(q.found, collector.Process{PID: pid, Memory: memory, Busy: math.NaN()})
	}
	p := &q.found[i]
	if math.IsNaN(p.Memory) || memory > p.Memory {
		p.Memory = memory
	}
	p.Flags |= [numLists]collector.ProcessFlags{listCompute: collector.ProcessCompute, listGraphics: collector.ProcessGraphics, listMPS: collector.ProcessMPS}[list]
}
