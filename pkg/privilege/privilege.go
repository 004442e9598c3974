// Package privilege takes the effective capabilities away from a process whose
// children need them and who itself does not: the one that speaks HTTP.
//
// Only the effective set is lowered, on every thread. The permitted and the
// bounding set, and the ambient one, stay, for three reasons. A child that is
// started later gets its effective set at exec: as root from the bounding set,
// otherwise from file or ambient capabilities. With no_new_privs
// (allowPrivilegeEscalation: false in Kubernetes) exec grants nothing that was
// not permitted before, root or not. And a process whose permitted set grows at
// exec loses its parent-death signal, by which children end with their parent.
//
// The kernel's checks ask for effective capabilities only, so a file or a socket
// opened by mistake is refused. It is no sandbox: code that an attacker runs
// inside the process can raise the set again.
package privilege

import (
	"errors"
	"fmt"
)

// ErrNotSupported is returned where the system has no capabilities.
var ErrNotSupported = errors.New("capabilities are not supported on this system")

// Set is a set of capabilities, bit n for number n, as in /proc/self/status.
type Set uint64

// String gives the set as /proc does; capsh --decode names the bits.
func (s Set) String() string { return fmt.Sprintf("%016x", uint64(s)) }

// Drop lowers the effective capabilities of every thread, those of C libraries
// included, to nothing, and returns what there was. Threads that start later
// inherit that; programs that are started later do not, see above. It needs no
// privilege itself. Where there is nothing to drop it does nothing.
//
// Call it before a foreign library has started threads that block signals: in a
// program with cgo each thread is reached by a signal.
func Drop() (Set, error) {
	was, err := get()
	if err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	if was.effective == 0 {
		return 0, nil
	}
	now := was
	now.effective = 0
	if err := now.set(); err != nil {
		return 0, fmt.Errorf("drop effective capabilities: %w", err)
	}
	if err := verify(); err != nil {
		return 0, fmt.Errorf("drop effective capabilities: %w", err)
	}
	return was.effective, nil
}
