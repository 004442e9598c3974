package owner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/kube"
)

var must = testkit.Must

// jobsBy holds the expected jobs of a snapshot.
type jobsBy = map[string][]string

// jobRig is a running JobDirectory.
type jobRig struct {
	*JobDirectory
	t       *testing.T
	logs    *observer.ObservedLogs
	changes atomic.Int32
	stop    func() // ends Run and waits for it
}

// startJobs runs a JobDirectory until the test ends.
func startJobs(t *testing.T, dir string, period time.Duration) *jobRig {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	r := &jobRig{t: t, logs: logs}
	r.JobDirectory = NewJobDirectory(dir, func() { r.changes.Add(1) }, zap.New(core))
	r.period, r.hangs = period, 200*time.Millisecond
	r.stop = testkit.Start(t, r.Run)
	return r
}

// pass advances the time and waits until all goroutines are idle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *jobRig) path(name string) string { return filepath.Join(r.dir, name) }

// write writes in place, as a careless prolog does.
func (r *jobRig) write(name, text string) {
	r.t.Helper()
	must(r.t, os.WriteFile(r.path(name), []byte(text), 0o644))
}

// replace renames a new file into place, as a careful prolog does.
func (r *jobRig) replace(name, text string) {
	r.t.Helper()
	r.write("."+name+".tmp", text)
	must(r.t, os.Rename(r.path("."+name+".tmp"), r.path(name)))
}

func (r *jobRig) want(when string, want jobsBy) {
	r.t.Helper()
	testkit.Equal(r.t, fmt.Sprintf("%s: jobs", when), want, r.Snapshot().ByDevice)
}

func (r *jobRig) soon(what string, want jobsBy) {
	r.t.Helper()
	eventually.True(r.t, what, func() bool { return cmp.Equal(want, r.Snapshot().ByDevice) })
}

// skipped returns the reasons of skipped files, sorted.
func (r *jobRig) skipped() (out []string) {
	for _, e := range r.logs.FilterMessageSnippet("skipping").All() {
		out = append(out, e.ContextMap()["reason"].(string))
	}
	slices.Sort(out)
	return out
}

// TestUpdate checks when the content of a file is accepted. A writer may be interrupted within each line: no partial job
// ID appears.
func TestUpdate(t *testing.T) {
	type step struct {
		c    content
		want string
	}
	text := func(s string) content { return parseJobs([]byte(s)) }
	bad := func(reason string) content { return content{reason: reason, whole: true} }
	const old = "17"
	for name, steps := range map[string][]step{
		"complete":             {{text("18\n19\n"), "18 19"}},
		"last line open":       {{text("18\n1"), old}, {text("18\n19"), old}, {text("18\n19"), "18 19"}},
		"accepted once":        {{text("18"), old}, {text("18"), "18"}, {text("18"), "18"}, {text(""), "18"}},
		"emptied":              {{text(""), old}, {text(""), ""}},
		"emptied and written":  {{text(""), old}, {text("18\n"), "18"}},
		"changes all the time": {{text("1"), old}, {text("11"), old}, {text("111"), old}, {text("111\n"), "111"}},
		"turns bad":            {{bad(ReasonNotAFile), old}, {bad(ReasonNotAFile), ""}, {text("18\n"), "18"}},
		"may not be read":      {{bad(ReasonDenied), old}, {bad(ReasonDenied), ""}},
		"cannot be read":       {{bad(ReasonIO), old}, {bad(ReasonIO), old}, {bad(ReasonIO), old}},
		"JSON that is cut":     {{text(`{ "SLURM_JOB_ID": "17", "SLU`), old}, {text(`{ "SLURM_JOB_ID": "18" }`), "18"}},
	} {
		var f jobFile
		for i, s := range append([]step{{text("17\n"), old}}, steps...) {
			if f.update(s.c); strings.Join(f.accepted.jobs, " ") != s.want {
				t.Errorf("%s, step %d: jobs %q, want %q", name, i, f.accepted.jobs, s.want)
			}
		}
	}
	for n := range "2001\n2002" {
		f, want := jobFile{}, old
		f.update(text("17\n"))
		if n == len("2001\n") {
			want = "2001" // a complete line parses
		}
		f.update(text("2001\n2002\n"[:n]))
		testkit.ErrorIf(t, strings.Join(f.accepted.jobs, " ") != want || f.pending != (want == old), "after %d bytes: jobs %q, want %q", n, f.accepted.jobs, want)
	}
}

// TestDirectory: jobs appear and disappear with files and with the directory. The version grows, and onChange is
// called, only if jobs change.
func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	synctest.Test(t, func(t *testing.T) {
		r := startJobs(t, dir, jobPeriod)
		step := func(when string, after time.Duration, version uint64, failing string, want jobsBy) {
			t.Helper()
			pass(after)
			r.want(when, want)
			if s, got := r.Snapshot(), r.Health.State().Failing; s.Version != version || r.changes.Load() != int32(version) || got != failing || s.Time.IsZero() && failing == "" {
				t.Errorf("%s: %+v, %d changes, failing for %q; want version %d, %q", when, s, r.changes.Load(), got, version, failing)
			}
		}
		moment := jobPeriod
		step("missing", time.Minute, 0, ReasonMissing, jobsBy{})
		must(t, os.MkdirAll(dir, 0o755))
		step("empty", moment, 0, "", jobsBy{})
		r.replace("0", "17\n")
		step("a job", moment, 1, "", jobsBy{"0": {"17"}})
		r.replace("0", "17\n")
		r.write("note.txt", "hello")
		r.write("1", "")
		pass(moment)
		testkit.Equal(t, "ready with a file that is not believed", false, r.Ready())
		step("nothing new", 2*time.Second, 1, "", jobsBy{"0": {"17"}})
		testkit.Equal(t, "ready with a file that is believed", true, r.Ready())
		kept := r.Snapshot()
		r.replace("1", "18\n19\n")
		step("two jobs", moment, 2, "", jobsBy{"0": {"17"}, "1": {"18", "19"}})
		testkit.Equal(t, fmt.Sprintf("devices of a snapshot that was given out: %+v", kept), 1, len(kept.ByDevice))
		r.replace("1", "19\n18\n")
		step("another order", moment, 3, "", jobsBy{"0": {"17"}, "1": {"19", "18"}})
		must(t, os.Remove(r.path("1")))
		step("removed: at once", moment, 4, "", jobsBy{"0": {"17"}})
		must(t, os.Rename(dir, dir+".old"))
		step("gone for a moment", jobGrace-moment, 4, ReasonMissing, jobsBy{"0": {"17"}})
		step("gone for good", 2*moment, 5, ReasonMissing, jobsBy{})
		must(t, os.Rename(dir+".old", dir))
		step("back", moment, 6, "", jobsBy{"0": {"17"}})
		r.stop()
	})
}

// TestChanged: a job that leaves right after a read left then, although the directory's time is that of the last tick before the read.
func TestChanged(t *testing.T) {
	j, read := NewJobDirectory(filepath.Dir(testkit.TempFile(t, "0", "17\n")), func() {}, zap.NewNop()), time.Now().Add(time.Minute)
	j.readDirectory(read)
	must(t, os.WriteFile(filepath.Join(j.dir, "0"), []byte("18\n"), 0o644)) // in place
	must(t, os.Chtimes(filepath.Join(j.dir, "0"), read, read.Add(300*time.Millisecond)))
	j.readDirectory(read.Add(jobPeriod / 2))
	testkit.Equal(t, "another job", read.Add(300*time.Millisecond).UnixNano(), j.Snapshot().Changed.UnixNano())
	j.readDirectory(read)
	must(t, os.Remove(filepath.Join(j.dir, "0")))
	must(t, os.Chtimes(j.dir, read, read.Add(-3*time.Millisecond)))
	j.readDirectory(read.Add(jobPeriod))
	testkit.Equal(t, "left", read.Add(-3*time.Millisecond).UnixNano(), j.Snapshot().Changed.UnixNano())
}

// TestWhatIsNoJobFile puts every kind of directory entry next to one good file. None of them blocks, and each is
// reported once.
func TestWhatIsNoJobFile(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("secret\n"), 0o600))
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
		r := startJobs(t, dir, jobPeriod)
		pass(2 * jobGrace)
		got := r.Snapshot().ByDevice
		testkit.Equal(t, "jobs of a file with too many", maxJobs, len(got["6"]))
		delete(got, "6")
		testkit.Equal(t, "jobs", jobsBy{"0": {"17"}, "2": {"18"}, "5": {"19"}, "15": {"17"}}, got)
		want := []string{ReasonBadContent, ReasonBadName, ReasonNotAFile, ReasonManyJobs, ReasonTooLarge}
		slices.Sort(want)
		testkit.Equal(t, "log", want, r.skipped())
		r.stop()
		wantErrors(t, r.Health, map[string]int{ReasonBadName: 5, ReasonBadContent: 4, ReasonManyJobs: 1, ReasonTooLarge: 1, ReasonNotAFile: 8})
	})
}

// wantErrors compares the counters of all reasons.
func wantErrors(t *testing.T, h *kube.Health, want map[string]int) {
	t.Helper()
	var text strings.Builder
	text.WriteString("# HELP warpgauge_mapping_errors_total Failed attempts to learn who uses which device, by reason.\n# TYPE warpgauge_mapping_errors_total counter\n")
	for _, reason := range jobReasons() {
		fmt.Fprintf(&text, "warpgauge_mapping_errors_total{mapping=\"hpc_jobs\",reason=%q} %d\n", reason, want[reason])
	}
	must(t, testutil.CollectAndCompare(kube.Healths{h}, strings.NewReader(text.String()), "warpgauge_mapping_errors_total"))
}

func socket(t *testing.T, path string) {
	t.Helper()
	fd := testkit.Get(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))(t)
	defer syscall.Close(fd)
	must(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
}

// TestTooManyFiles: the lowest numbers are read, the others are reported once, and files with other names do not count.
func TestTooManyFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range maxFiles + 200 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("17\n"), 0o644))
		for _, form := range []string{"stray-%d", "%d.x", ".%d"} {
			must(t, os.Symlink("x", filepath.Join(dir, fmt.Sprintf(form, i))))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := startJobs(t, dir, jobPeriod)
		pass(3 * time.Second)
		got := r.Snapshot().ByDevice
		testkit.ErrorIf(t, len(got) != maxFiles || got["0"] == nil || got[fmt.Sprint(maxFiles-1)] == nil, "%d devices, want the first %d", len(got), maxFiles)
		testkit.Equal(t, "log", []string{ReasonManyFiles}, r.skipped())
		wantErrors(t, r.Health, map[string]int{ReasonManyFiles: 200})
		r.stop()
	})
}

// TestErrors maps the system's errors to reasons.
func TestErrorsOfJobFiles(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EACCES: ReasonDenied, syscall.EPERM: ReasonDenied, syscall.EIO: ReasonIO, syscall.ESTALE: ReasonIO,
		syscall.ENOTCONN: ReasonIO, syscall.EMFILE: ReasonIO, syscall.ELOOP: ReasonNotAFile, syscall.ENXIO: ReasonNotAFile, syscall.ENOTDIR: ReasonNotAFile,
	} {
		c := unusable(&os.PathError{Op: "openat", Path: "0", Err: errno})
		testkit.ErrorIf(t, c.reason != want || !c.whole, "%v: %+v, want %s", errno, c, want)
	}
}

// TestLinks: a directory that is a link, as in a mounted ConfigMap, and a directory that is replaced. No file stays
// open.
func TestLinks(t *testing.T) {
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc:", err)
		}
		return len(names)
	}
	root := t.TempDir()
	dir, before := filepath.Join(root, "jobs"), open()
	r := startJobs(t, dir, 10*time.Millisecond)
	for i := range 5 {
		job := fmt.Sprint(i)
		must(t, os.MkdirAll(filepath.Join(root, "a"+job), 0o755))
		symlink(t, "a"+job, dir)
		r.soon("another directory is empty", jobsBy{})
		must(t, os.Mkdir(r.path("..v1"), 0o755))
		must(t, os.WriteFile(r.path("..v1/0"), []byte(job+"\n"), 0o644))
		symlink(t, "..v1", r.path("..data"))
		symlink(t, "..data/0", r.path("0"))
		must(t, os.Symlink("/etc/passwd", r.path("5")))
		r.soon("a file that is a link", jobsBy{"0": {job}})
		// Another directory takes its place after a removal.
		must(t, os.Remove(dir))
		must(t, os.Mkdir(dir, 0o755))
		r.replace("3", job+"\n")
		r.soon("removed and created", jobsBy{"3": {job}})
		must(t, os.RemoveAll(dir))
	}
	r.stop() // otherwise a read in progress holds the directory open
	testkit.AtMost(t, "open descriptors", before, open())
}

// symlink makes or replaces a symbolic link atomically.
func symlink(t *testing.T, target, path string) {
	t.Helper()
	must(t, os.Symlink(target, path+".tmp"))
	must(t, os.Rename(path+".tmp", path))
}

// TestChangesAreReadSoon: files that come or go are read before the period is over.
func TestChangesAreReadSoon(t *testing.T) {
	j := NewJobDirectory(filepath.Dir(testkit.TempFile(t, "0", "17\n")), func() {}, zap.NewNop())
	j.period = time.Hour
	defer testkit.Start(t, j.Run)()
	eventually.True(t, "a job", func() bool { return len(j.Snapshot().ByDevice) == 1 })
	must(t, os.Remove(filepath.Join(j.dir, "0")))
	must(t, os.Chtimes(j.dir, time.Now(), time.Now().Add(-time.Hour))) // else it may be the same tick
	eventually.True(t, "no job", func() bool { return len(j.Snapshot().ByDevice) == 0 })
}
