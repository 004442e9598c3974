package kube

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/kube/kubetest"
)

// rig is a Kubelet that runs against a socket.
type rig struct {
	*Kubelet
	t    testing.TB
	logs *observer.ObservedLogs
}

// start runs a Kubelet. set changes its limits.
func start(t testing.TB, socket string, period time.Duration, set func(*Kubelet)) *rig {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	r := &rig{t: t, logs: logs}
	r.Kubelet = NewKubelet(KubeletOptions{Socket: socket, Period: period, Log: zap.New(core)})
	set(r.Kubelet)
	testkit.Start(t, r.Run)
	return r
}

func timeout(d time.Duration) func(*Kubelet) { return func(k *Kubelet) { k.limits.timeout = d } }

// failing waits until calls fail for a reason, and returns the error.
func (r *rig) failing(reason string) string {
	r.t.Helper()
	eventually.True(r.t, "it fails for "+reason, func() bool { return r.Health.State().Failing == reason })
	return r.Health.State().Problem.Error()
}

const quick = 20 * time.Millisecond // between polls

// answerAll listens on a socket and calls with for each connection.
func answerAll(t testing.TB, path string, with func(net.Conn)) {
	t.Helper()
	l := testkit.Get(net.Listen("unix", path))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			with(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
}

// Each fault of a socket has its own reason, and its message names the path and the remedy.
func TestWhatIsNoKubelet(t *testing.T) {
	serve := func(with func(net.Conn)) func(string) { return func(path string) { answerAll(t, path, with) } }
	refuse := func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }
	for _, test := range []struct {
		reason, part string
		prepare      func(path string)
	}{
		{ReasonAbsent, "mount the socket's directory", func(string) {}},
		{ReasonNotASocket, "creates a directory", func(path string) { must(t, os.Mkdir(path, 0o750)) }},
		{ReasonNotASocket, "not a socket", func(path string) { must(t, os.WriteFile(path, nil, 0o600)) }},
		{ReasonNotASocket, "another kind", func(path string) {
			c := testkit.Get(net.ListenPacket("unixgram", path))(t)
			t.Cleanup(func() { c.Close() })
		}},
		{ReasonRefused, "mount its directory", func(path string) {
			k := kubetest.At(t, path)
			k.Serve()
			k.Kill()
		}},
		{ReasonNotGRPC, "does not speak gRPC", serve(func(c net.Conn) { refuse(c); _, _ = io.Copy(io.Discard, c) })},
		{ReasonNotGRPC, "does not speak gRPC", serve(func(c net.Conn) { _, _ = c.Read(make([]byte, 16)); refuse(c) })},
		{ReasonNotGRPC, "does not speak gRPC", serve(refuse)},
		{ReasonNotGRPC, "does not speak gRPC", serve(func(c net.Conn) {
			_, _ = io.Copy(c, iotest.OneByteReader(strings.NewReader(strings.Repeat("\xff", 100))))
		})},
		{ReasonTimeout, "did not answer in time", serve(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })},
	} {
		t.Run(test.reason, func(t *testing.T) {
			path := kubetest.SocketPath(t)
			must(t, os.MkdirAll(filepath.Dir(path), 0o750))
			test.prepare(path)
			r := start(t, path, quick, timeout(200*time.Millisecond))
			testkit.Has(t, "the problem", r.failing(test.reason), test.part, path)
			time.Sleep(5 * quick) // calls that fail in the same way
			s := r.Snapshot()
			testkit.ErrorIf(t, s.Version != 0 || !s.Time.IsZero(), "snapshot %v, want one without an answer", s)
			// The log line may come a moment later than the state.
			lines := func() int { return r.logs.FilterMessageSnippet("mapping failed").Len() }
			eventually.True(t, "the failure is logged", func() bool { return lines() > 0 })
			testkit.Equal(t, "lines in the log", 1, lines())
		})
	}
}

func TestReasonsOfErrors(t *testing.T) {
	for number, reason := range map[syscall.Errno]string{
		syscall.ENOENT: ReasonAbsent, syscall.ENOTDIR: ReasonAbsent, syscall.EACCES: ReasonDenied, syscall.EPERM: ReasonDenied,
		syscall.ECONNREFUSED: ReasonRefused, syscall.EPROTOTYPE: ReasonNotASocket, syscall.EAGAIN: ReasonTimeout, syscall.EMFILE: ReasonError,
	} {
		err := &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: "/k.sock"}, Err: os.NewSyscallError("connect", number)}
		testkit.Equal(t, number.Error(), reason, dialReason("/k.sock", err))
	}
	for code, want := range map[codes.Code]string{
		codes.DeadlineExceeded: ReasonTimeout, codes.Canceled: ReasonTimeout, codes.Unimplemented: ReasonUnimplemented, codes.Unavailable: ReasonClosed,
		codes.PermissionDenied: ReasonDenied, codes.Unauthenticated: ReasonDenied, codes.ResourceExhausted: ReasonRateLimited, codes.Internal: ReasonError,
	} {
		testkit.Equal(t, code.String(), want, callReason(status.New(code, "text")))
	}
	for in, want := range map[string]string{
		"": "", "a\xffb": "a�b", strings.Repeat("é", 150): strings.Repeat("é", 150), "x" + strings.Repeat("é", 150): "x" + strings.Repeat("é", 149) + "…",
	} {
		testkit.Equal(t, "clip of "+in, want, clip(in))
	}
}

// Fifty readers watch while a kubelet goes through all its faults. No reader sees fewer pods than the healthy kubelet
// listed, each message names the socket and the fault, and no connection stays open.
func TestReadersWhileTheKubeletFlaps(t *testing.T) {
	descriptors := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(files)
	}
	kubelet := kubetest.Start(t)
	pods := kubetest.Many(110, 64)
	kubelet.Set(pods...)
	idle := descriptors()
	t.Run("run", func(t *testing.T) {
		r := start(t, "unix://"+kubelet.Socket(), time.Millisecond, func(k *Kubelet) { k.limits.timeout, k.limits.maxBytes = 50*time.Millisecond, 100_000 })
		eventually.True(t, "there is an answer", func() bool { return r.Snapshot().Version > 0 })
		files, goroutines := descriptors(), runtime.NumGoroutine()
		version := r.Snapshot().Version
		ctx, cancel := context.WithCancel(context.Background())
		var readers sync.WaitGroup
		var seen atomic.Int64
		for range 50 {
			readers.Go(func() {
				// A reader pauses, as a scraper does: fifty busy loops would leave the client no time on two cores.
				for last := r.Snapshot(); ctx.Err() == nil; time.Sleep(100 * time.Microsecond) {
					s := r.Snapshot()
					if s == last {
						continue
					}
					if s.Version != version || s.Time.Before(last.Time) || len(s.Pods) != 64 {
						t.Errorf("version %d, %d pods, confirmed %v later, want %d, 64, not earlier", s.Version, len(s.Pods), s.Time.Sub(last.Time), version)
						return
					}
					check(t, s.Pods)
					last = s
					seen.Add(1)
				}
			})
		}
		f := func(reason, part string, fault func()) {
			t.Helper()
			fault()
			testkit.Has(t, "the problem", r.failing(reason), part, kubelet.Socket())
			kubelet.On(nil)
			kubelet.Restart(pods...)
			eventually.True(t, "all is well", func() bool { return r.Health.State().Failing == "" })
		}
		on := func(b kubetest.Behaviour) func() { return func() { kubelet.On(b) } }
		for range 3 {
			f(ReasonTimeout, "in time", on(kubetest.Silence()))
			f(ReasonError, "unheard of", on(kubetest.Fail(codes.Unknown, "unheard of")))
			f(ReasonUnimplemented, "older", on(kubetest.Fail(codes.Unimplemented, "unknown method List")))
			f(ReasonMalformed, "unmarshal", on(kubetest.Say([]byte{0xff})))
			f(ReasonRateLimited, "rejected by rate limit", on(kubetest.Fail(codes.ResourceExhausted, "rejected by rate limit")))
			f(ReasonTooLarge, "100000", func() { kubelet.Set(kubetest.Many(2000, 2000)...) })
			f(ReasonRefused, "refused", kubelet.Kill)
			f(ReasonAbsent, "no such file", func() { kubelet.Kill(); kubelet.Remove() })
			f(ReasonRecovering, "restarted", func() { kubelet.Restart() })
			f(ReasonRecovering, "restarted", func() { kubelet.Restart(pods[:3]...) })
		}
		cancel()
		readers.Wait()
		testkit.Equal(t, "a reader has seen another snapshot", true, seen.Load() != 0)
		eventually.True(t, "there are as many descriptors as before", func() bool { return descriptors() <= files })
		eventually.True(t, "there are as many goroutines as before", func() bool { return runtime.NumGoroutine() <= goroutines })
	})
	eventually.True(t, "there are as many descriptors as without a client", func() bool { return descriptors() <= idle })
}
