package cri

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/mapping"
)

// Options of a Client. Socket is required.
type Options struct {
	Socket     string          // path of the runtime's socket; "unix://" may be before it
	Interval   time.Duration   // between two questions; 0 is ten seconds
	Timeout    time.Duration   // of a question; 0 is five seconds
	MaxMessage int             // bytes of an answer; 0 is 64 MiB
	OnChange   func()          // called after a Snapshot of a new Version was published; must not block; may be nil
	Health     *mapping.Health // may be nil
	Log        *zap.Logger     // where there is no Health; may be nil
}

// gap is the least time between two questions, however often Suspect is called.
const gap = time.Second

// Client asks one runtime.
type Client struct {
	o       Options
	snap    atomic.Pointer[Snapshot]
	suspect chan struct{}

	// Of Run's goroutine.
	conn *conn // nil where there is none
}

// New returns a Client that knows nothing until Run runs.
func New(o Options) *Client {
	o.Socket = strings.TrimPrefix(o.Socket, "unix://")
	if o.Interval <= 0 {
		o.Interval = 10 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = 64 << 20
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	if o.Health == nil {
		o.Health = mapping.New(mapping.ContainerRuntime, o.Log, Reasons()...)
	}
	c := &Client{o: o, suspect: make(chan struct{}, 1)}
	c.snap.Store(&Snapshot{})
	return c
}

// Snapshot returns the newest one, never nil. It never waits.
func (c *Client) Snapshot() *Snapshot { return c.snap.Load() }

// Suspect asks for a look soon, since there is a container that is not known. It
// never blocks; wishes that come together are one.
func (c *Client) Suspect() {
	select {
	case c.suspect <- struct{}{}:
	default: // there is a wish already
	}
}

// Run asks until ctx ends, and returns nil. Call it once.
func (c *Client) Run(ctx context.Context) error {
	defer c.hangUp()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var asked time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.suspect:
			timer.Reset(max(0, gap-time.Since(asked)))
		case <-timer.C:
			c.look(ctx)
			asked = time.Now()
			timer.Reset(c.o.Interval)
		}
	}
}

// look asks once. After a failure the next look makes a new connection: what
// went wrong with the old one is not worth knowing.
func (c *Client) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	containers, err := c.ask(ctx)
	if err != nil {
		c.hangUp()
		if !errors.Is(ctx.Err(), context.Canceled) { // else it is only the end
			c.o.Health.Failed(err.reason, err.err)
		}
		return
	}
	before := c.snap.Load()
	now := before.next(containers, time.Now())
	c.snap.Store(now)
	c.o.Health.Succeeded(len(containers))
	if now.Version != before.Version {
		c.o.OnChange()
	}
}

func (c *Client) ask(ctx context.Context) (map[string]Container, *failure) {
	if c.conn == nil {
		conn, err := dial(ctx, c.o)
		if err != nil {
			return nil, err
		}
		c.conn = conn
	}
	return c.conn.list(ctx)
}

func (c *Client) hangUp() {
	if c.conn != nil {
		c.conn.close()
		c.conn = nil
	}
}
