package owner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warpgauge/pkg/kube"
)

func TestDirectoryThatIsMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	synctest.Test(t, func(t *testing.T) {
		r := startJobs(t, dir, polling)
		h := r.Health
		pass(time.Minute)
		if s := r.Snapshot(); s.Version != 0 || !s.Time.IsZero() || len(s.ByDevice) != 0 {
			t.Errorf("snapshot of nothing is %+v", s)
		}
		if got := h.State().Failing; got != ReasonMissing {
			t.Errorf("failing for %q, want %s", got, ReasonMissing)
		}
		must(t, os.MkdirAll(dir, 0o755))
		pass(10 * time.Millisecond)
		if s := r.Snapshot(); s.Version != 0 || s.Time.IsZero() || h.State().Failing != "" {
			t.Errorf("snapshot of an empty directory is %+v, failing for %q", s, h.State().Failing)
		}
		r.replace("0", "17\n")
		pass(time.Second)
		r.want("came", jobsBy{"0": {"17"}})

		must(t, os.Rename(dir, dir+".old"))
		pass(jobGrace - 20*time.Millisecond)
		r.want("gone for a moment", jobsBy{"0": {"17"}})
		pass(40 * time.Millisecond)
		r.want("gone for good", jobsBy{})
		must(t, os.Rename(dir+".old", dir))
		pass(time.Second)
		r.want("back", jobsBy{"0": {"17"}})
		r.stop()
	})
}

// TestVersionsOfJobs: the version grows with the jobs, and only then is there a call.
func TestVersionsOfJobs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := startJobs(t, dir, polling)
		version := func(when string, want uint64) {
			t.Helper()
			pass(3 * time.Second)
			if s := r.Snapshot(); s.Version != want || r.changes != int(want) || time.Since(s.Time) > 20*time.Millisecond {
				t.Errorf("%s: version %d, %d changes, confirmed %v ago; want version %d", when, s.Version, r.changes, time.Since(s.Time), want)
			}
		}
		version("empty", 0)
		r.replace("0", "17\n")
		version("a job", 1)
		r.replace("0", "17\n")
		version("the same job", 1)
		r.write("note.txt", "hello")
		version("not our file", 1)
		r.write("1", "")
		version("no job", 1)
		kept := r.Snapshot()
		r.replace("1", "18\n19\n")
		version("two jobs", 2)
		if diff := cmp.Diff(jobsBy{"0": {"17"}}, kept.ByDevice); diff != "" {
			t.Errorf("a snapshot that was given out has changed (-want +got):\n%s", diff)
		}
		r.replace("1", "19\n18\n")
		version("another order", 3)
		r.stop()
	})
}

// TestWhatIsNoJobFile: everything that can be in a directory, next to one good
// file. None of it blocks, and each is reported once.
func TestWhatIsNoJobFile(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("secret\n"), 0o600))
	var h *kube.Health
	for _, name := range []string{".0.tmp", "0~", "#0#", "0.1.2", "a", "0.", ".0", "0.x", "-1", "+1", "0 ", "０", ".nfs000000000000a1b2"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("99\n"), 0o644))
	}
	for name, text := range map[string]string{
		"0": "17\n", "00": "99\n", "07.1": "99\n", "1.00": "99\n", "99999999999999999999": "99\n", "123456": "99\n",
		"2": strings.Repeat("x", maxJobID+1) + "\n18\n",
		"3": "\x7fELF\x02\x01\x01\x00\n99\n", "4": "caf\xe9\n", "5": "a\x1b[31mb\n19\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	var many strings.Builder
	for i := range maxJobs + 5 {
		fmt.Fprintf(&many, "%d\n", i)
	}
	must(t, os.WriteFile(filepath.Join(dir, "6"), []byte(many.String()), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "7"), nil, 0o644))
	must(t, os.Truncate(filepath.Join(dir, "7"), 1<<40))
	must(t, os.Mkdir(filepath.Join(dir, "8"), 0o755))
	must(t, syscall.Mkfifo(filepath.Join(dir, "9"), 0o644))
	must(t, os.Symlink(outside, filepath.Join(dir, "10")))
	must(t, os.Symlink("/dev/zero", filepath.Join(dir, "11")))
	must(t, os.Symlink("12", filepath.Join(dir, "12")))
	must(t, os.Symlink("0/x", filepath.Join(dir, "13")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "14")))
	must(t, os.Symlink("0", filepath.Join(dir, "15")))
	must(t, os.Symlink("../"+filepath.Base(dir)+"/0", filepath.Join(dir, "16")))
	socket(t, filepath.Join(dir, "17"))

	synctest.Test(t, func(t *testing.T) {
		r := startJobs(t, dir, polling)
		h = r.Health
		pass(2 * jobGrace)
		got := r.Snapshot().ByDevice
		if n := len(got["6"]); n != maxJobs {
			t.Errorf("%d jobs of a file with too many, want %d", n, maxJobs)
		}
		delete(got, "6")
		if diff := cmp.Diff(jobsBy{"0": {"17"}, "2": {"18"}, "5": {"19"}, "15": {"17"}}, got); diff != "" {
			t.Errorf("jobs (-want +got):\n%s", diff)
		}
		lines := r.logged()
		slices.Sort(lines)
		want := []string{ReasonBadContent, ReasonBadName, ReasonNotAFile, ReasonManyJobs, ReasonTooLarge}
		slices.Sort(want)
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		r.stop()
	})
	wantErrors(t, h, map[string]int{ReasonBadName: 5, ReasonBadContent: 4, ReasonManyJobs: 1, ReasonTooLarge: 1, ReasonNotAFile: 8})
}

// wantErrors compares the counters of all reasons.
func wantErrors(t *testing.T, h *kube.Health, want map[string]int) {
	t.Helper()
	var text strings.Builder
	text.WriteString("# HELP warpgauge_mapping_errors_total Failed attempts to learn who uses which device, by reason.\n# TYPE warpgauge_mapping_errors_total counter\n")
	for _, reason := range jobReasons() {
		fmt.Fprintf(&text, "warpgauge_mapping_errors_total{mapping=\"hpc_jobs\",reason=%q} %d\n", reason, want[reason])
	}
	if err := testutil.CollectAndCompare(kube.Healths{h}, strings.NewReader(text.String()), "warpgauge_mapping_errors_total"); err != nil {
		t.Error(err)
	}
}

func socket(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must(t, err)
	defer syscall.Close(fd)
	must(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
}

// TestTooManyFiles: the lowest numbers are read, the rest is reported once, and other names hide none (audit S10).
func TestTooManyFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range maxFiles + 200 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("17\n"), 0o644))
		for _, form := range []string{"stray-%d", "%d.x", ".%d"} {
			must(t, os.Symlink("x", filepath.Join(dir, fmt.Sprintf(form, i))))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := startJobs(t, dir, nil)
		pass(3 * time.Second)
		got := r.Snapshot().ByDevice
		if len(got) != maxFiles || got["0"] == nil || got[fmt.Sprint(maxFiles-1)] == nil {
			t.Errorf("%d devices, want the first %d", len(got), maxFiles)
		}
		if lines := r.logged(); !slices.Equal(lines, []string{ReasonManyFiles}) {
			t.Errorf("log %q", lines)
		}
		wantErrors(t, r.Health, map[string]int{ReasonManyFiles: 200})
		r.stop()
	})
}

// TestErrors: what the system can answer, and what it means.
func TestErrorsOfJobFiles(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EACCES: ReasonDenied, syscall.EPERM: ReasonDenied, syscall.EIO: ReasonIO, syscall.ESTALE: ReasonIO,
		syscall.ENOTCONN: ReasonIO, syscall.EMFILE: ReasonIO, syscall.ELOOP: ReasonNotAFile, syscall.ENXIO: ReasonNotAFile, syscall.ENOTDIR: ReasonNotAFile,
	} {
		if c := unusable(&os.PathError{Op: "openat", Path: "0", Err: errno}); c.reason != want || !c.whole {
			t.Errorf("%v: %+v, want %s", errno, c, want)
		}
	}
}

// TestIOErrorIsNoAnswer: what a file said stays for as long as the system cannot read it;
// what we may not read stays for a moment.
func TestIOErrorIsNoAnswer(t *testing.T) {
	now := time.Now()
	for reason, want := range map[string][]string{ReasonIO: {"17"}, ReasonDenied: nil} {
		f := jobFile{jobs: []string{"17"}}
		c := content{reason: reason, whole: true}
		f.update(c, now)
		f.update(c, now.Add(jobPatience-1))
		if !slices.Equal(f.jobs, []string{"17"}) {
			t.Errorf("%s: jobs %q at once, want 17", reason, f.jobs)
		}
		f.update(c, now.Add(1000*jobGrace))
		if !slices.Equal(f.jobs, want) {
			t.Errorf("%s: jobs %q after a while, want %q", reason, f.jobs, want)
		}
	}
}

// TestDirectoryIsReplaced: whatever happens to the directory is seen, and nothing stays open.
func TestDirectoryIsReplaced(t *testing.T) {
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc:", err)
		}
		return len(names)
	}
	dir := filepath.Join(t.TempDir(), "jobs")
	before := open()
	r := startJobs(t, dir, polling)
	for i := range 5 {
		job := fmt.Sprint(i)
		must(t, os.Mkdir(dir, 0o755))
		must(t, os.Symlink("/etc/passwd", r.path("5")))
		r.replace("0", job+"\n")
		r.soon("created", jobsBy{"0": {job}})
		// Another one takes its place, first by two renames, then after a removal.
		must(t, os.Mkdir(dir+".new", 0o755))
		must(t, os.WriteFile(filepath.Join(dir+".new", "2"), []byte(job+"\n"), 0o644))
		must(t, os.Rename(dir, dir+".old"))
		must(t, os.Rename(dir+".new", dir))
		r.soon("replaced", jobsBy{"2": {job}})
		must(t, os.RemoveAll(dir+".old"))
		must(t, os.RemoveAll(dir))
		must(t, os.Mkdir(dir, 0o755))
		r.replace("3", job+"\n")
		r.soon("removed and created", jobsBy{"3": {job}})
		must(t, os.RemoveAll(dir))
	}
	r.stop() // a read in progress holds the directory
	if after := open(); after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

// TestLinks: as a ConfigMap is mounted, and a directory that is a link.
func TestLinks(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"a", "b"} {
		must(t, os.MkdirAll(filepath.Join(root, "elsewhere", d), 0o755))
	}
	dir := filepath.Join(root, "jobs")
	symlink(t, "elsewhere/a", dir)
	r := startJobs(t, dir, polling)
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
