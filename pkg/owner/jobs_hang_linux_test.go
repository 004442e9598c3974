package owner

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/hungfs"
)

// TestHang: while the file system hangs, readers get the last jobs.
func TestHang(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	must(t, os.Mkdir(dir, 0o755))
	r := startJobs(t, dir, 10*time.Millisecond)
	r.replace("0", "17\n")
	r.soon("before", jobsBy{"0": {"17"}})
	fail, unmount := hungfs.Mount(t, dir)
	eventually.True(t, "the hang is reported", func() bool { return r.Health.State().Failing == ReasonTimeout })
	r.want("while it hangs", jobsBy{"0": {"17"}})
	fail()
	eventually.True(t, "the error is reported", func() bool { return r.Health.State().Failing == ReasonIO })
	r.want("when it fails", jobsBy{"0": {"17"}})
	unmount()
	eventually.True(t, "success is reported", func() bool { return r.Health.State().Failing == "" })
	r.want("when it is back", jobsBy{"0": {"17"}})
}
