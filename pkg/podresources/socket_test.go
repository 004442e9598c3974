package podresources

import (
	"cmp"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/pkg/eventually"
	"warpgauge/pkg/mapping"
	"warpgauge/pkg/podresources/podresourcestest"
)

// rig is a Client that runs against a socket.
type rig struct {
	*Client
	t       testing.TB
	health  *mapping.Health
	logs    *observer.ObservedLogs
	changes chan struct{} // one for each OnChange, as far as there is room
}

func start(t testing.TB, o Options) *rig {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	r := &rig{t: t, health: mapping.New(mapping.PodResources, zap.New(core), Reasons()...), logs: logs, changes: make(chan struct{}, 1000)}
	o.gap = cmp.Or(o.gap, quick)
	o.Health, o.Log, o.Keep = r.health, zap.New(core), gpus
	o.OnChange = func() {
		select {
		case r.changes <- struct{}{}:
		default:
		}
	}
	r.Client = New(o)
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

// failing waits until looks fail for a reason, and returns what is said.
func (r *rig) failing(reason string) string {
	r.t.Helper()
	eventually.True(r.t, "it fails for "+reason, func() bool { return r.health.Failing() == reason })
	return r.health.Problem().Error()
}

// owners waits until the Snapshot has those pods and no look fails.
func (r *rig) owners(want ...string) {
	r.t.Helper()
	r.has(want...)
	eventually.True(r.t, "all is well", func() bool { return r.health.Failing() == "" })
}

// has waits until the Snapshot has those pods.
func (r *rig) has(want ...string) {
	r.t.Helper()
	eventually.True(r.t, "the owners are "+strings.Join(want, " ")+" and not "+strings.Join(names(r.Snapshot()), " "), func() bool {
		return r.Snapshot().Version > 0 && gocmp.Equal(append([]string{}, want...), names(r.Snapshot()))
	})
}

func names(s *Snapshot) []string {
	out := []string{}
	for _, p := range s.Pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
}

func train(name string, ids ...string) *v1.PodResources {
	return pod("ml", name, container("main", devices("nvidia.com/gpu", ids...)))
}

// quick looks often; seldom looks when it is told only.
const (
	quick  = 20 * time.Millisecond
	seldom = time.Hour
)

func TestSnapshotOfARealServer(t *testing.T) {
	kubelet := podresourcestest.Start(t)
	kubelet.Shuffle(true)
	kubelet.Limit(podresourcestest.KubeletQPS, podresourcestest.KubeletBurst)
	kubelet.Set(train("a", "GPU-2", "GPU-1"), pod("kube-system", "proxy", container("main")))
	kubelet.SetAllocatable(devices("nvidia.com/gpu", "GPU-1", "GPU-2", "GPU-3").Entry())
	before := time.Now()
	r := start(t, Options{Socket: "unix://" + kubelet.Socket(), Period: quick})
	r.owners("ml/a")
	eventually.True(t, "allocatable devices are told", func() bool { return r.Snapshot().Allocatable != nil })
	s := r.Snapshot()
	if s.Time.Before(before) {
		t.Errorf("time %v, want one after %v", s.Time, before)
	}
	want := &Snapshot{Version: 2, Time: s.Time,
		Pods:        []Pod{{Namespace: "ml", Name: "a", Containers: []Container{{Name: "main", Devices: []Devices{{Resource: "nvidia.com/gpu", IDs: []string{"GPU-1", "GPU-2"}}}}}}},
		Allocatable: []Devices{{Resource: "nvidia.com/gpu", IDs: []string{"GPU-1", "GPU-2", "GPU-3"}}},
	}
	if diff := gocmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	kubelet.Await(podresourcestest.List, 10)
	if got := r.Snapshot(); got.Version != 2 || !got.Time.After(s.Time) {
		t.Errorf("after ten equal answers in another order: version %d, time %v; want 2, later than %v", got.Version, got.Time, s.Time)
	}
	if n := len(r.changes); n != 2 {
		t.Errorf("%d changes were told, want 2: of the pods, of what is allocatable", n)
	}
	if n := kubelet.Connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	if n := kubelet.Calls(podresourcestest.Allocatable); n != 1 { // in the first minute
		t.Errorf("%d calls of GetAllocatableResources, want 1", n)
	}
	kubelet.Set(train("a", "GPU-2", "GPU-1"), train("b", "GPU-3"))
	r.owners("ml/a", "ml/b")
	if got := r.Snapshot().Version; got != 3 {
		t.Errorf("version %d, want 3", got)
	}
}

// Each way in which a socket can be of no use has its own reason, and says where
// and what to do.
func TestWhatIsNoKubelet(t *testing.T) {
	f := func(reason string, parts []string, prepare func(path string)) {
		t.Helper()
		t.Run(reason, func(t *testing.T) {
			path := podresourcestest.SocketPath(t)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			prepare(path)
			r := start(t, Options{Socket: path, Period: quick, Timeout: 200 * time.Millisecond})
			said := r.failing(reason)
			for _, part := range append(parts, path) {
				if !strings.Contains(said, part) {
					t.Errorf("%q does not say %q", said, part)
				}
			}
			if s := r.Snapshot(); s == nil || s.Version != 0 || !s.Time.IsZero() {
				t.Errorf("snapshot %v, want one without an answer", s)
			}
			if n := r.logs.FilterMessageSnippet("mapping fails").Len(); n != 1 {
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
		return func(path string) { podresourcestest.Garbage(t, path, []byte(b)) }
	}
	f(ReasonAbsent, []string{"no such file", "mount the socket's directory"}, func(string) {})
	f(ReasonNotASocket, []string{"a directory", "--pod-resources-kubelet-socket"}, func(path string) {
		if err := os.Mkdir(path, 0o750); err != nil {
			t.Fatal(err)
		}
	})
	f(ReasonNotASocket, []string{"a plain file"}, write("x"))
	f(ReasonNotASocket, []string{"another kind"}, listen("unixgram"))
	f(ReasonRefused, []string{"refused", "mount its directory"}, func(path string) {
		k := podresourcestest.At(t, path)
		k.Serve()
		k.Kill()
	})
	f(ReasonNotGRPC, []string{"does not speak gRPC"}, says("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f(ReasonNotGRPC, []string{"does not speak gRPC"}, says(strings.Repeat("\xff", 1000)))
	f(ReasonTimeout, []string{"no answer in time"}, says(""))
	f(ReasonUnimplemented, []string{"no kubelet's"}, func(path string) {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		go s.Serve(l)
		t.Cleanup(s.Stop)
	})
}

func TestNoPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may do all; see TestWhatTheSystemSays")
	}
	kubelet := podresourcestest.Start(t)
	if err := os.Chmod(kubelet.Socket(), 0); err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{Socket: kubelet.Socket(), Period: quick})
	if said := r.failing(ReasonDenied); !strings.Contains(said, "run as root") {
		t.Error(said)
	}
}

func TestWhatTheSystemSays(t *testing.T) {
	f := func(f *failure, reason, part string) {
		t.Helper()
		if said := f.err.Error(); f.reason != reason || !strings.Contains(said, part) || strings.Count(said, "/k.sock") != 1 {
			t.Errorf("%s: %q, want %s: %q, and the path once", f.reason, said, reason, part)
		}
	}
	stat := func(e error) *failure {
		return statFailure("/k.sock", &os.PathError{Op: "stat", Path: "/k.sock", Err: e})
	}
	dial := func(e error) *failure {
		return dialFailure("/k.sock", &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: "/k.sock"}, Err: os.NewSyscallError("connect", e)})
	}
	f(stat(syscall.ENOENT), ReasonAbsent, "no such file or directory")
	f(stat(syscall.ENOTDIR), ReasonAbsent, "not a directory")
	f(stat(syscall.EACCES), ReasonDenied, "run as root")
	f(stat(syscall.EIO), ReasonError, "input/output error")
	f(dial(syscall.ENOENT), ReasonAbsent, "no such file or directory")
	f(dial(syscall.EACCES), ReasonDenied, "run as root")
	f(dial(syscall.ECONNREFUSED), ReasonRefused, "kubelet is down")
	f(dial(syscall.EPROTOTYPE), ReasonNotASocket, "another kind")
	f(dial(syscall.EAGAIN), ReasonTimeout, "hangs")
	f(dial(syscall.EMFILE), ReasonError, "too many open files")
}

// Whatever a kubelet does once it has answered, the last good answer stays.
func TestWhateverGoesWrongTheLastAnswerStays(t *testing.T) {
	kubelet := podresourcestest.Start(t)
	kubelet.Set(train("a", "GPU-1"))
	kubelet.SetAllocatable(devices("nvidia.com/gpu", "GPU-1").Entry())
	r := start(t, Options{Socket: kubelet.Socket(), Period: quick, Timeout: 100 * time.Millisecond, MaxMessage: 100_000})
	eventually.True(t, "all is told", func() bool { return len(r.Snapshot().Pods) == 1 && len(r.Snapshot().Allocatable) == 1 })
	good := r.Snapshot()
	f := func(name, reason, part string, misbehave func(), behave func()) {
		t.Helper()
		misbehave()
		if said := r.failing(reason); !strings.Contains(said, part) || !strings.Contains(said, kubelet.Socket()) {
			t.Errorf("%s: %q does not say %q", name, said, part)
		}
		if s := r.Snapshot(); s.Version != good.Version || !gocmp.Equal(s.Pods, good.Pods) || !gocmp.Equal(s.Allocatable, good.Allocatable) {
			t.Errorf("%s: the snapshot has changed: %v", name, s)
		}
		behave()
		r.owners("ml/a")
	}
	says := func(b podresourcestest.Behaviour) func() {
		return func() { kubelet.On(podresourcestest.List, b) }
	}
	well := says(nil)
	f("silence", ReasonTimeout, "in time", says(podresourcestest.Silence()), well)
	f("too slow", ReasonTimeout, "in time", says(podresourcestest.Slow(time.Hour)), well)
	f("an error", ReasonError, "unheard of", says(podresourcestest.Fail(codes.Unknown, "unheard of")), well)
	f("an old kubelet", ReasonUnimplemented, "older", says(podresourcestest.Fail(codes.Unimplemented, "unknown method List")), well)
	f("no permission", ReasonDenied, "not you", says(podresourcestest.Fail(codes.PermissionDenied, "not you")), well)
	f("rate limit", ReasonRateLimited, "rejected by rate limit", func() { kubelet.Limit(1.0/3600, 1); kubelet.Exhaust() }, func() { kubelet.Limit(0, 0) })
	f("nonsense", ReasonMalformed, "not a protobuf message", says(podresourcestest.Say([]byte{0xff})), well)
	f("too large", ReasonTooLarge, "100000", func() { kubelet.Set(podresourcestest.Many(2000, 2000)...) }, func() { kubelet.Set(train("a", "GPU-1")) })
	f("down", ReasonRefused, "refused", kubelet.Kill, kubelet.Serve)
	f("gone", ReasonAbsent, "no such file", func() { kubelet.Kill(); kubelet.Remove() }, kubelet.Serve)
	if n := r.logs.FilterMessage("mapping is up to date again").Len(); n != 10 {
		t.Errorf("%d recoveries in the log, want 10", n)
	}
}

func TestPartsThatCannotBeUsed(t *testing.T) {
	kubelet := podresourcestest.Start(t)
	bad := raw(listPods, raw(podName, "\xff", podNamespace, "ns", podContainers, raw(containerName, "c", containerDevices, raw(devicesResource, "nvidia.com/gpu", devicesIDs, "GPU-9"))))
	kubelet.On(podresourcestest.List, podresourcestest.Say(append(bad, listOf(t, train("a", "GPU-1"))...)))
	r := start(t, Options{Socket: kubelet.Socket(), Period: quick})
	r.owners("ml/a")
	kubelet.Await(podresourcestest.List, 3)
	kubelet.On(podresourcestest.List, nil)
	r.owners()
	lines := r.logs.FilterMessageSnippet("of the kubelet's list").All()
	if len(lines) != 2 || !strings.Contains(lines[0].ContextMap()["first"].(string), "not UTF-8") {
		t.Errorf("log: %v", lines)
	}
}

// A kubelet that restarts is noticed because its socket is made anew, not by a
// timer; and what it does not list yet is not believed to be gone.
func TestRestart(t *testing.T) {
	kubelet := podresourcestest.Start(t)
	kubelet.Set(train("a", "GPU-1"), train("b", "GPU-2"))
	r := start(t, Options{Socket: kubelet.Socket(), Period: seldom, Settle: 300 * time.Millisecond})
	r.owners("ml/a", "ml/b")
	eventually.True(t, "all is told", func() bool { return r.Snapshot().Allocatable != nil })
	before := r.Snapshot()

	kubelet.Restart()
	if said := r.failing(ReasonRecovering); !strings.Contains(said, "restarted") {
		t.Errorf("%q does not say that the kubelet has restarted", said)
	}
	if got := r.Snapshot(); got.Version != before.Version || !got.Time.Equal(before.Time) {
		t.Errorf("an empty list was believed: %v", got)
	}
	kubelet.Set(train("a", "GPU-1"), train("b", "GPU-2"))
	r.Suspect()
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
		r.Suspect()
		return gocmp.Equal([]string{"ml/a"}, names(r.Snapshot()))
	})
}

func TestTheSocketsDirectory(t *testing.T) {
	path := podresourcestest.SocketPath(t)
	dir := filepath.Dir(path)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{Socket: path, Period: seldom, Distrust: time.Nanosecond})
	r.failing(ReasonAbsent)
	kubelet := podresourcestest.At(t, path) // makes the directory
	kubelet.Set(train("a", "GPU-1"))
	kubelet.Serve()
	r.owners("ml/a")

	// Another directory in its place, with the old kubelet still there.
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	other := podresourcestest.At(t, path)
	other.Set(train("b", "GPU-1"))
	other.Serve()
	r.owners("ml/b")
	other.Kill()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r.failing(ReasonAbsent)
	third := podresourcestest.At(t, path)
	third.Set(train("c", "GPU-1"))
	third.Serve()
	r.owners("ml/c")
}

// Where the system tells of nothing, the socket is looked at with each look.
func TestWithoutNotification(t *testing.T) {
	kubelet := podresourcestest.Start(t)
	kubelet.Set(train("a", "GPU-1"))
	r := start(t, Options{Socket: kubelet.Socket(), Period: quick, Distrust: time.Nanosecond,
		open: func() (*fsnotify.Watcher, error) { return nil, os.ErrPermission }})
	r.owners("ml/a")
	if r.logs.FilterMessageSnippet("does not tell when the kubelet restarts").Len() != 1 {
		t.Errorf("log: %v", r.logs.All())
	}
	if err := os.Rename(kubelet.Socket(), kubelet.Socket()+".old"); err != nil { // its kubelet goes on
		t.Fatal(err)
	}
	other := podresourcestest.At(t, kubelet.Socket())
	other.Set(train("b", "GPU-1"))
	other.Serve()
	r.owners("ml/b")
}

// A file system may give a new socket the number of the old one.
func TestASocketOfAnotherTimeIsAnotherSocket(t *testing.T) {
	kubelet := podresourcestest.Start(t)
	k, f := New(Options{Socket: kubelet.Socket()}).o.dial(t.Context())
	if f != nil {
		t.Fatal(f.err)
	}
	defer k.close()
	if k.stale() {
		t.Error("the socket is stale at once")
	}
	if err := os.Chtimes(kubelet.Socket(), time.Time{}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if !k.stale() {
		t.Error("a socket with the same number, made later, is not seen")
	}
	kubelet.Remove()
	if k.stale() {
		t.Error("a socket that is gone is another one; the connection works")
	}
}

func TestSilenceOnAllocatableHoldsUpNothing(t *testing.T) {
	kubelet := podresourcestest.Start(t)
	kubelet.Set(train("a", "GPU-1"))
	kubelet.On(podresourcestest.Allocatable, podresourcestest.Silence())
	r := start(t, Options{Socket: kubelet.Socket(), Period: quick, Timeout: time.Minute})
	r.has("ml/a")
	eventually.True(t, "that is a success", func() bool { return r.health.Tried() && r.health.Failing() == "" })
}

func TestAllocatableThatIsNotServed(t *testing.T) {
	kubelet := podresourcestest.Start(t)
	kubelet.Set(train("a", "GPU-1"))
	kubelet.SetAllocatable(devices("nvidia.com/gpu", "GPU-1").Entry())
	kubelet.On(podresourcestest.Allocatable, podresourcestest.Fail(codes.Unimplemented, "no"))
	r := start(t, Options{Socket: kubelet.Socket(), Period: quick, AllocatablePeriod: quick})
	r.owners("ml/a")
	kubelet.Await(podresourcestest.Allocatable, 3)
	if s := r.Snapshot(); s.Allocatable != nil || s.Version != 1 {
		t.Errorf("allocatable %v, version %d, want nil, 1", s.Allocatable, s.Version)
	}
	kubelet.On(podresourcestest.Allocatable, nil)
	eventually.True(t, "it is told", func() bool { return len(r.Snapshot().Allocatable) == 1 })
	kubelet.On(podresourcestest.Allocatable, podresourcestest.Fail(codes.Internal, "broken"))
	eventually.True(t, "that is told", func() bool { return r.logs.FilterMessageSnippet("does not tell which devices").Len() == 2 })
	if s := r.Snapshot(); len(s.Allocatable) != 1 || s.Version != 2 || r.health.Failing() != "" {
		t.Errorf("allocatable %v, version %d, failing %q, want those before", s.Allocatable, s.Version, r.health.Failing())
	}
}
