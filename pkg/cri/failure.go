package cri

import (
	"fmt"

	"warpgauge/pkg/unixgrpc"
)

// Reasons of failure, for mapping.Health.
const (
	ReasonAbsent        = string(unixgrpc.Absent)        // nothing at the path
	ReasonDenied        = string(unixgrpc.Denied)        // no permission
	ReasonNotASocket    = string(unixgrpc.NotASocket)    // a file, a directory, a socket of another kind
	ReasonRefused       = string(unixgrpc.Refused)       // a socket that nobody listens on
	ReasonNotGRPC       = string(unixgrpc.NotGRPC)       // whoever listens speaks something else
	ReasonUnimplemented = string(unixgrpc.Unimplemented) // a server without the CRI
	ReasonOldAPI        = "v1alpha2"                     // a runtime before CRI v1
	ReasonTimeout       = string(unixgrpc.Timeout)       // silence
	ReasonClosed        = string(unixgrpc.Closed)        // the connection ended during a call
	ReasonTooLarge      = string(unixgrpc.TooLarge)      // an answer beyond Options.MaxMessage
	ReasonRateLimited   = string(unixgrpc.RateLimited)   // the runtime takes no more calls for now
	ReasonError         = string(unixgrpc.Other)         // what else the runtime said
)

// Reasons are all of them, for mapping.New.
func Reasons() []string {
	return []string{
		ReasonAbsent, ReasonDenied, ReasonNotASocket, ReasonRefused, ReasonNotGRPC, ReasonUnimplemented,
		ReasonOldAPI, ReasonTimeout, ReasonClosed, ReasonTooLarge, ReasonRateLimited, ReasonError,
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
func callFailure(socket string, cause unixgrpc.Cause, err error) *failure {
	said := unixgrpc.Said(err)
	switch cause {
	case unixgrpc.NotGRPC:
		said = "whoever listens does not speak gRPC (Docker's own socket is none of the CRI; cri-dockerd's is)"
	case unixgrpc.Unimplemented:
		said += " (is it a container runtime's socket, and in containerd's configuration, is \"cri\" among disabled_plugins, as in Docker's packages?)"
	}
	return fail(string(cause), "ask the container runtime at %q: %s", socket, said)
}
