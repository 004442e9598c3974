package isolation

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// settle makes this process a child: it ends with its parent, also where the
// kernel has forgotten that it should (a binary with file capabilities loses the
// parent-death signal at exec), and only its parent ends it in order: a signal to
// the group, as a terminal or an init system sends it, is for the parent, and so
// are those that let collectors go and resume them.
func settle() {
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0) // the end of the channel says the same
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
}
