package podresources

import (
	"fmt"

	"warpgauge/pkg/unixgrpc"
)

// Why there is no answer: values of the label reason.
const (
	ReasonAbsent        = string(unixgrpc.Absent)        // nothing at the path
	ReasonDenied        = string(unixgrpc.Denied)        // no permission
	ReasonNotASocket    = string(unixgrpc.NotASocket)    // a directory, a file, a socket of another kind
	ReasonRefused       = string(unixgrpc.Refused)       // a socket that nobody listens on
	ReasonNotGRPC       = string(unixgrpc.NotGRPC)       // whoever listens speaks something else
	ReasonTimeout       = string(unixgrpc.Timeout)       // silence
	ReasonClosed        = string(unixgrpc.Closed)        // the connection ended during a call
	ReasonRateLimited   = string(unixgrpc.RateLimited)   // the kubelet's limit for all its clients together
	ReasonTooLarge      = string(unixgrpc.TooLarge)      // an answer beyond Options.MaxMessage, or with too many devices
	ReasonUnimplemented = string(unixgrpc.Unimplemented) // a server without this API
	ReasonMalformed     = "malformed"                    // an answer that is not a message
	ReasonRecovering    = "recovering"                   // the kubelet has restarted and does not list all pods yet
	ReasonError         = string(unixgrpc.Other)         // what else the kubelet said
	ReasonSkipped       = "skipped"                      // counted only: parts of an answer that cannot be used
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
	cause := unixgrpc.Why(path, err)
	err = unixgrpc.Bare(err)
	switch cause {
	case unixgrpc.Absent:
		return fail(ReasonAbsent, "find the kubelet's socket %q: %w (start the kubelet, set --pod-resources-kubelet-socket, and in a pod mount the socket's directory from the host; where that directory was replaced there, start the pod anew)", path, err)
	case unixgrpc.Denied:
		return fail(ReasonDenied, "find the kubelet's socket %q: %w (its directory is root's; run as root)", path, err)
	}
	return fail(ReasonError, "find the kubelet's socket %q: %w", path, err)
}

// dialFailure is why a socket takes no connection.
func dialFailure(path string, err error) *failure {
	cause := unixgrpc.Why(path, err)
	advice := map[unixgrpc.Cause]string{
		unixgrpc.Denied:     "the socket is root's; run as root, and allow it where SELinux or AppArmor confine us",
		unixgrpc.Refused:    "the kubelet is down; or the socket itself is mounted, and is an old one: mount its directory",
		unixgrpc.NotASocket: "it is a socket of another kind: check --pod-resources-kubelet-socket",
		unixgrpc.Timeout:    "the kubelet accepts no connections: it hangs",
	}[cause]
	switch {
	case cause == unixgrpc.Absent: // it went away meanwhile
		return statFailure(path, err)
	case advice == "":
		return fail(ReasonError, "connect to the kubelet's socket %q: %w", path, unixgrpc.Bare(err))
	}
	return fail(string(cause), "connect to the kubelet's socket %q: %w (%s)", path, unixgrpc.Bare(err), advice)
}

// callFailure is why a call got no answer.
func callFailure(path, method string, cause unixgrpc.Cause, err error) *failure {
	advice := map[unixgrpc.Cause]string{
		unixgrpc.NotGRPC:       "whoever listens does not speak gRPC: check --pod-resources-kubelet-socket",
		unixgrpc.Timeout:       "no answer in time: the kubelet hangs or is overloaded: look at its log",
		unixgrpc.TooLarge:      "some container or device plugin has very many device ids",
		unixgrpc.RateLimited:   "other clients of this kubelet ask too often; nothing is lost",
		unixgrpc.Unimplemented: "it is no kubelet's pod-resources socket, or the kubelet is older than 1.20: check --pod-resources-kubelet-socket",
		unixgrpc.Closed:        "the kubelet ended or restarts",
	}[cause]
	if advice == "" {
		return fail(string(cause), "call %s at %q: %s", method, path, unixgrpc.Said(err))
	}
	return fail(string(cause), "call %s at %q: %s (%s)", method, path, unixgrpc.Said(err), advice)
}
