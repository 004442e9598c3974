package kube

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/kube/kubetest"
)

// rig is a Client that runs against a socket.
type rig struct {
	*Kubelet
	t       testing.TB
	logs    *observer.ObservedLogs
	changes chan struct{} // one for each OnChange, as far as there is room
}

// start runs a Kubelet. set changes its limits.
func start(t testing.TB, o KubeletOptions, set ...func(*Kubelet)) *rig {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	r := &rig{t: t, logs: logs, changes: make(chan struct{}, 1000)}
	o.Log, o.Keep = zap.New(core), gpus
	o.OnChange = func() {
		select {
		case r.changes <- struct{}{}:
		default:
		}
	}
	r.Kubelet = NewKubelet(o)
	r.gap = quick
	for _, f := range set {
		f(r.Kubelet)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func timeout(d time.Duration) func(*Kubelet) { return func(k *Kubelet) { k.limits.timeout = d } }

// failing waits until looks fail for a reason, and returns what is said.
func (r *rig) failing(reason string) string {
	r.t.Helper()
	eventually.True(r.t, "it fails for "+reason, func() bool { return r.Health.State().Failing == reason })
	return r.Health.State().Problem.Error()
}

// owners waits until the Snapshot has those pods and no look fails.
func (r *rig) owners(want ...string) {
	r.t.Helper()
	r.has(want...)
	eventually.True(r.t, "all is well", func() bool { return r.Health.State().Failing == "" })
}

// has waits until the Snapshot has those pods.
func (r *rig) has(want ...string) {
	r.t.Helper()
	eventually.True(r.t, "the owners are "+strings.Join(want, " ")+" and not "+strings.Join(names(r.Snapshot()), " "), func() bool {
		return r.Snapshot().Version > 0 && gocmp.Equal(append([]string{}, want...), names(r.Snapshot()))
	})
}

func names(s *Allocations) []string {
	out := []string{}
	for _, p := range s.Pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
}

func train(name string, ids ...string) *v1.PodResources {
	return pod("ml", name, container("main", devices("nvidia.com/gpu", ids...)))
}

// quick polls often; seldom only for a reason.
const (
	quick  = 20 * time.Millisecond
	seldom = time.Hour
)

// Each way in which a socket can be of no use has its own reason, and says where
// and what to do.
func TestWhatIsNoKubelet(t *testing.T) {
	f := func(reason string, parts []string, prepare func(path string)) {
		t.Helper()
		t.Run(reason, func(t *testing.T) {
			path := kubetest.SocketPath(t)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			prepare(path)
			r := start(t, KubeletOptions{Socket: path, Period: quick}, timeout(200*time.Millisecond))
			said := r.failing(reason)
			for _, part := range append(parts, path) {
				if !strings.Contains(said, part) {
					t.Errorf("%q does not say %q", said, part)
				}
			}
			if s := r.Snapshot(); s == nil || s.Version != 0 || !s.Time.IsZero() {
				t.Errorf("snapshot %v, want one without an answer", s)
			}
			// The line follows the state, so it may come a moment later than the failure is seen.
			lines := func() int { return r.logs.FilterMessageSnippet("mapping failed").Len() }
			eventually.True(t, "the failure is logged", func() bool { return lines() > 0 })
			if n := lines(); n != 1 {
				t.Errorf("%d lines in the log, want 1", n)
			}
		})
	}
	write := func(data string) func(string) {
		return func(path string) {
			if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	listen := func(network string) func(string) {
		return func(path string) {
			c, err := net.ListenPacket(network, path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
		}
	}
	says := func(b string) func(string) {
		return func(path string) {
			answerAll(t, path, func(c net.Conn) { _, _ = c.Write([]byte(b)); _, _ = io.Copy(io.Discard, c) })
		}
	}
	f(ReasonAbsent, []string{"no such file", "mount the socket's directory"}, func(string) {})
	f(ReasonNotASocket, []string{"makes a directory", "--pod-resources-kubelet-socket"}, func(path string) {
		if err := os.Mkdir(path, 0o750); err != nil {
			t.Fatal(err)
		}
	})
	f(ReasonNotASocket, []string{"not a socket"}, write("x"))
	f(ReasonNotASocket, []string{"another kind"}, listen("unixgram"))
	f(ReasonRefused, []string{"refused", "mount its directory"}, func(path string) {
		k := kubetest.At(t, path)
		k.Serve()
		k.Kill()
	})
	f(ReasonNotGRPC, []string{"does not speak gRPC"}, says("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f(ReasonNotGRPC, []string{"does not speak gRPC"}, says(strings.Repeat("\xff", 1000)))
	f(ReasonTimeout, []string{"did not answer in time"}, says(""))
	f(ReasonUnimplemented, []string{"not a kubelet's"}, func(path string) {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		go s.Serve(l)
		t.Cleanup(s.Stop)
	})
}

func TestReasonsOfDialing(t *testing.T) {
	for number, reason := range map[syscall.Errno]string{
		syscall.ENOENT: ReasonAbsent, syscall.ENOTDIR: ReasonAbsent, syscall.EACCES: ReasonDenied, syscall.EPERM: ReasonDenied,
		syscall.ECONNREFUSED: ReasonRefused, syscall.EPROTOTYPE: ReasonNotASocket, syscall.EAGAIN: ReasonTimeout, syscall.EMFILE: ReasonError,
	} {
		err := &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: "/k.sock"}, Err: os.NewSyscallError("connect", number)}
		if got := dialReason("/k.sock", err); got != reason {
			t.Errorf("%v: reason %q, want %q", number, got, reason)
		}
	}
}

// Whatever a kubelet does once it has answered, the last good answer stays.
func TestWhateverGoesWrongTheLastAnswerStays(t *testing.T) {
	kubelet := kubetest.Start(t)
	kubelet.Shuffle(true)
	kubelet.Set(train("a", "GPU-2", "GPU-1"), pod("kube-system", "proxy", container("main")))
	r := start(t, KubeletOptions{Socket: "unix://" + kubelet.Socket(), Period: quick}, timeout(100*time.Millisecond), func(k *Kubelet) { k.limits.maxBytes = 100_000 })
	r.owners("ml/a")
	good := r.Snapshot()
	if diff := gocmp.Diff([]Pod{podOf("ml", "a", Container{Name: "main", Devices: []Devices{{"nvidia.com/gpu", []string{"GPU-1", "GPU-2"}}}})}, good.Pods); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	kubelet.Await(10)
	if got := r.Snapshot(); got.Version != 1 || !got.Time.After(good.Time) || len(r.changes) != 1 || kubelet.Connections() != 1 {
		t.Errorf("after ten equal answers in another order: %+v, %d changes, %d connections", got, len(r.changes), kubelet.Connections())
	}
	f := func(name, reason, part string, misbehave func(), behave func()) {
		t.Helper()
		misbehave()
		if said := r.failing(reason); !strings.Contains(said, part) || !strings.Contains(said, kubelet.Socket()) {
			t.Errorf("%s: %q does not say %q", name, said, part)
		}
		if s := r.Snapshot(); s.Version != good.Version || !gocmp.Equal(s.Pods, good.Pods) {
			t.Errorf("%s: the snapshot has changed: %v", name, s)
		}
		behave()
		r.owners("ml/a")
	}
	says := func(b kubetest.Behaviour) func() {
		return func() { kubelet.On(b) }
	}
	well := says(nil)
	f("silence", ReasonTimeout, "in time", says(kubetest.Silence()), well)
	f("an error", ReasonError, "unheard of", says(kubetest.Fail(codes.Unknown, "unheard of")), well)
	f("an old kubelet", ReasonUnimplemented, "older", says(kubetest.Fail(codes.Unimplemented, "unknown method List")), well)
	f("no permission", ReasonDenied, "not you", says(kubetest.Fail(codes.PermissionDenied, "not you")), well)
	f("rate limit", ReasonRateLimited, "rejected by rate limit", says(kubetest.Fail(codes.ResourceExhausted, "rejected by rate limit")), well)
	f("nonsense", ReasonMalformed, "unmarshal", says(kubetest.Say([]byte{0xff})), well)
	f("too large", ReasonTooLarge, "100000", func() { kubelet.Set(kubetest.Many(2000, 2000)...) }, func() { kubelet.Set(train("a", "GPU-2", "GPU-1")) })
	f("down", ReasonRefused, "refused", kubelet.Kill, kubelet.Serve)
	f("gone", ReasonAbsent, "no such file", func() { kubelet.Kill(); kubelet.Remove() }, kubelet.Serve)
	if n := r.logs.FilterMessage("mapping works again").Len(); n != 9 {
		t.Errorf("%d recoveries in the log, want 9", n)
	}
}

// A kubelet that restarts is noticed because its socket is replaced, not by the
// period; and what it does not list yet is not believed to be gone.
func TestRestart(t *testing.T) {
	kubelet := kubetest.Start(t)
	kubelet.Set(train("a", "GPU-1"), train("b", "GPU-2"))
	r := start(t, KubeletOptions{Socket: kubelet.Socket(), Period: seldom}, func(k *Kubelet) { k.limits.steady = 300 * time.Millisecond })
	r.owners("ml/a", "ml/b")
	before := r.Snapshot()

	kubelet.Restart()
	if said := r.failing(ReasonRecovering); !strings.Contains(said, "restarted") {
		t.Errorf("%q does not say that the kubelet has restarted", said)
	}
	if got := r.Snapshot(); got.Version != before.Version || !got.Time.Equal(before.Time) {
		t.Errorf("an empty list was believed: %v", got)
	}
	kubelet.Set(train("a", "GPU-1"), train("b", "GPU-2"))
	r.PollSoon()
	r.owners("ml/a", "ml/b")
	if got := r.Snapshot().Version; got != before.Version {
		t.Errorf("version %d, want %d: nothing has changed", got, before.Version)
	}
	if n := kubelet.Connections(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}

	kubelet.Restart(train("c", "GPU-2"), pod("kube-system", "proxy"))
	r.has("ml/a", "ml/c")
	kubelet.Restart(train("a", "GPU-1"))
	r.has("ml/a", "ml/c")
	eventually.True(t, "the one that has ended is gone", func() bool {
		r.PollSoon()
		return gocmp.Equal([]string{"ml/a"}, names(r.Snapshot()))
	})
}

func TestTheSocketsDirectory(t *testing.T) {
	path := kubetest.SocketPath(t)
	dir := filepath.Dir(path)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r := start(t, KubeletOptions{Socket: path, Period: seldom}, func(k *Kubelet) { k.limits.distrust = time.Nanosecond })
	r.failing(ReasonAbsent)
	kubelet := kubetest.At(t, path) // makes the directory
	kubelet.Set(train("a", "GPU-1"))
	kubelet.Serve()
	r.owners("ml/a")

	// Another directory in its place, with the old kubelet still there.
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	other := kubetest.At(t, path)
	other.Set(train("b", "GPU-1"))
	other.Serve()
	r.owners("ml/b")
	other.Kill()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r.PollSoon()
	r.failing(ReasonAbsent)
	third := kubetest.At(t, path)
	third.Set(train("c", "GPU-1"))
	third.Serve()
	r.owners("ml/c")
}

// A file system may give a new socket the number of the old one.
func TestASocketOfAnotherTimeIsAnotherSocket(t *testing.T) {
	kubelet := kubetest.Start(t)
	k := NewKubelet(KubeletOptions{Socket: kubelet.Socket()})
	if _, f := k.list(t.Context()); f != nil {
		t.Fatal(f.err)
	}
	defer k.hangUp()
	if k.replaced() {
		t.Error("the socket is another one at once")
	}
	if err := os.Chtimes(kubelet.Socket(), time.Time{}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if !k.replaced() {
		t.Error("a socket with the same number, made later, is not seen")
	}
	kubelet.Remove()
	if k.replaced() {
		t.Error("a socket that is gone is taken for another one; the connection works")
	}
}
