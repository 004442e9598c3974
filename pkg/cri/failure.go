package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reasons of failure, for mapping.Health.
const (
	ReasonAbsent        = "absent"        // nothing at the path
	ReasonDenied        = "denied"        // no permission
	ReasonNotASocket    = "not_a_socket"  // a file, a directory, a socket of another kind
	ReasonRefused       = "refused"       // a socket that nobody listens on
	ReasonNotGRPC       = "not_grpc"      // whoever listens speaks something else
	ReasonUnimplemented = "unimplemented" // a server without the CRI
	ReasonOldAPI        = "v1alpha2"      // a runtime before CRI v1
	ReasonTimeout       = "timeout"       // silence
	ReasonClosed        = "closed"        // the connection ended during a call
	ReasonTooLarge      = "too_large"     // an answer beyond Options.MaxMessage
	ReasonError         = "error"         // what else the runtime said
)

// Reasons are all of them, for mapping.New.
func Reasons() []string {
	return []string{
		ReasonAbsent, ReasonDenied, ReasonNotASocket, ReasonRefused, ReasonNotGRPC, ReasonUnimplemented,
		ReasonOldAPI, ReasonTimeout, ReasonClosed, ReasonTooLarge, ReasonError,
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

// dialFailure is why there is no connection.
func dialFailure(socket string, err error) *failure {
	reason, advice := ReasonError, "check --container-runtime-socket"
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		reason, advice = ReasonAbsent, "start the runtime, check --container-runtime-socket, and in a pod mount the socket's directory from the host"
	case errors.Is(err, fs.ErrPermission):
		reason, advice = ReasonDenied, "the socket is root's: run as root, and allow it where SELinux or AppArmor confine us"
	case errors.Is(err, syscall.EPROTOTYPE), errors.Is(err, syscall.ECONNREFUSED) && !isSocket(socket):
		reason, advice = ReasonNotASocket, "it is no socket, or one of another kind; a container runtime makes a directory of what it cannot mount"
	case errors.Is(err, syscall.ECONNREFUSED):
		reason, advice = ReasonRefused, "the runtime is down; where the socket itself is mounted it may be an old one: mount its directory"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, context.DeadlineExceeded):
		reason, advice = ReasonTimeout, "the runtime accepts no connections: it hangs"
	}
	return fail(reason, "connect to the container runtime at %q: %w (%s)", socket, err, advice)
}

func isSocket(path string) bool {
	f, err := os.Stat(path)
	return err == nil && f.Mode()&fs.ModeSocket != 0
}

// callFailure is why a call got no answer.
func callFailure(socket string, err error) *failure {
	s := status.Convert(err)
	reason := ReasonError
	switch s.Code() {
	case codes.DeadlineExceeded, codes.Canceled:
		reason = ReasonTimeout
	case codes.ResourceExhausted:
		reason = ReasonTooLarge
	case codes.Unavailable:
		reason = ReasonClosed
	case codes.PermissionDenied, codes.Unauthenticated:
		reason = ReasonDenied
	}
	return fail(reason, "ask the container runtime at %q: %s: %s", socket, s.Code(), clip(s.Message()))
}

// clip bounds what a stranger says in our log.
func clip(s string) string {
	const most = 300 // bytes
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "�")
}
