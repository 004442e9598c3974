package kube

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Reasons why the kubelet gives no answer, for the label reason.
const (
	ReasonAbsent        = "absent"        // nothing at the path
	ReasonDenied        = "denied"        // no permission
	ReasonNotASocket    = "not_a_socket"  // a file, a directory, or another kind of socket
	ReasonRefused       = "refused"       // no process listens on the socket
	ReasonNotGRPC       = "not_grpc"      // the server speaks another protocol
	ReasonTimeout       = "timeout"       // no answer in time
	ReasonClosed        = "closed"        // the connection ended during a call
	ReasonRateLimited   = "rate_limited"  // the server takes no more calls for now
	ReasonTooLarge      = "too_large"     // the answer exceeds our limits
	ReasonUnimplemented = "unimplemented" // the server lacks the API
	ReasonError         = "error"         // any other error of the server
	ReasonMalformed     = "malformed"     // an answer that is not a message
	ReasonRecovering    = "recovering"    // the kubelet has restarted and does not list all pods yet
)

var socketReasons = []string{ReasonAbsent, ReasonDenied, ReasonNotASocket, ReasonRefused, ReasonNotGRPC, ReasonTimeout,
	ReasonClosed, ReasonRateLimited, ReasonTooLarge, ReasonUnimplemented, ReasonError, ReasonMalformed, ReasonRecovering}

// advice returns the remedy for a reason in parentheses; "" if there is none.
func advice(reason string) string {
	text := map[string]string{
		ReasonAbsent:        "start the kubelet, set --pod-resources-kubelet-socket, and in a pod mount the socket's directory from the host; if that directory was replaced there, restart the pod",
		ReasonDenied:        "the socket belongs to root: run as root, and allow access in SELinux or AppArmor",
		ReasonNotASocket:    "it is not a socket, or one of another kind: check --pod-resources-kubelet-socket; a container runtime creates a directory if the source of a mount is missing",
		ReasonRefused:       "the kubelet is down, or the mounted socket is an old one: mount its directory",
		ReasonNotGRPC:       "the server does not speak gRPC: check --pod-resources-kubelet-socket",
		ReasonTimeout:       "the kubelet did not answer in time: it hangs or is overloaded; see its log",
		ReasonTooLarge:      "some container or device plugin has very many device ids",
		ReasonRateLimited:   "other clients call this kubelet too often; no data is lost",
		ReasonUnimplemented: "this is not a kubelet's pod-resources socket, or the kubelet is older than 1.20: check --pod-resources-kubelet-socket",
		ReasonMalformed:     "is it a kubelet?",
		ReasonClosed:        "the kubelet ended or restarts",
	}[reason]
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// conn is one connection to a kubelet and never reconnects: after it ends, calls fail with ReasonClosed. So it always
// reaches the same server, and the caller makes the next connection without gRPC's back-off.
type conn struct {
	*grpc.ClientConn
	path     string
	plain    net.Conn
	answered bool // the server has answered a call, even with an error
}

var errOver = errors.New("the connection has ended")

// dial connects; gRPC starts to talk with the first call.
func dial(ctx context.Context, path string, limits kubeletLimits) (*conn, *failure) {
	dialer := net.Dialer{Timeout: limits.timeout}
	plain, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		reason := dialReason(path, err)
		if number, ok := errors.AsType[syscall.Errno](err); ok {
			err = number // without the operation and the path, which the message already has
		}
		return nil, fail(reason, "connect to the kubelet at %q: %w%s", path, err, advice(reason))
	}
	var taken atomic.Bool
	c, err := grpc.NewClient("passthrough:///localhost", // the name is the authority, which servers check
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if taken.Swap(true) {
				return nil, errOver
			}
			return plain, nil
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Hour, MaxDelay: time.Hour}, MinConnectTimeout: limits.timeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limits.maxBytes)),
		grpc.WithIdleTimeout(0), // if the connection ends, the server has ended
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck(), grpc.WithDisableRetry())
	if err != nil {
		_ = plain.Close() // gRPC has sent nothing yet
		return nil, fail(ReasonError, "make a gRPC client: %w", err)
	}
	return &conn{ClientConn: c, path: path, plain: plain}, nil
}

func (c *conn) list(ctx context.Context) (*v1.ListPodResourcesResponse, *failure) {
	list, err := v1.NewPodResourcesListerClient(c).List(ctx, &v1.ListPodResourcesRequest{})
	return list, c.failure(err)
}

func (c *conn) close() {
	_ = c.ClientConn.Close()
	_ = c.plain.Close() // gRPC may never have used it
}

// failure returns the reason and the error of a failed call, or nil. If the connection breaks before the first answer,
// the server is not a gRPC server.
func (c *conn) failure(err error) *failure {
	if err == nil {
		c.answered = true
		return nil
	}
	s := status.Convert(err)
	reason := callReason(s)
	if reason != ReasonClosed {
		c.answered = true
	} else if !c.answered {
		reason = ReasonNotGRPC
	}
	return fail(reason, "call the kubelet at %q: %s: %s%s", c.path, s.Code(), clip(s.Message()), advice(reason))
}

// dialReason classifies a connection error. It checks the path, too: the kernel refuses a connection to a plain file
// like one to a socket without a listening process.
func dialReason(path string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return ReasonAbsent
	case errors.Is(err, fs.ErrPermission):
		return ReasonDenied
	case errors.Is(err, syscall.EPROTOTYPE), errors.Is(err, syscall.ENOTSOCK):
		return ReasonNotASocket
	case errors.Is(err, syscall.ECONNREFUSED):
		if f, err := os.Stat(path); err == nil && f.Mode()&fs.ModeSocket == 0 {
			return ReasonNotASocket
		}
		return ReasonRefused
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return ReasonTimeout
	}
	return ReasonError
}

// callReason classifies the error of a call.
func callReason(s *status.Status) string {
	switch s.Code() {
	case codes.DeadlineExceeded, codes.Canceled:
		return ReasonTimeout
	case codes.ResourceExhausted:
		// Only the text distinguishes our limit on answers from the server's rate limit.
		if strings.Contains(s.Message(), "larger than max") {
			return ReasonTooLarge
		}
		return ReasonRateLimited
	case codes.Unimplemented:
		return ReasonUnimplemented
	case codes.PermissionDenied, codes.Unauthenticated:
		return ReasonDenied
	case codes.Unavailable:
		return ReasonClosed
	case codes.Internal:
		if strings.Contains(s.Message(), "unmarshal the received message") {
			return ReasonMalformed
		}
	}
	return ReasonError
}
