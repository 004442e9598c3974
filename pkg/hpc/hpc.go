// Package hpc knows which batch jobs use which GPU: it reads a directory in which
// a scheduler's prolog and epilog keep one file per device, named by the GPU's
// index ("0") or by GPU and instance ("3.0"), with a job id on each line. It is
// the job mapping of dcgm-exporter, read in the background instead of at each
// scrape.
//
// Client.Run reads; the owner table takes Client.Snapshot, which touches memory
// only. A file that is just being written is left alone until it has been quiet
// for a moment, and what it said before stays until then; a file that is removed
// ends its jobs at once. What cannot be read or is no job file costs that device
// its jobs and nothing else.
package hpc

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"warpgauge/pkg/mapping"
)

// Snapshot is what the directory said. It is immutable.
type Snapshot struct {
	Version uint64              // grows when Jobs change, and only then
	Time    time.Time           // of the last look that found the directory readable; zero before the first
	Jobs    map[string][]string // "0" or "3.0" → job ids in file order, unique; devices without jobs are absent
}

// Options of New. Dir must be set; the zero value of all others is usable.
type Options struct {
	Dir string // need not exist yet
	// Period is how often the directory is looked at even if the system tells
	// nothing, as on network file systems; 0 means 2 s.
	Period   time.Duration
	OnChange func()          // called after a Snapshot with other Jobs was published; must not block; nil: nobody is told
	Health   *mapping.Health // nil: how it goes is not told; made with Reasons
	Log      *zap.Logger     // nil logs nothing

	notify func() (*fsnotify.Watcher, error) // nil means fsnotify.NewWatcher
	hung   time.Duration                     // a look that takes longer is told as a failure; 0 means 10 s
	looked func()                            // called after each look, by its goroutine; nil: nobody is told
}

// How long things take. A prolog's write in place takes microseconds between its
// parts, a scheduler that writes over NFS milliseconds.
const (
	gather    = 20 * time.Millisecond  // events that come together are one look
	quiet     = 100 * time.Millisecond // a file whose last line has its end is believed after this time without a change
	patience  = time.Second            // so is an empty one, and one whose last line may be half written
	grace     = 5 * time.Second        // the longest that a file's old jobs stay while it says nothing that can be used
	raciness  = 2 * time.Second        // a status that has stood this long tells that the content is the same; see file.read
	aged      = time.Minute            // a file whose status is older than this is not being written
	farewell  = 200 * time.Millisecond // how long Run waits at its end for a look that hangs
	idleShare = 10                     // after a look that took t none begins for t × idleShare, or for Period if that is less
)

// Reasons that a look fails for, or that a file is left out: values of the label
// reason of mapping's counter.
const (
	ReasonMissing    = "missing"        // the directory does not exist
	ReasonDenied     = "denied"         // the directory, or a file, may not be read
	ReasonIO         = "io"             // the system could not read the directory, or a file
	ReasonTimeout    = "timeout"        // reading hangs, as on a network file system whose server is away
	ReasonNotAFile   = "not_a_file"     // a directory, FIFO, device or socket bears the name of a job file, or a link leads out of the directory
	ReasonBadName    = "bad_name"       // the name is like that of a job file, but no device is called so: 00, 123456
	ReasonTooLarge   = "too_large"      // a file larger than any list of jobs
	ReasonBadContent = "bad_content"    // lines that are no job ids: not text, or too long
	ReasonManyFiles  = "too_many_files" // more files than a node can have devices
	ReasonManyJobs   = "too_many_jobs"  // more jobs in a file than can share a device
)

// Reasons returns all reasons, for mapping.New.
func Reasons() []string {
	return []string{ReasonMissing, ReasonDenied, ReasonIO, ReasonTimeout, ReasonNotAFile, ReasonBadName,
		ReasonTooLarge, ReasonBadContent, ReasonManyFiles, ReasonManyJobs}
}

// Client reads the directory.
type Client struct {
	o        Options
	snapshot atomic.Pointer[Snapshot]
	lookFrom atomic.Int64 // when the look in progress began, in nanoseconds since epoch; 0: none
	epoch    time.Time
	settled  atomic.Bool
}

// New returns a client that has read nothing yet.
func New(o Options) *Client {
	o.Period = cmp.Or(o.Period, 2*time.Second)
	o.hung = cmp.Or(o.hung, 10*time.Second)
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	o.Log = o.Log.Named("hpc")
	if o.Health == nil {
		o.Health = mapping.New(mapping.HPCJobs, nil, Reasons()...)
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	if o.notify == nil {
		o.notify = fsnotify.NewWatcher
	}
	if o.looked == nil {
		o.looked = func() {}
	}
	c := &Client{o: o, epoch: time.Now()}
	c.snapshot.Store(&Snapshot{Jobs: map[string][]string{}})
	return c
}

// Snapshot returns the newest one; never nil.
func (c *Client) Snapshot() *Snapshot { return c.snapshot.Load() }

// Settled says whether there was a look, and nothing that it found is left to be
// believed later. Who looks once, and no more, waits for it.
func (c *Client) Settled() bool { return c.settled.Load() }

// Run reads the directory until ctx ends, and returns nil. What it started has
// ended then, except for a look that hangs in the system, as it can on a network
// file system whose server is away: that is abandoned, with a line in the log.
func (c *Client) Run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		newLooker(c).run(ctx)
	}()
	watch := time.NewTicker(c.o.hung / 4)
	defer watch.Stop()
	told := int64(0)
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return c.leave(done)
		case <-watch.C:
			if from := c.hangs(); from != told {
				if told = from; from != 0 {
					c.o.Health.Failed(ReasonTimeout, c.errHangs())
				}
			}
		}
	}
}

// hangs returns when the look in progress began if it takes too long; 0 if not.
func (c *Client) hangs() int64 {
	from := c.lookFrom.Load()
	if from == 0 || time.Since(c.epoch)-time.Duration(from) < c.o.hung {
		return 0
	}
	return from
}

func (c *Client) leave(done <-chan struct{}) error {
	limit := time.NewTimer(farewell)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		c.o.Log.Warn("reading the job directory hangs in the system and is abandoned", zap.String("file", c.o.Dir))
	}
	return nil
}

// publish stores what the directory says now. confirmed is zero where the
// directory could not be read.
func (c *Client) publish(jobs map[string][]string, confirmed time.Time) {
	old := c.snapshot.Load()
	now := &Snapshot{Version: old.Version, Time: old.Time, Jobs: old.Jobs}
	if !confirmed.IsZero() {
		now.Time = confirmed
	}
	changed := !maps.EqualFunc(old.Jobs, jobs, slices.Equal[[]string])
	if changed {
		now.Version, now.Jobs = old.Version+1, jobs
	}
	c.snapshot.Store(now)
	if changed {
		c.o.OnChange()
	}
}
