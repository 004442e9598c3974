package podresources

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/mapping"
)

// patience is how many calls in a row may time out before another connection is
// tried. grpc's own pings would be quicker, but a server takes more than one in
// five minutes for an attack.
const patience = 3

// Client asks one kubelet. Its methods may be called concurrently.
type Client struct {
	o       Options
	log     *zap.Logger
	health  *mapping.Health
	suspect chan struct{}
	shown   atomic.Pointer[Snapshot]

	// The rest is Run's.
	kubelet kubelet // nil: not connected
	fresh   bool    // the connection has given no list yet
	silent  int     // calls in a row that timed out
	trust   trust
	ableDue time.Time // when allocatable devices are to be asked for
	unable  string    // why they are not told; empty while they are
	skipped int       // parts of the last list that could not be used
	again   bool      // the last wish wants a second look
	looked  time.Time // end of the last look
}

// New returns a Client that knows nothing until Run runs.
func New(o Options) *Client {
	o = o.withDefaults()
	c := &Client{
		o: o, log: o.Log.Named("podresources"), health: o.Health, suspect: make(chan struct{}, 1),
		trust: trust{settle: o.Settle, distrust: o.Distrust},
	}
	if c.o.dial == nil {
		seed := maphash.MakeSeed()
		c.o.dial = func(ctx context.Context) (kubelet, *failure) { return dial(ctx, o, seed) }
	}
	c.shown.Store(&Snapshot{})
	return c
}

// Snapshot is what was published last; never nil. It waits for nothing.
func (c *Client) Snapshot() *Snapshot { return c.shown.Load() }

// Suspect asks for a look soon, since a device or a pod may have changed, and for
// another a second later: a pod is known before it has its devices. It never
// blocks; wishes that come together are one.
func (c *Client) Suspect() {
	select {
	case c.suspect <- struct{}{}:
	default: // there is a wish already
	}
}

// Run looks until ctx ends, and returns nil when the connection is closed and all
// else that it started has ended. Only one Run at a time.
//
// There is no use for Get: a suspicion names no pod, and one List costs the kubelet
// as many calls.
func (c *Client) Run(ctx context.Context) error {
	defer c.hangUp()
	w := newWatch(c.o.Socket, c.o.open, c.log)
	defer w.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	events, failures := w.channels()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.suspect:
			c.again, c.ableDue = true, time.Time{}
			timer.Reset(c.soon())
		case e := <-events:
			if w.matters(e) {
				timer.Reset(c.soon())
			}
		case err := <-failures:
			c.log.Debug("watch the kubelet's socket", zap.Error(err))
			timer.Reset(c.soon()) // an overflow says that events were lost
		case <-timer.C:
			w.aim()
			wait := c.look(ctx)
			c.looked = time.Now()
			timer.Reset(wait)
		}
	}
}

// soon is how long the next look must wait.
func (c *Client) soon() time.Duration { return max(0, c.o.gap-time.Since(c.looked)) }
