package owner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
)

// hungMount mounts a file system whose server never answers, as a network file
// system whose server is away. fail lets all that wait for it fail, unmount takes
// it away.
func hungMount(t *testing.T, dir string) (fail, unmount func()) {
	t.Helper()
	fd, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no file system can be made to hang:", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := syscall.Mount("warpgauge-test", dir, "fuse", 0, options); err != nil {
		syscall.Close(fd)
		t.Skip("no file system can be made to hang:", err)
	}
	fail = sync.OnceFunc(func() { syscall.Close(fd) }) // those who wait get ENOTCONN
	unmount = sync.OnceFunc(func() {
		fail()
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %q: %v", dir, err)
		}
	})
	t.Cleanup(unmount)
	return fail, unmount
}

// TestHang: while the file system hangs, the last jobs are there for all
// readers, and Run ends all the same.
func TestHang(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	must(t, os.Mkdir(dir, 0o755))
	r := startJobs(t, dir, func(j *JobDirectory) {
		j.period, j.hangs, j.notify = 5*time.Millisecond, 200*time.Millisecond, noNotify
	})
	r.replace("0", "17\n")
	r.soon("before", jobsBy{"0": {"17"}})
	fail, unmount := hungMount(t, dir)
	eventually.True(t, "the hang is reported", func() bool { return r.Health.State().Failing == ReasonTimeout })
	r.want("while it hangs", jobsBy{"0": {"17"}})
	fail()
	eventually.True(t, "the error is reported", func() bool { return r.Health.State().Failing == ReasonIO })
	r.want("when it fails", jobsBy{"0": {"17"}})
	unmount()
	eventually.True(t, "success is reported", func() bool { return r.Health.State().Failing == "" })
	r.want("when it is back", jobsBy{"0": {"17"}})

	fail, _ = hungMount(t, dir)
	eventually.True(t, "the next hang is reported", func() bool { return r.Health.State().Failing == ReasonTimeout })
	r.stop()
	if lines := strings.Join(r.logged(), "\n"); !strings.Contains(lines, "abandoned") {
		t.Errorf("log %q does not say what was abandoned", lines)
	}
	fail() // so that the goroutine that was left behind ends, too
}
