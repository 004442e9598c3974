package rocm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"warpgauge/pkg/collector"
)

// errSMIStarting is Open's answer while rsmi_init, which another Open began, has
// not returned. No second one is begun beside it.
var errSMIStarting = errors.New("rsmi_init has not returned")

// startPatience is how long Open waits for rsmi_init. Older libraries wait five
// seconds for a lock that another process holds, and are started twice.
const startPatience = 8 * time.Second

// Libraries are the ROCm SMI libraries of a process. A library has one state,
// whoever calls it: rsmi_init counts references, only the first looks for GPUs,
// and rsmi_shut_down frees what calls of others use. So the collectors that live
// side by side during a reload share one start of it through this.
//
// The zero value is ready; it may be used by several goroutines.
type Libraries struct {
	mu sync.Mutex
	of map[string]*smiShared // by the name that the user gave
}

// open returns the library for a name ("" means the usual ones), started, with
// its list of GPUs; close gives it back. sys is the /sys directory; gpus are the
// PCI addresses that are there, so that a list that is out of date is seen.
// It may be called from several goroutines and returns when ctx ends, also if
// the library hangs; its thread is abandoned then, and the next open waits for
// it instead of beginning again.
// Errors: collector.ErrNotBuiltIn, collector.ErrNotLoaded, errSMIStarting, wrapped.
func (l *Libraries) open(ctx context.Context, named, sys string, gpus []string) (*smiShared, error) {
	l.mu.Lock()
	if l.of == nil {
		l.of = map[string]*smiShared{}
	}
	s := l.of[named]
	if s == nil {
		s = &smiShared{named: named, opt: "/opt", patience: startPatience}
		l.of[named] = s
	}
	l.mu.Unlock()
	if err := s.acquire(ctx, sys, gpus); err != nil {
		return nil, err
	}
	return s, nil
}

// smiShared is one library and its users.
type smiShared struct {
	named, opt string
	patience   time.Duration

	mu       sync.Mutex
	users    int
	starting *smiStart // the start in progress, if any
	up       bool      // between rsmi_init and rsmi_shut_down
	stale    bool      // a GPU was lost: the list of GPUs must be made anew
	listed   []string  // the GPUs that were there when the list was made
	renewed  time.Time // when a reading last asked for a new list

	// Written by the start in progress while the gate is shut, read inside it.
	lib        *smiLibrary
	build      smiBuild
	generation uint64
	index      map[string]smiIndex // by PCI address

	gate gate
}

// smiIndex is where the library has a GPU.
type smiIndex struct {
	at      uint32
	monitor string // directory of its sensors
}

// smiStart is one run of rsmi_init, or of rsmi_shut_down.
type smiStart struct {
	since time.Time
	done  chan struct{}
	err   error // after done
}

// acquire makes the caller a user of the started library.
func (s *smiShared) acquire(ctx context.Context, sys string, gpus []string) error {
	gpus = slices.Sorted(slices.Values(gpus))
	begun := false
	for {
		s.mu.Lock()
		j := s.starting
		if j == nil {
			if begun || s.currentLocked(gpus) {
				s.users++
				s.mu.Unlock()
				return nil
			}
			j = s.beginLocked(func(ctx context.Context) error { return s.start(ctx, sys, gpus) })
			begun = true
		}
		s.mu.Unlock()
		if err := j.wait(ctx, s.patience); err != nil {
			return err
		}
	}
}

// currentLocked reports whether the library is started and its list of GPUs is
// that of gpus, as far as it could be.
func (s *smiShared) currentLocked(gpus []string) bool {
	return s.up && !s.stale && slices.Equal(s.listed, gpus)
}

// beginLocked runs f on a goroutine and a thread of its own, which nobody joins.
// ctx bounds how long f waits for calls to end, not the library.
func (s *smiShared) beginLocked(f func(ctx context.Context) error) *smiStart {
	j := &smiStart{since: time.Now(), done: make(chan struct{})}
	s.starting = j
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), drainPatience)
		defer cancel()
		j.err = onThread(func() error { return f(ctx) })
		s.mu.Lock()
		s.starting = nil
		s.mu.Unlock()
		close(j.done)
	}()
	return j
}

// wait returns the end of the start, or an error when ctx ends or the start has
// lasted longer than anybody should wait.
func (j *smiStart) wait(ctx context.Context, patience time.Duration) error {
	t := time.NewTimer(time.Until(j.since.Add(patience)))
	defer t.Stop()
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return fmt.Errorf("start ROCm SMI: %w after %v: %w", errSMIStarting, time.Since(j.since).Round(time.Millisecond), context.Cause(ctx))
	case <-t.C:
		return fmt.Errorf("start ROCm SMI: %w after %v", errSMIStarting, time.Since(j.since).Round(time.Millisecond))
	}
}

// release ends what acquire began. The last user ends the library, after a start
// that is in progress; where a call hangs inside, it is left as it is. It waits no
// longer than d.
func (s *smiShared) release(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	s.mu.Lock()
	s.users--
	for ended := false; ; {
		j := s.starting
		if j == nil {
			if ended || s.users > 0 || !s.up {
				s.mu.Unlock()
				return
			}
			j, ended = s.beginLocked(s.end), true
		}
		s.mu.Unlock()
		select {
		case <-j.done:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
	}
}

// lost says that a GPU answers no more, so that the next open looks for GPUs anew.
func (s *smiShared) lost() {
	s.mu.Lock()
	s.stale = true
	s.mu.Unlock()
}

// down says what keeps calls out: a start that will end soon, or one that failed
// or has lasted too long, after which who reads had better open again.
func (s *smiShared) down() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.starting; j != nil && time.Since(j.since) < s.patience {
		return errSMIDown
	}
	return fmt.Errorf("%w: %w", errSMIDown, collector.ErrColumnsChanged)
}

// renewInterval is how often the library is started anew at most because a GPU
// has come back. Sampling pauses for each start, and some versions leave two
// files for each GPU in /tmp.
const renewInterval = 30 * time.Second

// renew begins to make the list of GPUs anew, and does not wait for it.
func (s *smiShared) renew(sys string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starting != nil || s.users == 0 || time.Since(s.renewed) < renewInterval {
		return
	}
	s.renewed = time.Now()
	gpus := s.listed
	s.beginLocked(func(ctx context.Context) error { return s.start(ctx, sys, gpus) })
}

// describe says which library this is, for the log.
func (s *smiShared) describe() string {
	if !s.gate.enter(0) {
		return "library that is being started"
	}
	defer s.gate.leave()
	var b strings.Builder
	b.WriteString(s.lib.path)
	if s.lib.has(smiPower) {
		b.WriteString(", ROCm 6 or later")
	} else {
		b.WriteString(", ROCm 5")
	}
	if s.build.asserts {
		b.WriteString(", built with asserts")
	}
	if !s.build.threadLocks {
		b.WriteString(", locks in /dev/shm")
	}
	return b.String()
}
