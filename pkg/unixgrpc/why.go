package unixgrpc

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Cause is why a socket takes no connection. Its texts are values of the label
// reason of metrics.
type Cause string

// Causes.
const (
	Absent     Cause = "absent"       // nothing at the path
	Denied     Cause = "denied"       // no permission
	NotASocket Cause = "not_a_socket" // a file, a directory, a socket of another kind
	Refused    Cause = "refused"      // a socket that nobody listens on
	Timeout    Cause = "timeout"      // whoever listens takes no connections
	Other      Cause = "error"
)

// Why says what an error of Dial, or of os.Stat of the socket, means. It looks at
// the path: the kernel refuses a connection to a plain file as it does one to a socket
// without a listener.
func Why(path string, err error) Cause {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return Absent
	case errors.Is(err, fs.ErrPermission):
		return Denied
	case errors.Is(err, syscall.EPROTOTYPE), errors.Is(err, syscall.ENOTSOCK), errors.Is(err, syscall.ECONNREFUSED) && isOther(path):
		return NotASocket
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout
	}
	return Other
}

// isOther reports whether something is there that is no socket.
func isOther(path string) bool {
	f, err := os.Stat(path)
	return err == nil && f.Mode()&fs.ModeSocket == 0
}

// Bare is what the system said, without the operation and the path, for messages
// that have them already.
func Bare(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

// Clip bounds what a stranger says in our log.
func Clip(s string) string {
	const most = 300 // bytes
	if len(s) <= most {
		return strings.ToValidUTF8(s, "�")
	}
	return strings.ToValidUTF8(s[:most], "") + "…" // without half a rune
}
