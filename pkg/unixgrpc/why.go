package unixgrpc

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Cause is why a socket takes no connection, or a call gets no answer. Its texts are
// values of the label reason of metrics.
type Cause string

// Causes.
const (
	Absent     Cause = "absent"       // nothing at the path
	Denied     Cause = "denied"       // no permission
	NotASocket Cause = "not_a_socket" // a file, a directory, a socket of another kind
	Refused    Cause = "refused"      // a socket that nobody listens on
	Timeout    Cause = "timeout"      // whoever listens takes no connections, or is silent
	Other      Cause = "error"

	// Of calls alone.
	NotGRPC       Cause = "not_grpc"      // whoever listens speaks something else
	Closed        Cause = "closed"        // the connection has ended
	TooLarge      Cause = "too_large"     // an answer beyond Dial's maxMessage
	RateLimited   Cause = "rate_limited"  // the server takes no more calls for now
	Unimplemented Cause = "unimplemented" // a server without the method
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

// WhyCall says what an error of a call means.
func (c *Conn) WhyCall(err error) Cause {
	if c.Foreign() {
		return NotGRPC
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.DeadlineExceeded, codes.Canceled:
		return Timeout
	case codes.ResourceExhausted:
		// Only the text tells grpc's own limit, which is ours, from the server's of
		// calls; a test has both.
		if strings.Contains(s.Message(), "larger than max") {
			return TooLarge
		}
		return RateLimited
	case codes.Unimplemented:
		return Unimplemented
	case codes.PermissionDenied, codes.Unauthenticated:
		return Denied
	case codes.Unavailable:
		return Closed
	}
	return Other
}

// Said is what the error of a call says, code and bounded text.
func Said(err error) string {
	s := status.Convert(err)
	return s.Code().String() + ": " + Clip(s.Message())
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
