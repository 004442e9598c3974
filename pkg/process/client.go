package process

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/mapping"
	"warpgauge/pkg/view"
)

// Reasons of failure, for mapping.Health.
const (
	ReasonNoHostPID = "no_host_pid" // we have a PID namespace of our own
	ReasonNoProc    = "no_proc"     // /proc cannot be read
	ReasonNoSource  = "no_source"   // no collector tells processes
	ReasonStale     = "stale"       // what collectors tell is too old
	ReasonUnplaced  = "unplaced"    // processes that are listed are not in /proc, or their control groups cannot be read
)

// Reasons are all of them, for mapping.New.
func Reasons() []string {
	return []string{ReasonNoHostPID, ReasonNoProc, ReasonNoSource, ReasonStale, ReasonUnplaced}
}

// Options of a Client. The zero value is usable.
type Options struct {
	Proc       string          // where the kernel tells of processes; "" is /proc
	Interval   time.Duration   // between two looks; 0 is one second
	StaleAfter time.Duration   // a device whose last sample is older is left out; 0 is ten seconds
	OnChange   func()          // called after a Snapshot of a new Version was published; must not block; may be nil
	Health     *mapping.Health // may be nil
	Log        *zap.Logger     // may be nil
}

// Client finds out who uses each device.
type Client struct {
	o     Options
	log   *zap.Logger
	board *view.Board
	snap  atomic.Pointer[Snapshot]

	// Of Run's goroutine.
	table    *table
	view     *view.View
	sources  []*followed
	tally    tally
	pidSpace string // own PID namespace; empty until it could be read
	unplaced int    // looks in a row with processes that could not be placed
}

// New returns a Client that reads the sources on a board of process collectors.
func New(board *view.Board, o Options) *Client {
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.StaleAfter <= 0 {
		o.StaleAfter = 10 * time.Second
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Health == nil {
		o.Health = mapping.New(mapping.Processes, nil, Reasons()...)
	}
	c := &Client{o: o, log: o.Log.Named("process"), board: board, table: newTable(o.Proc)}
	c.snap.Store(&Snapshot{})
	return c
}

// Snapshot returns the newest one, never nil. It never waits.
func (c *Client) Snapshot() *Snapshot { return c.snap.Load() }

// Run looks until ctx ends. Call it once.
func (c *Client) Run(ctx context.Context) error {
	ticker := time.NewTicker(c.o.Interval)
	defer ticker.Stop()
	for {
		c.look(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
