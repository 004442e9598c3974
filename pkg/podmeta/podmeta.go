// Package podmeta asks the API server for what the kubelet's socket does not tell:
// uids and labels of this node's pods, and which devices this node's ResourceSlices
// stand for (dynamic resource allocation). cmd runs a Client in the background;
// pkg/owner reads its Snapshots, which touches memory only.
//
// A Client reads each of the two lists that it was asked for with a goroutine of its
// own, filtered by the API server to one node: pods as metadata only, slices of the
// drivers whose devices we know. A failure takes nothing away: the last good Snapshot
// stays, package mapping says since when and why, and the next attempt follows with
// back-off. No call waits without a limit, and all end with Run.
package podmeta

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"warpgauge/pkg/mapping"
)

// Options of New. The zero value is usable and asks for nothing.
type Options struct {
	// Node is the name of this node as the API has it, as a rule from the environment
	// variable NODE_NAME, which the downward API fills from spec.nodeName. Empty:
	// nothing is asked, and Health says what to set. It is not guessed from the host
	// name: without hostNetwork that is the pod's, and node names differ from host names.
	Node string
	// Pods asks for uids and labels of this node's pods.
	Pods bool
	// Slices asks for the devices of this node's ResourceSlices.
	Slices bool
	// KeepLabel says which labels of pods are kept, by their names as the API has them. nil: none, only uids.
	KeepLabel func(name string) bool
	// Config tells how to reach the API server. It is asked at the start and again
	// after failures. nil: FromEnvironment.
	Config func() (*rest.Config, error)
	// UserAgent is what the API server's audit log sees; empty: warpgauge.
	UserAgent string
	// PodHealth and SliceHealth are told how it goes with pods (mapping.PodMetadata)
	// and slices (mapping.ResourceSlices); made with Reasons. nil: nobody is told.
	PodHealth, SliceHealth *mapping.Health
	// OnChange is called after a Snapshot with other content was published, never
	// twice at a time; it must not block. nil: nobody is told.
	OnChange func()
	// Log takes what Health does not tell; nil logs nothing.
	Log *zap.Logger

	dial func() (*clients, error) // nil: clients made from Config
}

// Client keeps a Snapshot of what the API server says about this node.
type Client struct {
	o      Options
	newest atomic.Pointer[Snapshot]
	mu     sync.Mutex // one publisher at a time
}

// New returns a Client. It starts nothing and asks nobody.
func New(o Options) *Client {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	o.Log = o.Log.Named("podmeta")
	if o.UserAgent == "" {
		o.UserAgent = "warpgauge"
	}
	if o.Config == nil {
		o.Config = FromEnvironment
	}
	if o.PodHealth == nil {
		o.PodHealth = mapping.New(mapping.PodMetadata, nil)
	}
	if o.SliceHealth == nil {
		o.SliceHealth = mapping.New(mapping.ResourceSlices, nil)
	}
	if o.dial == nil {
		config, agent := o.Config, o.UserAgent
		o.dial = func() (*clients, error) { return connect(config, agent) }
	}
	c := &Client{o: o}
	c.newest.Store(&Snapshot{Pods: map[PodName]Pod{}, ByUID: map[string]PodName{}, Slices: map[DeviceName]Device{}})
	return c
}

// Snapshot returns the newest one, which may be empty but is never nil. It waits for nothing.
func (c *Client) Snapshot() *Snapshot { return c.newest.Load() }

// Run keeps the Snapshot up to date until ctx ends; then it returns nil. Call it once.
func (c *Client) Run(ctx context.Context) error {
	var feeds []*feed
	if c.o.Pods {
		feeds = append(feeds, c.podFeed())
	}
	if c.o.Slices {
		feeds = append(feeds, c.sliceFeed())
	}
	var running sync.WaitGroup
	for _, f := range feeds {
		if c.o.Node == "" {
			f.health.Failed(ReasonNoNode, errNoNode)
			continue
		}
		running.Go(func() { f.run(ctx) })
	}
	<-ctx.Done()
	running.Wait()
	return nil
}

// publish swaps the Snapshot for a copy that edit has worked on. edit says whether
// the content differs; if not, only times may.
func (c *Client) publish(edit func(next *Snapshot) (changed bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := *c.newest.Load()
	changed := edit(&next)
	next.Time = c.confirmed(&next)
	if changed {
		next.Version++
	}
	c.newest.Store(&next)
	if changed && c.o.OnChange != nil {
		c.o.OnChange()
	}
}

// confirmed is the older of the times of the lists that were asked for.
func (c *Client) confirmed(s *Snapshot) time.Time {
	switch {
	case !c.o.Slices:
		return s.PodsTime
	case !c.o.Pods:
		return s.SlicesTime
	case s.PodsTime.Before(s.SlicesTime):
		return s.PodsTime
	}
	return s.SlicesTime
}
