package podmeta

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"warpgauge/pkg/mapping"
)

// How long things take. A kube-apiserver answers a list of one node within
// milliseconds, flushes the headers of a watch at once, and sends a bookmark about
// once a minute.
const (
	patience     = 30 * time.Second // for a list, for the headers of a watch, for a look at versions
	settled      = 10 * time.Second // a watch that stands this long works
	slack        = 30 * time.Second // for a server to end a watch at the time it was asked to
	longestWatch = 10 * time.Minute // of a watch that names no end; the reflector's do
	firstDelay   = time.Second      // between a failure and the next attempt, doubling up to
	lastDelay    = time.Minute
	rareDelay    = 5 * time.Minute // while the resource is not served: an upgrade may bring it
	healthy      = 2 * time.Minute // an attempt that held this long begins the delays anew
	farewell     = 2 * time.Second // how long Run waits at its end for a call that does not heed its context
)

// feed keeps a store up to date with one list of the API server. The work is done
// by client-go's reflector, the engine of its informers: list, watch, and list again
// when the watch cannot go on. What feed adds is what an informer lacks: limits on
// every call, errors that reach mapping.Health instead of standard error, another
// API version after an upgrade, and an end without waiting.
type feed struct {
	what    resource
	health  *mapping.Health
	log     *zap.Logger
	dial    func() (*clients, error)
	version func(ctx context.Context, c *clients) (schema.GroupVersionResource, error)
	reader  func(c *clients, r schema.GroupVersionResource) api
	store   store
	example any  // of the objects that come
	many    bool // versions there are: one that is not found is no failure yet

	// Between attempts only:
	clients   *clients
	reading   schema.GroupVersionResource
	reflector *cache.Reflector
	api       api

	// Told by calls, which the reflector makes on more than one goroutine:
	told    atomic.Bool   // Health knows of a failure in this attempt
	excused atomic.Bool   // there was a failure in this attempt that is none yet
	broken  atomic.Bool   // watches do not work: a list alone is not yet all well
	trusted atomic.Bool   // a watch has worked since the last refusal
	moved   atomic.Bool   // the version that is read is not served any more: look for another one
	calling chan struct{} // holds one while a list is under way
	streams sync.WaitGroup
}

// store takes what a reflector reads.
type store interface {
	cache.ReflectorStore
	size() int // may be called by any goroutine
}

// api is how one resource is listed and watched, filtered to this node.
type api struct {
	list  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

func newFeed(what resource, health *mapping.Health, o Options) *feed {
	return &feed{what: what, health: health, log: o.Log, dial: o.dial, calling: make(chan struct{}, 1)}
}

// run reads until ctx ends. Then it waits for all calls to return, but not for ever:
// the credential helper of a kubeconfig does not heed a context.
func (f *feed) run(ctx context.Context) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		f.loop(ctx)
		f.calling <- struct{}{}
		f.streams.Wait()
		f.hangUp()
	}()
	<-ctx.Done()
	limit := time.NewTimer(farewell)
	defer limit.Stop()
	select {
	case <-over:
	case <-limit.C:
		f.log.Warn("a call to the API server does not end and is abandoned", zap.String("resource", f.what.name))
	}
}

func (f *feed) loop(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := f.attempt(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !f.told.Load() && !f.excused.Load() {
			f.failed("read", err)
		}
		if time.Since(began) >= healthy || f.moved.Load() {
			failures = 0
		}
		pause(ctx, delay(failures, err))
	}
}

// attempt lists and watches until that does not go on. A nil error is a watch that
// ended in a way that the reflector does not count as a failure, such as too old a version.
func (f *feed) attempt(ctx context.Context) error {
	f.told.Store(false)
	f.excused.Store(false)
	if f.clients == nil {
		c, err := f.dial()
		if err != nil {
			return err
		}
		f.clients = c
	}
	version, err := f.pick(ctx)
	if err != nil {
		f.hangUp()
		return err
	}
	if f.reflector == nil || version != f.reading {
		f.begin(version)
	}
	f.api = f.reader(f.clients, version)
	// The reflector and the requests log to the logger of their context.
	err = f.reflector.ListAndWatchWithContext(klog.NewContext(ctx, logr.Discard()))
	if f.told.Load() {
		f.hangUp()
	}
	return err
}

func (f *feed) pick(ctx context.Context) (schema.GroupVersionResource, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	defer f.overdue("read")()
	version, err := f.version(ctx, f.clients)
	return version, causeOf(ctx, err)
}

// begin makes a reflector for a version. A reflector outlives failures: it knows
// how far it has read, and a list from there on is one that the API server has in memory.
func (f *feed) begin(version schema.GroupVersionResource) {
	if f.reflector != nil {
		f.log.Info("reads another version", zap.String("resource", f.what.name), zap.String("version", version.Version))
	}
	f.reading = version
	quiet := logr.Discard()
	f.reflector = cache.NewReflectorWithOptions(lister{&cache.ListWatch{
		ListWithContextFunc:  f.listAPI,
		WatchFuncWithContext: f.watchAPI,
	}}, f.example, f.store, cache.ReflectorOptions{Name: "podmeta/" + f.what.name, Logger: &quiet})
}

// lister makes the reflector list plainly. A list that is streamed ("WatchList") waits
// without limit for a bookmark that older servers and proxies do not send, and saves
// nothing for the objects of one node.
type lister struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go asks.
func (lister) IsWatchListSemanticsUnSupported() bool { return true }

// failed tells Health of a failure, unless it is one that the next attempt is
// expected to mend.
func (f *feed) failed(verb string, err error) {
	moved := f.many && apierrors.IsNotFound(err)
	// An API server that has just started refuses what it will allow when it has read its roles.
	starting := apierrors.IsForbidden(err) && f.trusted.Swap(false)
	switch {
	case moved:
		f.moved.Store(true)
		fallthrough
	case starting, tooOld(err):
		f.excused.Store(true)
	default:
		f.told.Store(true)
		f.health.Failed(reasonOf(err), f.what.explain(verb, err))
	}
}

func (f *feed) watchFailed(err error) {
	f.failed("watch", err)
	if f.told.Load() {
		f.broken.Store(true)
	}
}

func (f *feed) watchWorks() {
	f.broken.Store(false)
	f.told.Store(false)
	f.trusted.Store(true)
	f.health.Succeeded(f.store.size())
}

// listed is called by the store after it took a whole list.
func (f *feed) listed() {
	if !f.broken.Load() {
		f.health.Succeeded(f.store.size())
	}
}

// hangUp makes the next attempt ask anew how to reach the API server: files change.
func (f *feed) hangUp() {
	if f.clients != nil {
		f.clients.close()
	}
	f.clients = nil
}

// delay is how long to wait after that many failures in a row, half of it by
// chance: all nodes of a cluster lose the API server at the same time.
func delay(failures int, err error) time.Duration {
	d := min(lastDelay, firstDelay<<min(failures, 10))
	if errors.Is(err, errNotServed) && failures > 3 {
		d = rareDelay
	}
	return d/2 + rand.N(d) //nolint:gosec // spreads load
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
