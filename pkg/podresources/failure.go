package podresources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Why there is no answer: values of the label reason.
const (
	ReasonAbsent        = "absent"        // nothing at the path
	ReasonDenied        = "denied"        // no permission
	ReasonNotASocket    = "not_a_socket"  // a directory, a file, a socket of another kind
	ReasonRefused       = "refused"       // a socket that nobody listens on
	ReasonNotGRPC       = "not_grpc"      // whoever listens speaks something else
	ReasonTimeout       = "timeout"       // silence
	ReasonClosed        = "closed"        // the connection ended during a call
	ReasonRateLimited   = "rate_limited"  // the kubelet's limit for all its clients together
	ReasonTooLarge      = "too_large"     // an answer beyond Options.MaxMessage, or with too many devices
	ReasonUnimplemented = "unimplemented" // a server without this API
	ReasonMalformed     = "malformed"     // an answer that is not a message
	ReasonRecovering    = "recovering"    // the kubelet has restarted and does not list all pods yet
	ReasonError         = "error"         // what else the kubelet said
	ReasonSkipped       = "skipped"       // counted only: parts of an answer that cannot be used
)

// Reasons are all reasons, for mapping.New.
func Reasons() []string {
	return []string{
		ReasonAbsent, ReasonDenied, ReasonNotASocket, ReasonRefused, ReasonNotGRPC, ReasonTimeout, ReasonClosed,
		ReasonRateLimited, ReasonTooLarge, ReasonUnimplemented, ReasonMalformed, ReasonRecovering, ReasonError, ReasonSkipped,
	}
}

// failure is why there is no answer, for a metric and for a human.
type failure struct {
	reason string
	err    error
}

func fail(reason, format string, args ...any) *failure {
	return &failure{reason: reason, err: fmt.Errorf(format, args...)}
}

// statFailure is why there is nothing to connect to.
func statFailure(path string, err error) *failure {
	err = bare(err)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fail(ReasonAbsent, "find the kubelet's socket %q: %w (start the kubelet, set --pod-resources-kubelet-socket, and in a pod mount the socket's directory from the host; where that directory was replaced there, start the pod anew)", path, err)
	case errors.Is(err, fs.ErrPermission):
		return fail(ReasonDenied, "find the kubelet's socket %q: %w (its directory is root's; run as root)", path, err)
	}
	return fail(ReasonError, "find the kubelet's socket %q: %w", path, err)
}

// dialFailure is why a socket takes no connection.
func dialFailure(path string, err error) *failure {
	err = bare(err)
	switch {
	case errors.Is(err, fs.ErrNotExist): // it went away meanwhile
		return statFailure(path, err)
	case errors.Is(err, fs.ErrPermission):
		return fail(ReasonDenied, "connect to the kubelet's socket %q: %w (the socket is root's; run as root, and allow it where SELinux or AppArmor confine us)", path, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail(ReasonRefused, "connect to the kubelet's socket %q: %w (the kubelet is down; or the socket itself is mounted, and is an old one: mount its directory)", path, err)
	case errors.Is(err, syscall.EPROTOTYPE), errors.Is(err, syscall.ENOTSOCK):
		return fail(ReasonNotASocket, "connect to the kubelet's socket %q: %w (it is a socket of another kind: check --pod-resources-kubelet-socket)", path, err)
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, context.DeadlineExceeded):
		return fail(ReasonTimeout, "connect to the kubelet's socket %q: %w (the kubelet accepts no connections: it hangs)", path, err)
	}
	return fail(ReasonError, "connect to the kubelet's socket %q: %w", path, err)
}

// bare is what the system said, without the path, which stands before it already.
func bare(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

// callFailure is why a call got no answer. Only the text tells grpc's own limit,
// which is ours, from the kubelet's of calls; a test has both.
func callFailure(path, method string, err error) *failure {
	s := status.Convert(err)
	said := clip(s.Message())
	switch s.Code() {
	case codes.DeadlineExceeded, codes.Canceled:
		return fail(ReasonTimeout, "call %s at %q: no answer in time: %s (the kubelet hangs or is overloaded: look at its log)", method, path, said)
	case codes.ResourceExhausted:
		if strings.Contains(s.Message(), "larger than max") {
			return fail(ReasonTooLarge, "call %s at %q: the answer is too large: %s (some container or device plugin has very many device ids)", method, path, said)
		}
		return fail(ReasonRateLimited, "call %s at %q: %s (other clients of this kubelet ask too often; nothing is lost)", method, path, said)
	case codes.Unimplemented:
		return fail(ReasonUnimplemented, "call %s at %q: %s (it is no kubelet's pod-resources socket, or the kubelet is older than 1.20: check --pod-resources-kubelet-socket)", method, path, said)
	case codes.PermissionDenied, codes.Unauthenticated:
		return fail(ReasonDenied, "call %s at %q: %s", method, path, said)
	case codes.Unavailable:
		return fail(ReasonClosed, "call %s at %q: %s (the kubelet ended or restarts)", method, path, said)
	}
	return fail(ReasonError, "call %s at %q: %s: %s", method, path, s.Code(), said)
}

// clip bounds what a stranger says in our log.
func clip(s string) string {
	const most = 300 // bytes
	if len(s) <= most {
		return strings.ToValidUTF8(s, "�")
	}
	return strings.ToValidUTF8(s[:most], "") + "…" // without half a rune
}
