package rocm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
)

// drainPatience is how long a new start waits for calls in progress to end: less
// than calls wait for it, so that one which hangs costs the others no reading.
const drainPatience = gatePatience / 2

// smiThreadLocks is RSMI_INIT_FLAG_THRAD_ONLY_MUTEX: locks that other processes
// do not see, so that none of theirs, alive or dead, can hold up ours.
const smiThreadLocks = 0x400000000000000

// onThread runs f on one OS thread. After an error the thread ends with the
// goroutine: it may own device locks, and the kernel gives those of an ended
// thread to the next who asks.
func onThread(f func() error) error {
	runtime.LockOSThread()
	err := f()
	if err == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// start loads the library where that has not been done and makes its list of
// GPUs, anew if there is one already.
func (s *smiShared) start(ctx context.Context, sys string, gpus []string) error {
	if s.lib == nil {
		lib, err := loadSMI(smiNames(s.named, s.opt))
		if err != nil {
			return err
		}
		// An error says the worst about the build, and the worst is guarded.
		s.build, _ = inspectSMI(lib.path)
		s.lib = lib
	}
	if !s.gate.shut(ctx) {
		// A call hangs inside. Its GPU may hold the library for ever, so the old
		// list stays; who misses a GPU in it reads that one from /sys.
		return nil
	}
	if s.setUp(false) {
		if st := s.lib.stop(); st != smiSuccess {
			s.gate.bar()
			return smiFailed(smiShutDown, st)
		}
	}
	index, err := s.begin(sys, gpus)
	if err != nil {
		// A call for a device would crash now, so none gets in any more.
		s.gate.bar()
		return err
	}
	s.index = index
	s.generation++
	s.mu.Lock()
	s.up, s.stale, s.listed = true, false, slices.Clone(gpus)
	s.mu.Unlock()
	s.gate.open()
	return nil
}

// begin is rsmi_init and the list.
func (s *smiShared) begin(sys string, gpus []string) (map[string]smiIndex, error) {
	if s.build.asserts {
		if err := preflightSMI(sys); err != nil {
			return nil, err
		}
	}
	if err := s.initialise(); err != nil {
		return nil, err
	}
	index, err := s.list(sys, gpus)
	if err != nil {
		return nil, errors.Join(err, smiFailed(smiShutDown, s.lib.stop()))
	}
	return index, nil
}

// setUp notes whether the library is started and returns what it was.
func (s *smiShared) setUp(up bool) (was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, s.up = s.up, up
	return was
}

// initialise calls rsmi_init. Libraries with locks in /dev/shm keep, on the
// thread that ran it, the lock of each GPU whose last holder was killed, and all
// other threads would wait for ever; rsmi_shut_down on that thread lets go of
// them, and the second rsmi_init finds them sound.
func (s *smiShared) initialise() error {
	if s.build.threadLocks {
		return s.explain(s.lib.start(smiThreadLocks))
	}
	if err := s.explain(s.lib.start(0)); err != nil {
		return err
	}
	if st := s.lib.stop(); st != smiSuccess {
		return smiFailed(smiShutDown, st)
	}
	return s.explain(s.lib.start(0))
}

// explain adds what the one status stands for.
func (s *smiShared) explain(st smiStatus) error {
	err := smiFailed(smiInit, st)
	switch {
	case st != smiInitError:
		return err
	case s.build.threadLocks:
		return fmt.Errorf("%w: it finds no GPU with the amdgpu driver", err)
	default:
		return fmt.Errorf("%w: it finds no GPU with the amdgpu driver, or cannot write to /dev/shm, or another process holds a lock there (rocm_smi_*)", err)
	}
}

// list asks which GPU each index means.
func (s *smiShared) list(sys string, gpus []string) (map[string]smiIndex, error) {
	n, st := s.lib.devices()
	if st != smiSuccess {
		return nil, smiFailed(smiNumDevices, st)
	}
	index := map[string]smiIndex{}
	for i := range n {
		id, st := s.lib.pciID(i)
		if st != smiSuccess {
			continue // it left while the list was made
		}
		pci, part := splitPCIID(id)
		if _, ok := index[pci]; ok || part != 0 || !slices.Contains(gpus, pci) {
			continue
		}
		index[pci] = smiIndex{at: i, monitor: monitorOf(sys, pci)}
	}
	return index, nil
}

// splitPCIID takes an rsmi_dev_pci_id_get apart: domain in bits 63:32, partition
// in 31:28, bus in 15:8, device in 7:3, function in 2:0.
func splitPCIID(id uint64) (pci string, partition int) {
	return fmt.Sprintf("%04x:%02x:%02x.%x", id>>32, id>>8&0xff, id>>3&0x1f, id&7), int(id >> 28 & 0xf)
}

// end is rsmi_shut_down, unless a call hangs inside. What it answers changes
// nothing: nobody uses the library any more.
func (s *smiShared) end(ctx context.Context) error {
	if !s.gate.shut(ctx) {
		return nil
	}
	if s.setUp(false) {
		_ = s.lib.stop()
	}
	s.gate.bar()
	return nil
}
