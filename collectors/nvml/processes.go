//go:build linux && cgo

package nvml

import (
	"errors"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/processes"
)

// processPart supplies the processes of a GPU and of its MIG devices: a block of
// columns for each, see processes.AppendColumns.
type processPart struct {
	cols     []collector.Column
	subjects []processSubject
	now      func() time.Time
	begin    time.Time
	meters   [numAsks]meterPair
}

// processSubject is what has processes: a GPU, or a MIG device.
type processSubject struct {
	device int
	query  *processQuery
	busy   *busyMeans // nil where drivers do not tell: with MIG
	log    *zap.Logger
	told   [2]nvml.Return // what was logged last of lists and of samples

	samples []busySample
	list    []processes.Process
}

var _ part = (*processPart)(nil)

// newProcessPart makes the part of a GPU's processes. With MIG the GPU has those
// that are in none of its instances. Where a GPU instance is split, its compute
// instances have them.
func newProcessPart(l *library, g *gpu, log *zap.Logger) (*processPart, error) {
	p := &processPart{now: time.Now, begin: time.Now()}
	board := processSubject{log: log.With(zap.String("device", g.device.ID))}
	if !g.mig {
		board.busy = new(busyMeans)
	}
	err := p.add(l, g.raw, g.mig, board)
	for i, in := range g.instances {
		if in.ci >= 0 && err == nil {
			err = p.add(l, in.raw, false, processSubject{device: 1 + i, log: log.With(zap.String("device", in.device.ID))})
		}
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *processPart) add(l *library, raw uintptr, outside bool, s processSubject) (err error) {
	if s.query, err = newProcessQuery(l.dl, raw, outside, s.busy != nil); err != nil {
		return err
	}
	p.subjects = append(p.subjects, s)
	p.cols = processes.AppendColumns(p.cols, s.device)
	return nil
}

func (p *processPart) columns() []collector.Column { return p.cols }

// sample asks each subject in turn. One that has no list to give is blank, one that
// does not answer has an error of its own.
func (p *processPart) sample(row []float64, due []bool) error {
	now := p.now()
	var errs error
	for i := range p.subjects {
		at := i * processes.Width
		if !due[at] {
			continue
		}
		err := p.subjects[i].sample(row[at:at+processes.Width], now, now.Sub(p.begin))
		for call := range p.meters {
			p.meters[call].add(p.subjects[i].query.spent(call))
		}
		if err != nil && ends(err) {
			return err
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

func (s *processSubject) sample(block []float64, now time.Time, up time.Duration) error {
	var since uint64
	if s.busy != nil {
		since = s.busy.begin(now, up)
	}
	s.query.ask(since)
	lists, err := s.listed()
	if err != nil {
		return err
	}
	if err := s.weigh(); err != nil {
		return err
	}
	s.say(lists)
	if lists != nvml.SUCCESS {
		processes.Blank(block)
		return nil //nolint:nilerr // it has answered: there is no list
	}
	processes.Put(block, s.gather(), s.list)
	return nil
}

// listed judges the answers of the lists. A device answers where one of them does.
func (s *processSubject) listed() (nvml.Return, error) {
	reason := nvml.ERROR_FUNCTION_NOT_FOUND
	for i := range numLists {
		switch code := s.query.code(i); {
		case isFatal(code):
			return code, fatal(code)
		case lost(code):
			return code, gpuError(processCalls[i][0].symbol, code)
		case code == nvml.SUCCESS:
			return code, nil //nolint:nilerr // a code of success is an error to Go
		case i == listCompute:
			reason = code
		}
	}
	switch reason {
	case nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION:
		return reason, nil
	}
	return reason, &collector.DeviceError{Device: s.device, Err: gpuError(processCalls[listCompute][0].symbol, reason)}
}

// weigh takes what is said of how busy processes are.
func (s *processSubject) weigh() error {
	code := s.query.code(askBusy)
	switch {
	case s.busy == nil:
	case isFatal(code):
		return fatal(code)
	case code == nvml.SUCCESS:
		s.samples = s.query.appendSamples(s.samples[:0])
		s.busy.take(s.samples)
	case code == nvml.ERROR_NOT_FOUND:
		s.busy.idle()
	}
	return nil
}

// gather makes the list and returns how many processes there are, −1 if one of
// NVML's lists is missing.
func (s *processSubject) gather() (count int) {
	s.list = s.list[:0]
	n, nameless := s.query.processes()
	for i := range n {
		pid, memory, lists := s.query.process(i)
		p := processes.Process{PID: pid, Memory: memory, Busy: math.NaN(), Flags: flagsOf(lists)}
		if s.busy != nil {
			p.Busy = s.busy.mean(pid)
		}
		s.list = append(s.list, p)
	}
	for i := range numLists {
		switch s.query.code(i) {
		case nvml.SUCCESS, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND: // there are none of that kind
		default:
			return -1
		}
	}
	return n + nameless
}

func flagsOf(lists uint) (f processes.Flags) {
	for list, flag := range [numLists]processes.Flags{listCompute: processes.Compute, listGraphics: processes.Graphics, listMPS: processes.MPS} {
		if lists>>list&1 == 1 {
			f |= flag
		}
	}
	return f
}

// say logs when a device begins or ceases to tell.
func (s *processSubject) say(lists nvml.Return) {
	busy := s.query.code(askBusy)
	if busy == nvml.ERROR_NOT_FOUND || s.busy == nil {
		busy = nvml.SUCCESS
	}
	now := [2]nvml.Return{lists, busy}
	if now == s.told {
		return
	}
	s.told = now
	switch {
	case lists != nvml.SUCCESS:
		s.log.Info("processes are not known", zap.Error(lists))
	case busy != nvml.SUCCESS:
		s.log.Info("memory of processes is known, not how busy they are", zap.Error(busy))
	default:
		s.log.Info("processes are known")
	}
}

func (p *processPart) calls() []collector.CallCost {
	out := make([]collector.CallCost, numAsks)
	for i := range out {
		out[i] = p.meters[i].cost(processCalls[i][0].symbol)
	}
	return out
}

func (p *processPart) close() {
	for i := range p.subjects {
		p.subjects[i].query.close()
	}
	p.subjects = nil
}
