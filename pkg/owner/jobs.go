package owner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/kube"
)

// Jobs is the latest content of the job directory. It is immutable.
type Jobs struct {
	Version  uint64                       // grows when a member other than Time changes
	Changed  time.Time                    // when that was: of the directory, else of the read that found it
	Time     time.Time                    // when the directory was last read; zero: never
	ByDevice map[string][]string          // "0" or "3.0" → job ids in file order, unique; devices without jobs are absent
	About    map[string][]collector.Label // by job ID: cluster_name, job_partition, job_user, job_uid, where known
}

// MappingJobs is the label mapping of the job directory.
const MappingJobs = "hpc_jobs"

// Reasons why the directory cannot be read or a file is dropped.
const (
	ReasonMissing    = "missing" // the directory does not exist
	ReasonDenied     = kube.ReasonDenied
	ReasonIO         = "io"                // the system could not read the directory, or a file
	ReasonTimeout    = kube.ReasonTimeout  // the read hangs, for example on a network file system whose server does not answer
	ReasonNotAFile   = "not_a_file"        // the name of a job file, but a directory, FIFO, device or socket, or a link out of the directory
	ReasonBadName    = "bad_name"          // similar to the name of a job file, but invalid for a device: 00, 123456
	ReasonTooLarge   = kube.ReasonTooLarge // a file larger than any list of jobs
	ReasonBadContent = "bad_content"       // lines that are not job ids: not text, or too long
	ReasonManyFiles  = "too_many_files"    // more files than any node has devices
	ReasonManyJobs   = "too_many_jobs"     // more jobs in a file than can share a device
)

func jobReasons() []string {
	return []string{ReasonMissing, ReasonDenied, ReasonIO, ReasonTimeout, ReasonNotAFile, ReasonBadName,
		ReasonTooLarge, ReasonBadContent, ReasonManyFiles, ReasonManyJobs}
}

const (
	jobPeriod = time.Second           // between two reads
	jobGlance = time.Second / 10      // between two looks whether the directory has changed
	jobGrace  = 5 * time.Second       // how long jobs stay without the directory
	jobHangs  = 10 * time.Second      // a longer read is a failure
	jobTick   = 20 * time.Millisecond // the time of a directory is so old at most when it changes
	jobRest   = 10                    // after a read that took t, the next one waits t × jobRest
)

// JobDirectory reads a directory in which a scheduler's prolog and epilog keep one file per device, named by the GPU's
// index ("0") or by GPU and instance ("3.0"), with a job ID on each line. It is dcgm-exporter's job mapping, but in the
// background. It also reads files that are JSON with one job (jobabout.go).
//
// A file with complete lines is accepted at once. A file that is empty, is not a job file or whose last line has no end
// may be incomplete: its previous content stays until two reads agree. Removing a file ends its
// jobs at once. A file that cannot be read or is not a job file affects only its own device.
type JobDirectory struct {
	Health *kube.Health

	dir      string
	onChange func()
	log      *zap.Logger
	period   time.Duration
	hangs    time.Duration
	snapshot atomic.Pointer[Jobs]
	ready    atomic.Bool

	// Used by one read at a time.
	files    map[string]*jobFile
	gone     time.Time               // since when the directory is missing; zero: it exists
	modified time.Time               // of the directory, before it was last read
	problems map[string]*fileProblem // of the last read, by reason
}

// fileProblem is a problem of files in one read.
type fileProblem struct {
	files int
	name  string // of the first file
	err   error
}

// NewJobDirectory returns a JobDirectory, which reads nothing before Run. The directory may be created later. It calls
// onChange after it has published different jobs; onChange must not block.
func NewJobDirectory(dir string, onChange func(), log *zap.Logger) *JobDirectory {
	j := &JobDirectory{
		Health: kube.NewHealth(MappingJobs, log, jobReasons()...), dir: filepath.Clean(dir), onChange: onChange, log: log.Named("hpc"),
		period: jobPeriod, hangs: jobHangs, files: map[string]*jobFile{},
	}
	j.snapshot.Store(&Jobs{ByDevice: map[string][]string{}, About: map[string][]collector.Label{}})
	return j
}

// Snapshot returns the newest Jobs, never nil. It does not wait.
func (j *JobDirectory) Snapshot() *Jobs { return j.snapshot.Load() }

// Ready reports whether the directory was read and all its content is accepted.
func (j *JobDirectory) Ready() bool { return j.ready.Load() }

// Run reads until ctx ends, and returns nil. It may be called once. It does not return while a read hangs in the system.
func (j *JobDirectory) Run(ctx context.Context) error {
	for {
		began := time.Now()
		j.limited(func() { j.readDirectory(began) })
		rest := max(min(jobGlance, j.period), time.Since(began)*jobRest)
		for first := true; first || time.Since(began) < j.period && j.same(); first = false {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(rest):
			}
		}
	}
}

// limited calls f, and reports if the system does not answer it.
func (j *JobDirectory) limited(f func()) {
	late := time.AfterFunc(j.hangs, func() {
		j.Health.Failed(ReasonTimeout, fmt.Errorf("read the job directory %q: the system has not answered for %v", j.dir, j.hangs))
	})
	defer late.Stop()
	f()
}

// same reports whether no file has come or gone since the last read. A change is read soon, so that it is known at its own time.
func (j *JobDirectory) same() (same bool) {
	j.limited(func() { same = j.stat().Equal(j.modified) })
	return same
}

// stat returns when files came or went last.
func (j *JobDirectory) stat() time.Time {
	info, err := os.Stat(j.dir)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// readDirectory reads the directory and publishes its content.
func (j *JobDirectory) readDirectory(now time.Time) {
	before := j.modified
	j.modified = j.stat()
	root, err := os.OpenRoot(j.dir + "/.") // so that a FIFO is an error instead of a wait for its writer
	if err == nil {
		defer func() { _ = root.Close() }() // read only
	}
	problems := map[string]*fileProblem{}
	var names []string
	if err == nil {
		names, err = jobNames(root, problems)
	}
	if err != nil {
		j.unreadable(err, now)
		return
	}
	j.gone = time.Time{}
	changed := now // files that come or go change the directory's time
	recent := func(t time.Time) bool { return t.After(j.Snapshot().Time.Add(-jobTick)) && t.Before(now) }
	moved := !j.modified.Equal(before) && recent(j.modified)
	if moved {
		changed = j.modified
	}
	ready := true
	files, next := map[string]*jobFile{}, Jobs{Changed: changed, ByDevice: map[string][]string{}, About: map[string][]collector.Label{}}
	for _, name := range names {
		f := cmp.Or(j.files[name], &jobFile{})
		c := readJobFile(root, name)
		if errors.Is(c.err, fs.ErrNotExist) && c.reason == ReasonIO { // removed after the names were read
			continue
		}
		if c.reason != "" {
			countProblem(problems, c.reason, name, c.err)
		}
		last := f.accepted.jobs
		f.update(c)
		if info, err := root.Stat(name); !moved && err == nil && recent(info.ModTime()) && !slices.Equal(f.accepted.jobs, last) {
			next.Changed = info.ModTime() // it was written in place
		}
		ready = ready && !f.pending
		files[name] = f
		if len(f.accepted.jobs) > 0 {
			next.ByDevice[name] = f.accepted.jobs
			describe(root, &f.accepted, next.About)
		}
	}
	j.files = files
	j.publish(next, now)
	j.ready.Store(ready)
	j.Health.Succeeded(len(next.ByDevice))
	j.report(problems)
}

// unreadable keeps the previous content. A missing directory means that there are no jobs, but only after a grace
// period: the directory may be about to be replaced.
func (j *JobDirectory) unreadable(err error, now time.Time) {
	j.ready.Store(true)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		j.Health.Failed(fileReason(err), fmt.Errorf("read the job directory: %w", err))
		return
	}
	j.Health.Failed(ReasonMissing, fmt.Errorf("read the job directory: %w; the scheduler's prolog makes it", err))
	if j.gone.IsZero() {
		j.gone = now
	}
	if now.Sub(j.gone) >= jobGrace {
		clear(j.files)
		j.publish(Jobs{Changed: now, ByDevice: map[string][]string{}}, time.Time{})
	}
}

// publish stores the content. confirmed is zero if the directory could not be read.
func (j *JobDirectory) publish(said Jobs, confirmed time.Time) {
	next := *j.Snapshot()
	if !confirmed.IsZero() {
		next.Time = confirmed
	}
	changed := !maps.EqualFunc(next.ByDevice, said.ByDevice, slices.Equal[[]string]) || !maps.EqualFunc(next.About, said.About, slices.Equal[[]collector.Label])
	if changed {
		next.Version, next.Changed, next.ByDevice, next.About = next.Version+1, said.Changed, said.ByDevice, said.About
	}
	j.snapshot.Store(&next)
	if changed {
		j.onChange()
	}
}

// countProblem counts a file that was dropped, entirely or partly.
func countProblem(problems map[string]*fileProblem, reason, name string, err error) {
	p := problems[reason]
	if p == nil {
		p = &fileProblem{name: name, err: err}
		problems[reason] = p
	}
	p.files++
}

// report logs each reason once when files are first dropped, and once when the last problem ends. It counts each file once.
func (j *JobDirectory) report(problems map[string]*fileProblem) {
	for reason, p := range problems {
		before := 0
		if old := j.problems[reason]; old != nil {
			before = old.files
		} else {
			j.log.Warn("skipping job files, in whole or in part", zap.String("reason", reason),
				zap.Int("files", p.files), zap.String("file", p.name), zap.Error(p.err))
		}
		j.Health.Counted(reason, max(0, p.files-before))
	}
	for reason := range j.problems {
		if problems[reason] == nil {
			j.log.Info("no longer skipping job files for this reason", zap.String("reason", reason))
		}
	}
	j.problems = problems
}
