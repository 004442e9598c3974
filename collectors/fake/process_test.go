package fake

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warpgauge/pkg/field"
)

// specVariable makes this test binary the child of a test: it samples a node
// with that spec until it dies, or for half a second.
const specVariable = "FAKE_TEST_SPEC"

// TestChild is not a test of its own.
func TestChild(t *testing.T) {
	text, ok := os.LookupEnv(specVariable)
	if !ok {
		t.Skip("runs in the processes that other tests start")
	}
	spec, err := ParseSpec(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWorld(Options{Spec: spec, Isolated: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Release()
	time.Sleep(time.Millisecond) // the runtime's poller needs descriptors of its own
	sources, err := w.Collector().Open(context.Background(), list(t, "DCGM_FI_DEV_GPU_TEMP"))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err := sources[0].Sample(make([]float64, 1), []bool{true}); err != nil {
			t.Fatal(err)
		}
	}
	os.Stdout.WriteString("alive\n")
}

// inChild runs TestChild. Its descriptor 3 is the other end of the socket.
func inChild(t *testing.T, spec string) (state *os.ProcessState, output string, socket *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { ours.Close() })
	defer theirs.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), specVariable+"="+spec)
	cmd.ExtraFiles = []*os.File{theirs}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState, out.String(), ours
}

func TestDeaths(t *testing.T) {
	for _, tt := range []struct {
		spec   string
		code   int
		output string
	}{
		{"faults: [{kind: crash}]", 2, "SIGSEGV"},
		{"faults: [{at: 100ms, kind: crash}]", 2, "SIGSEGV"},
		{"faults: [{kind: abort}]", 2, "Assertion `used < size' failed.\nSIGABRT"},
		{"faults: [{kind: abort, message: no more}]", 2, "no more\nSIGABRT"},
		{"faults: [{kind: exit, status: 3}]", 3, ""},
		{"faults: [{kind: exit}]", 0, ""},
	} {
		t.Run(tt.spec, func(t *testing.T) {
			t.Parallel()
			state, out, _ := inChild(t, tt.spec)
			if state.ExitCode() != tt.code || !strings.Contains(out, tt.output) || strings.Contains(out, "alive") {
				t.Errorf("%s: %v, want code %d and %q in\n%s", tt.spec, state, tt.code, tt.output, out)
			}
		})
	}
}

// TestOnce: a child that was started after the fault began is spared.
func TestOnce(t *testing.T) {
	start := time.Now().Add(-time.Minute)
	for _, tt := range []struct {
		fault Fault
		hit   bool
	}{
		{Fault{Kind: Crash, At: 30 * time.Second}, true},
		{Fault{Kind: Crash, At: 30 * time.Second, Once: true}, false},
		{Fault{Kind: Crash, At: 59 * time.Second, For: 500 * time.Millisecond}, false},
		{Fault{Kind: Crash, At: 59 * time.Second, For: time.Hour}, true},
		{Fault{Kind: Crash, At: 2 * time.Minute}, false},
	} {
		w := newWorld(t, Options{Spec: &Spec{Faults: []Fault{tt.fault}}, Isolated: true, Start: start})
		if got := w.process.hit(w.timeline.Load().faults[0], w.elapsed()); got != tt.hit {
			t.Errorf("%+v in a child started after a minute: hit %v, want %v", tt.fault, got, tt.hit)
		}
	}
	w := newWorld(t, Options{Isolated: true, Start: time.Now()})
	if f := (&fault{Fault: Fault{Once: true, At: time.Minute}}); !w.process.hit(f, 2*time.Minute) {
		t.Error("a child that was there before the fault is spared")
	}
	path, on, off := switchFile(t)
	f := &fault{Fault: Fault{Once: true, While: path}, start: time.Now().Add(-time.Hour)}
	on()
	for born, hit := range map[time.Duration]bool{30 * time.Minute: true, 90 * time.Minute: false} {
		if got := newProcess(born, 1).hit(f, 2*time.Hour); got != hit {
			t.Errorf("the file was made after an hour, the child started after %v: hit %v, want %v", born, got, hit)
		}
	}
	off()
	if newProcess(0, 1).hit(f, 2*time.Hour) {
		t.Error("hit without the file")
	}
}

// TestNotWithoutAChild: in the exporter's own process these faults are refused.
func TestNotWithoutAChild(t *testing.T) {
	for kind := range faultKeys {
		f := Fault{Kind: kind, GPUs: index(0), Delay: 1, Field: field.All()[0], XID: 1, Watch: "MEM", Rate: 1}
		_, err := NewWorld(Options{Spec: &Spec{Faults: []Fault{f}}})
		if refused := err != nil; refused != kind.has("once") || refused && !strings.Contains(err.Error(), "--isolation=process") {
			t.Errorf("%s in a spec: %v", kind, err)
		}
		w := newWorld(t, Options{})
		if _, err := w.Inject(f); (err != nil) != kind.has("once") {
			t.Errorf("inject %s: %v", kind, err)
		}
		if _, err := NewWorld(Options{Spec: &Spec{Faults: []Fault{f}}, Isolated: true}); err != nil {
			t.Errorf("%s in a child: %v", kind, err)
		}
	}
}

func TestLeak(t *testing.T) {
	now := time.Now()
	w := newWorld(t, Options{Spec: &Spec{Faults: []Fault{{Kind: Leak, At: time.Second, Rate: 8}}}, Isolated: true, Now: func() time.Time { return now }})
	s := openNode(t, w, list(t, "DCGM_FI_DEV_GPU_TEMP")).sources[0]
	for second, want := range []int{0, 0, 8, 16, 24} {
		if err := s.Sample(make([]float64, 1), []bool{true}); err != nil {
			t.Fatal(err)
		}
		if got := len(w.process.leaked[w.timeline.Load().faults[0]]); got != want {
			t.Errorf("second %d: %d MiB leaked, want %d", second, got, want)
		}
		now = now.Add(time.Second)
	}
}

// TestExhaust lets a child sample without descriptors, and again with some.
func TestExhaust(t *testing.T) {
	if state, out, _ := inChild(t, "faults: [{kind: fds, for: 200ms}]"); !state.Success() || !strings.Contains(out, "alive") {
		t.Errorf("%v:\n%s", state, out)
	}
}

func TestBabble(t *testing.T) {
	state, out, socket := inChild(t, "faults: [{kind: garbage}]")
	if !state.Success() || !strings.Contains(out, "alive") {
		t.Errorf("%v:\n%s", state, out)
	}
	b := make([]byte, 1<<16)
	if n, err := socket.Read(b); err != nil || n == 0 {
		t.Errorf("the other end of the socket reads %d bytes, error %v", n, err)
	}
}

// TestScribble changes shared memory, and nothing else.
func TestScribble(t *testing.T) {
	fd, err := unix.MemfdCreate("scribble", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const size = 1 << 16
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	shared, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(shared)
	newProcess(0, 1).scribble()
	if slices.Equal(shared, make([]byte, size)) {
		t.Error("the shared memory is as before")
	}
}
