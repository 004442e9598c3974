package ring_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/ring"

	"warpgauge/internal/testkit"
)

func create(t *testing.T, words int) *ring.Region {
	t.Helper()
	r := testkit.Get(ring.CreateRegion(words))(t)
	t.Cleanup(func() { _ = r.CloseFD() })
	return r
}

// dup returns a second descriptor, as the other process gets one.
func dup(t *testing.T, fd int) int {
	t.Helper()
	n := testkit.Get(unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0))(t)
	return n
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

// TestNobodyCanResize: removing a page would end the reader with SIGBUS, and a missing page could be refused when it
// is touched.
func TestNobodyCanResize(t *testing.T) {
	const words = 1 << 17
	r := create(t, words)
	var st unix.Stat_t
	if err := unix.Fstat(r.FD(), &st); err != nil || st.Size != words*8 || st.Blocks*512 < words*8 {
		t.Errorf("%d of %d bytes exist, %v", st.Blocks*512, st.Size, err)
	}
	for _, size := range []int64{0, 8, 1 << 21} {
		testkit.Equal(t, fmt.Sprintf("ftruncate to %d", size), unix.EPERM, unix.Ftruncate(r.FD(), size))
	}
	if _, err := unix.FcntlInt(uintptr(r.FD()), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("seal against writing: %v, want %v", err, unix.EPERM)
	}
	flags, err := unix.FcntlInt(uintptr(r.FD()), unix.F_GETFD, 0)
	testkit.ErrorIf(t, err != nil || flags&unix.FD_CLOEXEC == 0, "flags of the descriptor are %#x, %v: a child would inherit it", flags, err)
}

func TestOpenRefusesOtherDescriptors(t *testing.T) {
	const all = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	f := func(what string, size int64, seals int, want string) {
		t.Helper()
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		testkit.Must(t, err)
		testkit.Must(t, unix.Ftruncate(fd, size))
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		_, err = ring.OpenRegion(fd)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want an error with %q", what, err, want)
		}
		testkit.Equal(t, what+": the descriptor is open", false, isOpen(fd))
	}
	f("sealed", 4096, all, "")
	f("not sealed", 4096, 0, "seals are 0x0")
	f("may shrink", 4096, unix.F_SEAL_GROW|unix.F_SEAL_SEAL, "seals")
	f("may be sealed against writing later", 4096, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW, "seals")
	f("sealed against writing", 4096, all|unix.F_SEAL_WRITE, "seals")
	f("empty", 0, all, "size is 0 bytes")
	f("not whole words", 4097, all, "size is 4097 bytes")
	f("too large", (ring.MaxRegionWords+1)*8, all, "size is")

	file := testkit.Get(os.CreateTemp(t.TempDir(), ""))(t)
	defer file.Close()
	_, err := ring.OpenRegion(dup(t, int(file.Fd())))
	testkit.ErrorIf(t, err == nil, "an ordinary file was taken for shared memory")
	_, err = ring.OpenRegion(-1)
	testkit.ErrorIf(t, err == nil, "no descriptor at all was taken for shared memory")
}

func TestProtectedMemoryCanBeReadOnly(t *testing.T) {
	r := create(t, ring.Words(4, 1, 1))
	other, err := ring.OpenRegion(dup(t, r.FD()))
	testkit.Must(t, err)
	reader := ring.New(r.Words(), 4, 1, 1)
	testkit.Must(t, r.Protect())
	writer := testkit.Get(ring.Attach(other.Words(), 4, 1, 1))(t)
	writer.Append(1, []int64{2}, []float64{3})
	var row ring.Row
	testkit.ErrorIf(t, !reader.Latest(&row) || row.Cells[0] != 3, "read %+v", row)
	// A write would cause a fault that even recover does not survive under the race detector, so ask the kernel.
	testkit.Equal(t, "permissions of the protected mapping", "r--s", permissions(t, r))
	testkit.Equal(t, "permissions of the writer's mapping", "rw-s", permissions(t, other))
}

// maps returns the mappings of this process.
func maps(t *testing.T) string {
	t.Helper()
	text := testkit.Get(os.ReadFile("/proc/self/maps"))(t)
	return string(text)
}

// permissions returns the permissions of a region's mapping.
func permissions(t *testing.T, r *ring.Region) string {
	t.Helper()
	begin := strings.TrimPrefix(fmt.Sprintf("%p", &r.Words()[0]), "0x") + "-"
	for line := range strings.Lines(maps(t)) {
		if rest, ok := strings.CutPrefix(line, begin); ok {
			return strings.Fields(rest)[1]
		}
	}
	return "not mapped"
}

// mapped returns how many of our mappings this process has.
func mapped(t *testing.T) int {
	t.Helper()
	return strings.Count(maps(t), "memfd:warpgauge-ring")
}

// TestMemoryLivesAsLongAsItsRing: the words alone do not keep the memory; the ring does, and a follower keeps
// its ring.
func TestMemoryLivesAsLongAsItsRing(t *testing.T) {
	awaitMapped(t, 0) // garbage of earlier tests
	follower := func() *ring.Follower {
		region := testkit.Get(ring.CreateRegion(ring.Words(4, 1, 1)))(t)
		testkit.Must(t, region.CloseFD())
		r := ring.New(region.Words(), 4, 1, 1)
		r.Keep(region)
		r.Append(1, []int64{2}, []float64{3})
		return r.Follow()
	}()
	for range 5 {
		runtime.GC()
	}
	got := mapped(t)
	testkit.FatalIf(t, got != 1, "%d mappings while a follower is in use, want 1", got)
	var row ring.Row
	testkit.ErrorIf(t, !follower.Next(&row) || row.Cells[0] != 3, "read %+v", row)
	runtime.KeepAlive(follower)
	awaitMapped(t, 0)
}

// awaitMapped collects garbage until the cleanups have run, which takes a moment.
func awaitMapped(t *testing.T, want int) {
	t.Helper()
	eventually.OK(t, "mappings given back", func() error {
		runtime.GC()
		if got := mapped(t); got != want {
			return fmt.Errorf("%d mappings, want %d", got, want)
		}
		return nil
	})
}

// TestNothingIsLeftBehind creates many regions and forgets them.
func TestNothingIsLeftBehind(t *testing.T) {
	awaitMapped(t, 0)
	open := func() int {
		fds := testkit.Get(os.ReadDir("/proc/self/fd"))(t)
		return len(fds)
	}
	descriptors := open()
	for range 300 {
		r := testkit.Get(ring.CreateRegion(1000))(t)
		testkit.Get(ring.OpenRegion(dup(t, r.FD())))(t)
	}
	awaitMapped(t, 0)
	eventually.True(t, "descriptors closed", func() bool { return open() == descriptors })
}

// TestCreateSaysWhyThereIsNone: running out of descriptors is an ordinary error.
func TestCreateSaysWhyThereIsNone(t *testing.T) {
	for _, words := range []int{-1, 0, ring.MaxRegionWords + 1} {
		_, err := ring.CreateRegion(words)
		testkit.ErrorIf(t, err == nil, "Create(%d) succeeded", words)
	}
	var was unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	none := was
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Skipf("skipped: cannot lower the limit of descriptors: %v", err)
	}
	_, err := ring.CreateRegion(8)
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	testkit.ErrorIf(t, !errors.Is(err, unix.EMFILE), "got %v, want %v", err, unix.EMFILE)
}
