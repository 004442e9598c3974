package owner

import (
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

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/kube"
)

// Jobs is what the job directory said last. It is immutable.
type Jobs struct {
	Version  uint64                       // grows when another member but Time changes
	Time     time.Time                    // when the directory was last readable; zero before that
	ByDevice map[string][]string          // "0" or "3.0" → job ids in file order, unique; devices without jobs are absent
	About    map[string][]collector.Label // by job id: cluster_name, job_partition, job_user, as far as they are known
}

// MappingJobs is the value of the label mapping for the job directory.
const MappingJobs = "hpc_jobs"

// Reasons for which the directory cannot be read, or a file is left out.
const (
	ReasonMissing    = "missing" // the directory does not exist
	ReasonDenied     = kube.ReasonDenied
	ReasonIO         = "io"                // the system could not read the directory, or a file
	ReasonTimeout    = kube.ReasonTimeout  // reading hangs, as on a network file system whose server is away
	ReasonNotAFile   = "not_a_file"        // a directory, FIFO, device or socket has the name of a job file, or a link leads out of the directory
	ReasonBadName    = "bad_name"          // the name is like that of a job file, but no device is called so: 00, 123456
	ReasonTooLarge   = kube.ReasonTooLarge // a file larger than any list of jobs
	ReasonBadContent = "bad_content"       // lines that are not job ids: not text, or too long
	ReasonManyFiles  = "too_many_files"    // more files than a node can have devices
	ReasonManyJobs   = "too_many_jobs"     // more jobs in a file than can share a device
)

func jobReasons() []string {
	return []string{ReasonMissing, ReasonDenied, ReasonIO, ReasonTimeout, ReasonNotAFile, ReasonBadName,
		ReasonTooLarge, ReasonBadContent, ReasonManyFiles, ReasonManyJobs}
}

// JobOptions are options of NewJobDirectory. Dir must be set.
type JobOptions struct {
	Dir      string      // need not exist yet
	OnChange func()      // called after other jobs were published; must not block; nil: none
	Log      *zap.Logger // nil logs nothing
}

const (
	jobPeriod   = 2 * time.Second        // between two reads when no change is notified, as on network file systems
	jobGather   = 100 * time.Millisecond // after the last of a burst of events: a writer in place needs milliseconds
	jobPatience = time.Second            // a file that is empty, or whose last line has no end, must not change for this long
	jobGrace    = 5 * time.Second        // the longest that the jobs of a file stay that says nothing usable
	jobHangs    = 10 * time.Second       // a read that takes longer is a failure
	jobAbandon  = 200 * time.Millisecond // how long Run waits at its end for a read that hangs
	jobRest     = 10                     // after a read that took t none begins for t × jobRest
)

// JobDirectory reads a directory in which a scheduler's prolog and epilog keep one file
// per device, named by the GPU's index ("0") or by GPU and instance ("3.0"), with a job id
// on each line: the job mapping of dcgm-exporter, but in the background. A file may also be JSON
// with one job (jobabout.go).
//
// A file whose lines are complete is believed at once. An empty one, and one whose last
// line has no end, may be half written: what it said before stays until it has not
// changed for a moment. A file that is removed ends its jobs at once. What cannot be read,
// or is not a job file, costs that device its jobs and nothing else.
type JobDirectory struct {
	Health *kube.Health

	o        JobOptions
	log      *zap.Logger
	period   time.Duration
	hangs    time.Duration
	notify   func() (*fsnotify.Watcher, error)
	snapshot atomic.Pointer[Jobs]
	ready    atomic.Bool
	replaced atomic.Bool // another directory may be at the path

	// Of one read at a time.
	watched  map[string]fs.FileInfo // directories that are watched, by path
	files    map[string]*jobFile
	gone     time.Time               // since when there has been no directory; zero: there is one
	problems map[string]*fileProblem // of the last read, by reason
}

// fileProblem is what a read found wrong for one reason.
type fileProblem struct {
	files int
	name  string // of the first
	err   error
}

// NewJobDirectory returns a JobDirectory that has read nothing yet.
func NewJobDirectory(o JobOptions) *JobDirectory {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	o.Dir = filepath.Clean(o.Dir)
	j := &JobDirectory{
		Health: kube.NewHealth(MappingJobs, o.Log, jobReasons()...), o: o, log: o.Log.Named("hpc"),
		period: jobPeriod, hangs: jobHangs, notify: fsnotify.NewWatcher,
		watched: map[string]fs.FileInfo{}, files: map[string]*jobFile{},
	}
	j.snapshot.Store(&Jobs{ByDevice: map[string][]string{}, About: map[string][]collector.Label{}})
	return j
}

// Snapshot returns the newest one, never nil. It never waits.
func (j *JobDirectory) Snapshot() *Jobs { return j.snapshot.Load() }

// Ready reports whether the directory was read and all of it is believed.
func (j *JobDirectory) Ready() bool { return j.ready.Load() }

// Run reads until ctx ends, and returns nil. Call it once. What it started has ended then,
// except for a read that hangs in the system: that is abandoned.
func (j *JobDirectory) Run(ctx context.Context) error {
	watcher, err := j.notify()
	if err != nil {
		j.log.Warn("the system does not notify of changes in the job directory; it is polled", zap.Error(err))
		watcher = &fsnotify.Watcher{} // without channels
	} else {
		defer func() { _ = watcher.Close() }() // nothing is kept that could be lost
	}
	due := time.NewTimer(0)
	defer due.Stop()
	stuck := time.NewTimer(time.Hour)
	defer stuck.Stop()
	var reading chan time.Duration // of the read in progress; nil: none
	var begun time.Time            // of the last read
	var rested time.Time           // no read before
	var first time.Time            // first of the events that the next read answers; zero: none
	changed := func() {
		if first.IsZero() {
			first = time.Now()
		}
		if reading == nil {
			due.Reset(max(min(jobGather, time.Until(first.Add(j.period))), time.Until(rested)))
		}
	}
	for {
		select {
		case <-ctx.Done():
			j.leave(reading)
			return nil
		case e := <-watcher.Events:
			if j.matters(e) {
				changed()
			}
		case <-watcher.Errors: //nolint:errcheck // events were lost, whatever it is
			changed()
		case <-due.C:
			begun, first, reading = time.Now(), time.Time{}, make(chan time.Duration, 1)
			stuck.Reset(j.hangs)
			go func(done chan<- time.Duration) {
				if err == nil {
					j.watch(watcher)
				}
				done <- j.read(time.Now())
			}(reading)
		case <-stuck.C:
			if reading != nil {
				j.Health.Failed(ReasonTimeout, fmt.Errorf("read the job directory %q: the system has not answered for %v", j.o.Dir, j.hangs))
			}
		case wait := <-reading:
			reading = nil
			stuck.Stop()
			rested = time.Now().Add(time.Since(begun) * jobRest)
			due.Reset(max(wait, time.Until(rested)))
			if !first.IsZero() {
				changed()
			}
		}
	}
}

// leave waits a moment for a read in progress.
func (j *JobDirectory) leave(reading <-chan time.Duration) {
	if reading == nil {
		return
	}
	select {
	case <-reading:
	case <-time.After(jobAbandon):
		j.log.Warn("reading the job directory hangs in the system and is abandoned", zap.String("file", j.o.Dir))
	}
}

// matters reports whether an event can change what the directory says.
func (j *JobDirectory) matters(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	if name == filepath.Base(j.o.Dir) {
		j.replaced.Store(true)
		return true
	}
	return nameOf(name) == deviceName
}

// watch watches the directory, and the one above it so that it is seen to come and to be
// replaced. What it misses, the next poll sees.
func (j *JobDirectory) watch(watcher *fsnotify.Watcher) {
	replaced := j.replaced.Swap(false)
	for _, path := range []string{filepath.Dir(j.o.Dir), j.o.Dir} {
		info, err := os.Stat(path)
		old := j.watched[path]
		if err == nil && old != nil && os.SameFile(old, info) && !replaced {
			continue
		}
		if old != nil {
			delete(j.watched, path)
			_ = watcher.Remove(path) // the system may have dropped it already
		}
		if err == nil && watcher.Add(path) == nil {
			j.watched[path] = info
		}
	}
}

// read reads the directory, publishes what it says, and returns when to read again.
func (j *JobDirectory) read(now time.Time) time.Duration {
	root, err := os.OpenRoot(j.o.Dir + "/.") // so that a FIFO is an error, not a wait for its writer
	if err == nil {
		defer func() { _ = root.Close() }() // it was only read
	}
	problems := map[string]*fileProblem{}
	var names []string
	if err == nil {
		names, err = jobNames(root, problems)
	}
	if err != nil {
		return j.unreadable(err, now)
	}
	j.gone = time.Time{}
	wait, ready := j.period, true
	files, next := map[string]*jobFile{}, Jobs{ByDevice: map[string][]string{}, About: map[string][]collector.Label{}}
	for _, name := range names {
		f := j.files[name]
		if f == nil {
			f = &jobFile{}
		}
		c := readJobFile(root, name)
		if errors.Is(c.err, fs.ErrNotExist) && c.reason == ReasonIO { // removed since the names were read
			continue
		}
		if c.reason != "" {
			note(problems, c.reason, name, c.err)
		}
		f.take(c, now)
		if !f.since.IsZero() {
			wait, ready = min(wait, jobPatience), false
		}
		files[name] = f
		if len(f.jobs) > 0 {
			next.ByDevice[name] = f.jobs
			describe(root, f, next.About)
		}
	}
	j.files = files
	j.publish(next, now)
	j.ready.Store(ready)
	j.Health.Succeeded(len(next.ByDevice))
	j.report(problems)
	return wait
}

// unreadable keeps what was known. A directory that does not exist says that there are no
// jobs, but only if that lasts: it may be about to be replaced.
func (j *JobDirectory) unreadable(err error, now time.Time) time.Duration {
	j.ready.Store(true)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		j.Health.Failed(fileReason(err), fmt.Errorf("read the job directory: %w", err))
		return j.period
	}
	j.Health.Failed(ReasonMissing, fmt.Errorf("read the job directory: %w; the scheduler's prolog makes it", err))
	if j.gone.IsZero() {
		j.gone = now
	}
	if now.Sub(j.gone) >= jobGrace {
		clear(j.files)
		j.publish(Jobs{ByDevice: map[string][]string{}}, time.Time{})
	}
	return j.period
}

// publish stores what the directory says. confirmed is zero when it could not be read.
func (j *JobDirectory) publish(said Jobs, confirmed time.Time) {
	next := *j.Snapshot()
	if !confirmed.IsZero() {
		next.Time = confirmed
	}
	changed := !maps.EqualFunc(next.ByDevice, said.ByDevice, slices.Equal[[]string]) || !maps.EqualFunc(next.About, said.About, slices.Equal[[]collector.Label])
	if changed {
		next.Version, next.ByDevice, next.About = next.Version+1, said.ByDevice, said.About
	}
	j.snapshot.Store(&next)
	if changed {
		j.o.OnChange()
	}
}

// note counts a file that is left out, in whole or in part.
func note(problems map[string]*fileProblem, reason, name string, err error) {
	p := problems[reason]
	if p == nil {
		p = &fileProblem{name: name, err: err}
		problems[reason] = p
	}
	p.files++
}

// report logs once for each reason that files are left out, and that they no longer are;
// it counts each file once.
func (j *JobDirectory) report(problems map[string]*fileProblem) {
	for reason, p := range problems {
		before := 0
		if old := j.problems[reason]; old != nil {
			before = old.files
		} else {
			j.log.Warn("job files are left out, in whole or in part", zap.String("reason", reason),
				zap.Int("files", p.files), zap.String("file", p.name), zap.Error(p.err))
		}
		j.Health.Counted(reason, max(0, p.files-before))
	}
	for reason := range j.problems {
		if problems[reason] == nil {
			j.log.Info("job files are in use again, or gone", zap.String("reason", reason))
		}
	}
	j.problems = problems
}
