package isolation

import (
	"cmp"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/view"
)

// Options of New. Name, Build, Command and Publish are needed; the zero value of
// the rest is usable. Times that the child's sampler takes mean what they mean in
// sampler.Options, zero included.
type Options struct {
	Name    string   // of the collector
	Build   string   // of this binary; a child of another is refused
	Command []string // arguments of a child, its name first
	Env     []string // of a child; nil means that of this process
	Start   time.Time

	// Publish is told of each View, in their order; see view.Part.
	Publish func(*view.View)

	Interval       time.Duration
	SlowInterval   time.Duration
	StaticInterval time.Duration
	Deadline       time.Duration // 0 means 5 s
	OpenTimeout    time.Duration // 0 means 30 s
	RescanInterval time.Duration
	RetryMax       time.Duration
	LostMemory     time.Duration // 0 means 1 h
	StopTimeout    time.Duration // how long Run waits for the child at its end; 0 means 2 s
	RingSpan       time.Duration

	// MemoryLimit is the resident size, in bytes, over which a child is replaced:
	// by a second one that takes over when it has rows. One that grows to twice the
	// limit meanwhile (or by 512 MiB, if that is more) is killed. 0 means no limit.
	MemoryLimit int64
	// RestartMax is the longest pause before a start; 0 means 30 s. The first is
	// 100 ms; each further one twice as long, less for each second in service.
	RestartMax time.Duration
	// Silence is how long a child may be silent, which tells something at least
	// once a second, before it is killed. 0 means 10 s or twice Deadline.
	Silence time.Duration
	// FreshFor is how old a device's last row may be for a new child to be waited
	// for before it takes over. 0 means 30 s.
	FreshFor time.Duration

	// Aside is as in sampler.Options.
	Aside bool

	// Stderr is given each line that a child writes to its standard error, as a
	// vendor's library logs; nil keeps the last ones only, for the log of its end.
	// It must not block: the child would, once the pipe is full.
	Stderr func(line string)

	Logger     *zap.Logger           // nil logs nothing
	Registerer prometheus.Registerer // for our own metrics and the child's; nil means none

	// Of tests, for which a process that SIGKILL does not end cannot be had, and which
	// run on machines that are too busy to bury one soon.
	sigkill   func(*os.Process) error
	killGrace time.Duration
	stopSlack time.Duration
}

func (o Options) withDefaults() Options {
	o.Deadline = cmp.Or(o.Deadline, 5*time.Second)
	o.OpenTimeout = cmp.Or(o.OpenTimeout, 30*time.Second)
	o.LostMemory = cmp.Or(o.LostMemory, time.Hour)
	o.StopTimeout = cmp.Or(o.StopTimeout, 2*time.Second)
	o.RestartMax = cmp.Or(o.RestartMax, 30*time.Second)
	o.Silence = cmp.Or(o.Silence, max(10*time.Second, 2*o.Deadline))
	o.FreshFor = cmp.Or(o.FreshFor, 30*time.Second)
	o.killGrace = cmp.Or(o.killGrace, killGrace)
	o.stopSlack = cmp.Or(o.stopSlack, stopSlack)
	if o.sigkill == nil {
		o.sigkill = (*os.Process).Kill
	}
	if o.Start.IsZero() {
		o.Start = time.Now()
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// hangLimit is how long every call of a child may hang, beyond the deadline,
// before it is killed.
func (o *Options) hangLimit() time.Duration { return 2 * o.Deadline }

// setup is what the child is told of them. It stops before it would be killed.
func (o *Options) setup() setup {
	return setup{
		start: o.Start.UnixNano(), level: o.Logger.Level().String(),
		interval: o.Interval, slow: o.SlowInterval, static: o.StaticInterval, deadline: o.Deadline,
		open: o.OpenTimeout, rescan: o.RescanInterval, retry: o.RetryMax, lost: o.LostMemory,
		stop: o.StopTimeout * 3 / 4, span: o.RingSpan,
	}
}
