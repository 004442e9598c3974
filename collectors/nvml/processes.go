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
	columnList
	subjects []processSubject
	now      func() time.Time
	begin    time.Time
	meters   [numAsks]*collector.Meter
}

// processSubject lists the processes of a GPU or MIG device. It allocates only when there are more processes than ever
// before.
type processSubject struct {
	device  int // index in the source's devices
	handle  nvml.Device
	outside bool                     // skip processes in instances
	lists   [numLists]unsafe.Pointer // function addresses, nil if the library lacks them
	busy    unsafe.Pointer           // nvmlDeviceGetProcessesUtilizationInfo; nil if not used
	buf     []byte
	means   *busyMeans // nil if drivers do not report it: with MIG
	log     *zap.Logger
	state   [2]nvml.Return // answers of lists and of samples, for the log

	// The newest answers.
	codes    [numAsks]nvml.Return // ERROR_FUNCTION_NOT_FOUND if the library lacks it
	found    []collector.Process  // each once, however many lists have it; Busy is NaN
	nameless int                  // processes with PID 0, which are not in found
	samples  []busySample
}

// newProcessPart makes the part for a GPU's processes. With MIG, the GPU lists the processes outside its instances, and
// a split GPU instance leaves its processes to its compute instances.
func newProcessPart(l *library, g *gpu, log *zap.Logger, c *costs) *processPart {
	p := &processPart{now: time.Now, begin: time.Now()}
	for i := range p.meters {
		p.meters[i] = c.meter(processCalls[i][0].symbol)
	}
	p.addSubject(l, processSubject{handle: g.handle, outside: g.mig, log: log.With(zap.String("device", g.device.ID))}, !g.mig)
	for i, in := range g.instances {
		if in.ci >= 0 {
			p.addSubject(l, processSubject{device: 1 + i, handle: in.handle, log: log.With(zap.String("device", in.device.ID))}, false)
		}
	}
	return p
}

// addSubject looks a subject's functions up. busy also reads utilization.
func (p *processPart) addSubject(l *library, s processSubject, busy bool) {
	s.buf = make([]byte, usualProcesses*entrySize)
	for i := range s.lists {
		s.lists[i] = l.firstOf(processCalls[i])
	}
	if busy {
		s.busy = l.firstOf(processCalls[askBusy])
	}
	if s.busy != nil {
		s.means = new(busyMeans)
	}
	p.subjects = append(p.subjects, s)
	p.cols = collector.AppendProcessColumns(p.cols, s.device)
}

// sample samples each subject in turn. A subject without a list is blank. A subject that does not answer has its own error.
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

func (s *processSubject) sample(block []float64, now time.Time, up time.Duration, meters *[numAsks]*collector.Meter) error {
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
		return fatal(processCalls[askBusy][0].symbol, code)
	case code == nvml.SUCCESS:
		s.means.addSamples(s.samples)
	case code == nvml.ERROR_NOT_FOUND:
		s.means.idle()
	}
	logChange(s.log, &s.state[0], lists, "processes")
	if busy := s.codes[askBusy]; s.means != nil && busy != nvml.ERROR_NOT_FOUND {
		logChange(s.log, &s.state[1], busy, "utilization of processes")
	}
	if lists != nvml.SUCCESS {
		collector.BlankProcesses(block)
		return nil //nolint:nilerr // the device answered that it has no list
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
		case lost(code), isFatal(code):
			return code, fatal(processCalls[i][0].symbol, code)
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
func (s *processSubject) count() int {
	for i := range numLists {
		switch s.codes[i] {
		case nvml.SUCCESS, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND: // no processes of that kind
		default:
			return -1
		}
	}
	return len(s.found) + s.nameless
}

// Layout of the structs that the functions fill, in bytes, from nvml.h.
const (
	// nvmlProcessInfo_v2_t, which _v2 and _v3 of the functions fill. Under the same name, drivers 535.43 to 535.86 fill
	// eight more bytes per entry in _v3, and there were reports of eight bytes less:
	// https://github.com/XuehaiPan/nvitop/pull/79 and 226. go-nvml's buffers are too short for the longer entries.
	infoMemory, infoInstance, infoSize = 8, 16, 24
	infoShort, infoLong                = infoInstance, infoSize + 8

	samplePID, sampleSM, sampleSize = 8, 12, 40 // nvmlProcessUtilizationInfo_v1_t

	entrySize = sampleSize // the largest entry
	filler    = 0xa5
)

const (
	usualProcesses = 128
	maxProcesses   = 4096
)

func (s *processSubject) room() int { return len(s.buf) / entrySize }

// grow makes room for n entries. It returns false at the maximum.
func (s *processSubject) grow(n int) bool {
	n = min(max(n+n/4, 2*s.room()), maxProcesses)
	if n <= s.room() {
		return false
	}
	s.buf = make([]byte, n*entrySize)
	return true
}

// ask reads all lists, then utilization samples newer than since. It stops at a fatal answer. It may hang when the
// driver does.
func (s *processSubject) ask(since uint64, meters *[numAsks]*collector.Meter) {
	s.found, s.samples, s.nameless = s.found[:0], s.samples[:0], 0
	for i := range s.codes {
		s.codes[i] = nvml.ERROR_FUNCTION_NOT_FOUND
	}
	for list, f := range s.lists {
		if f == nil {
			continue
		}
		count, code := s.fill(meters[list], func(room int) (int, nvml.Return) { return listProcesses(f, s.handle, s.buf, room) })
		s.codes[list] = code
		if isFatal(code) {
			return
		}
		if code == nvml.SUCCESS {
			s.readList(list, count)
		}
	}
	if s.busy == nil {
		return
	}
	count, code := s.fill(meters[askBusy], func(room int) (int, nvml.Return) { return listBusy(s.busy, s.handle, since, s.buf, room) })
	s.codes[askBusy] = code
	for i := range count {
		e := s.buf[i*sampleSize:]
		pid, percent := binary.NativeEndian.Uint32(e[samplePID:]), binary.NativeEndian.Uint32(e[sampleSM:])
		s.samples = append(s.samples, busySample{pid: int(pid), percent: float64(percent), stamp: int64(binary.NativeEndian.Uint64(e))})
	}
}

// fill makes a call that fills the buffer, and repeats it with a larger buffer if needed. It returns the number of entries.
func (s *processSubject) fill(m *collector.Meter, call func(room int) (int, nvml.Return)) (int, nvml.Return) {
	for {
		for i := range s.buf {
			s.buf[i] = filler
		}
		start := m.Begin()
		count, code := call(s.room())
		m.Record(1, start)
		switch {
		case code == nvml.ERROR_INSUFFICIENT_SIZE && s.grow(min(count, maxProcesses)):
		case code == nvml.SUCCESS && count > s.room():
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
func (s *processSubject) readList(list, count int) {
	end := count * infoLong
	for end > 0 && s.buf[end-1] == filler {
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
		e := s.buf[i*size:]
		pid := binary.NativeEndian.Uint32(e)
		inInstance := size > infoShort && binary.NativeEndian.Uint32(e[infoInstance:]) != noInstance
		switch {
		case s.outside && inInstance:
		case pid == 0:
			s.nameless++
		default:
			s.addProcess(int(pid), known64(binary.NativeEndian.Uint64(e[infoMemory:])), list)
		}
	}
}

// addProcess adds a process or merges another list's entry of it: each list reports the whole process.
func (s *processSubject) addProcess(pid int, memory float64, list int) {
	i := slices.IndexFunc(s.found, func(p collector.Process) bool { return p.PID == pid })
	if i < 0 {
		i, s.found = len(s.found), append(s.found, collector.Process{PID: pid, Memory: memory, Busy: math.NaN()})
	}
	p := &s.found[i]
	if math.IsNaN(p.Memory) || memory > p.Memory {
		p.Memory = memory
	}
	p.Flags |= [numLists]collector.ProcessFlags{listCompute: collector.ProcessCompute, listGraphics: collector.ProcessGraphics, listMPS: collector.ProcessMPS}[list]
}
