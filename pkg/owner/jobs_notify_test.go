package owner

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
)

// The tests of this file rest on notification: the directory is not polled.

func startNotified(t *testing.T, dir string) *jobRig {
	t.Helper()
	r := startJobs(t, dir, func(j *JobDirectory) { j.period = time.Hour })
	eventually.True(t, "the directory was read", func() bool { return r.Health.State().Tried })
	return r // what follows is seen by notification only
}

func TestNotifiedOfFiles(t *testing.T) {
	r := startNotified(t, t.TempDir())
	r.replace("0", "17\n")
	r.soon("renamed into place", jobsBy{"0": {"17"}})
	r.write("1", "17\n18\n")
	r.soon("written in place", jobsBy{"0": {"17"}, "1": {"17", "18"}})
	r.write("0", "19")
	r.soon("rewritten without end of line", jobsBy{"0": {"19"}, "1": {"17", "18"}})
	h, err := os.OpenFile(r.path("0"), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	fmt.Fprint(h, "9\n20\n")
	must(t, h.Close())
	r.soon("appended", jobsBy{"0": {"199", "20"}, "1": {"17", "18"}})
	must(t, os.Remove(r.path("0")))
	r.soon("removed", jobsBy{"1": {"17", "18"}})
	must(t, os.Rename(r.path("1"), r.path("3.1")))
	r.soon("renamed", jobsBy{"3.1": {"17", "18"}})
	must(t, os.Rename(r.path("3.1"), r.path("old")))
	r.soon("renamed away", jobsBy{})
}

func TestNotifiedOfDirectories(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "jobs")
	r := startNotified(t, dir)
	for i := range 5 {
		job := fmt.Sprint(i)
		must(t, os.Mkdir(dir, 0o755))
		r.replace("0", job+"\n")
		r.soon("created", jobsBy{"0": {job}})
		r.replace("1", job+"\n")
		r.soon("written", jobsBy{"0": {job}, "1": {job}})

		// Another one takes its place, first by two renames, then after a removal.
		must(t, os.Mkdir(dir+".new", 0o755))
		must(t, os.WriteFile(filepath.Join(dir+".new", "2"), []byte(job+"\n"), 0o644))
		must(t, os.Rename(dir, dir+".old"))
		must(t, os.Rename(dir+".new", dir))
		r.soon("replaced", jobsBy{"2": {job}})
		must(t, os.RemoveAll(dir+".old"))
		r.replace("2", "2\n")
		r.soon("written after it was replaced", jobsBy{"2": {"2"}})
		must(t, os.RemoveAll(dir))
		must(t, os.Mkdir(dir, 0o755))
		r.replace("3", job+"\n")
		r.soon("removed and created", jobsBy{"3": {job}})
		must(t, os.RemoveAll(dir))
	}
}

// TestNotifiedOfLinks: as a ConfigMap is mounted, and a directory that is a link.
func TestNotifiedOfLinks(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"a", "b"} {
		must(t, os.MkdirAll(filepath.Join(root, "elsewhere", d), 0o755))
	}
	dir := filepath.Join(root, "jobs")
	symlink(t, "elsewhere/a", dir)
	r := startNotified(t, dir)
	r.replace("0", "17\n")
	r.soon("through the link", jobsBy{"0": {"17"}})
	symlink(t, filepath.Join(root, "elsewhere/b"), dir)
	r.soon("another directory is empty", jobsBy{})
	r.replace("0", "18\n")
	r.soon("through the new link", jobsBy{"0": {"18"}})

	must(t, os.Mkdir(r.path("..v1"), 0o755))
	must(t, os.WriteFile(r.path("..v1/0"), []byte("19\n"), 0o644))
	symlink(t, "..v1", r.path("..data"))
	symlink(t, "..data/0", r.path("0"))
	r.soon("a file that is a link", jobsBy{"0": {"19"}})
}

// symlink makes or replaces a symbolic link atomically.
func symlink(t *testing.T, target, path string) {
	t.Helper()
	must(t, os.Symlink(target, path+".tmp"))
	must(t, os.Rename(path+".tmp", path))
}

// TestDescriptorsOfJobs: nothing stays open, whatever happens to the directory.
func TestDescriptorsOfJobs(t *testing.T) {
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc:", err)
		}
		return len(names)
	}
	dir := filepath.Join(t.TempDir(), "jobs")
	// The runtime opens descriptors for the first watcher.
	first := startJobs(t, dir, nil)
	first.stop()
	before := open()
	r := startJobs(t, dir, func(j *JobDirectory) { j.period = time.Millisecond })
	for i := range 20 {
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.Symlink("/etc/passwd", r.path("5")))
		r.replace("0", fmt.Sprintln(i))
		r.soon("written", jobsBy{"0": {fmt.Sprint(i)}})
		must(t, os.RemoveAll(dir))
	}
	// A read in progress holds the directory; Run has ended when none is.
	r.stop()
	if after := open(); after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}
