package cri

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"warpgauge/pkg/unixgrpc"
)

// Reasons of failure, for mapping.Health.
const (
	ReasonAbsent        = string(unixgrpc.Absent)     // nothing at the path
	ReasonDenied        = string(unixgrpc.Denied)     // no permission
	ReasonNotASocket    = string(unixgrpc.NotASocket) // a file, a directory, a socket of another kind
	ReasonRefused       = string(unixgrpc.Refused)    // a socket that nobody listens on
	ReasonNotGRPC       = "not_grpc"                  // whoever listens speaks something else
	ReasonUnimplemented = "unimplemented"             // a server without the CRI
	ReasonOldAPI        = "v1alpha2"                  // a runtime before CRI v1
	ReasonTimeout       = string(unixgrpc.Timeout)    // silence
	ReasonClosed        = "closed"                    // the connection ended during a call
	ReasonTooLarge      = "too_large"                 // an answer beyond Options.MaxMessage
	ReasonError         = string(unixgrpc.Other)      // what else the runtime said
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
	cause := unixgrpc.Why(socket, err)
	advice := map[unixgrpc.Cause]string{
		unixgrpc.Absent:     "start the runtime, check --container-runtime-socket, and in a pod mount the socket's directory from the host",
		unixgrpc.Denied:     "the socket is root's: run as root, and allow it where SELinux or AppArmor confine us",
		unixgrpc.NotASocket: "it is no socket, or one of another kind; a container runtime makes a directory of what it cannot mount",
		unixgrpc.Refused:    "the runtime is down; where the socket itself is mounted it may be an old one: mount its directory",
		unixgrpc.Timeout:    "the runtime accepts no connections: it hangs",
		unixgrpc.Other:      "check --container-runtime-socket",
	}[cause]
	return fail(string(cause), "connect to the container runtime at %q: %w (%s)", socket, unixgrpc.Bare(err), advice)
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
	return fail(reason, "ask the container runtime at %q: %s: %s", socket, s.Code(), unixgrpc.Clip(s.Message()))
}
