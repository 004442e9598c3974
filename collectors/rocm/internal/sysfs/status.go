package sysfs

import (
	"sync"
	"time"
)

// status is whether the board sleeps. It has a file and a buffer of its own,
// because the schedule of pcie_bw asks, too.
type status struct {
	mu   sync.Mutex
	file File
	buf  [32]byte
}

// suspended reports whether the kernel has put the board to sleep, or is about
// to: reading most files would wake it. Boards that never sleep say "unsupported",
// those that are awake "active" or "resuming".
func (s *status) suspended(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := s.file.Read(s.buf[:], now)
	return err == nil && (string(text) == "suspended" || string(text) == "suspending")
}

func (s *status) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file.Forget()
}
