package kube

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// A kube-apiserver answers a list for one node within milliseconds, sends the headers of a watch at once, and a
// bookmark about once a minute.
const (
	answerLimit = 30 * time.Second // for a list, for a watch's headers, for the versions of a group
	watchWorks  = 10 * time.Second // a watch that stays open for this long works
	maxWatch    = 10 * time.Minute // a watch lasts between half of this and all of it
	watchSlack  = 30 * time.Second // for a server to end a watch at the requested time
	minWatch    = time.Second      // a watch that ends earlier without an event has failed
	firstDelay  = time.Second      // pause after a failure, doubling up to
	lastDelay   = time.Minute
	longDelay   = 5 * time.Minute // while the resource is not served, which an upgrade may repair, or is too large
	healthy     = 2 * time.Minute // after an attempt that lasted this long the pauses start over
)

// target receives a feed's objects. It belongs to the feed's goroutine.
type target interface {
	replace(objects iter.Seq2[runtime.Object, error]) error
	apply(object runtime.Object, deleted bool) error
	confirm() // the content is unchanged
	count() int
}

// api lists and watches one resource.
type api struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// api returns a resource's calls. Of the core group, which has pods, it reads metadata only.
func (r resource) api(c *clients, version string) api {
	gvr := schema.GroupVersionResource{Group: r.group, Version: version, Resource: r.name}
	if r.group == "" {
		pods := c.pods.Resource(gvr)
		return api{func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) }, pods.Watch}
	}
	objects := c.objects.Resource(gvr)
	return api{func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) }, objects.Watch}
}

// feed keeps a target up to date: it lists, then watches, and lists again when the watch fails. Unlike client-go's
// reflector it limits every call, reports every failure to a Health, and follows the resource to another API version
// after an upgrade.
type feed struct {
	resource resource
	node     string
	target   target
	health   *Health
	log      *zap.Logger
	dial     func() (*clients, error)

	versions versions
	version  string // in use
	at       string // resource version of the newest list or event; empty: the newest available
	broken   bool   // watches fail, so a list alone is not a success
	trusted  bool   // a watch has worked since the last refusal
	absent   bool   // the chosen version does not have the resource
}

// callError is an error of a call to the API server.
type callError struct {
	verb string
	err  error
}

func (e *callError) Error() string { return e.verb + ": " + e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// run reads until ctx ends.
func (f *feed) run(ctx context.Context) {
	f.at = "0" // the API server's cache
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := f.listAndWatch(ctx)
		if ctx.Err() != nil {
			return
		}
		f.failed(err)
		if time.Since(began) >= healthy || f.absent {
			failures = 0
		}
		t := time.NewTimer(delay(failures, err))
		select {
		case <-ctx.Done():
			t.Stop()
		case <-t.C:
		}
	}
}

// delay returns the pause after that many consecutive failures. Half of it is random, because all nodes of a cluster
// lose the API server at the same time.
func delay(failures int, err error) time.Duration {
	d := min(lastDelay, firstDelay<<min(failures, 10))
	if (errors.Is(err, errNotServed) || isTooLarge(err)) && failures > 3 {
		d = longDelay
	}
	return d/2 + rand.N(d) //nolint:gosec // spreads load
}

// listAndWatch lists once and watches until that fails.
func (f *feed) listAndWatch(ctx context.Context) *callError {
	c, err := f.dial()
	if err != nil {
		return &callError{"read", err}
	}
	defer c.close()
	if err := f.pick(ctx, c); err != nil {
		return &callError{"read", err}
	}
	a := f.resource.api(c, f.version)
	if err := f.replace(ctx, a); err != nil {
		return &callError{"list", err}
	}
	for {
		if err := f.follow(ctx, a); err != nil {
			return &callError{"watch", err}
		}
	}
}

func (f *feed) pick(ctx context.Context, c *clients) error {
	ctx, done := f.limit(ctx, "read")
	defer done()
	version := "v1"
	if f.resource.group != "" {
		var err error
		version, err = f.versions.pick(ctx, c, f.absent)
		f.absent = false
		if err != nil {
			return cause(ctx, err)
		}
	}
	if f.version != version && f.version != "" {
		f.log.Info("switched API version", zap.String("resource", f.resource.name), zap.String("version", version))
	}
	f.version = version
	return nil
}

// Limits on a list: far more than a node can have. At most one list and one page are in memory.
const (
	pageSize     = 500      // objects per answer; API servers before 1.34 ignore it for the first list
	maxObjects   = 10_000   // per list: pods, including ended ones; devices
	maxLabelText = 32 << 20 // bytes of kept pod labels
)

// replace reads the whole list, page by page.
func (f *feed) replace(ctx context.Context, a api) error {
	version := ""
	pages := func(yield func(runtime.Object, error) bool) {
		o := metav1.ListOptions{ResourceVersion: f.at, FieldSelector: f.selector(), Limit: pageSize}
		if f.at != "" {
			o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan // with a limit it would be exactly that version otherwise
		}
		for n := 0; ; {
			objects, m, err := f.page(ctx, a, o)
			if n += len(objects); n > maxObjects {
				err = errTooMany
			}
			if err != nil {
				yield(nil, err)
				return
			}
			version = m.GetResourceVersion()
			for _, object := range objects {
				if !yield(object, nil) {
					return
				}
			}
			if m.GetContinue() == "" {
				return
			}
			o.ResourceVersion, o.ResourceVersionMatch, o.Continue = "", "", m.GetContinue()
		}
	}
	if err := f.target.replace(pages); err != nil {
		return err
	}
	f.at = version
	if !f.broken {
		f.health.Succeeded(f.target.count())
	}
	return nil
}

// page reads one page of a list.
func (f *feed) page(ctx context.Context, a api, o metav1.ListOptions) ([]runtime.Object, metav1.ListInterface, error) {
	ctx, done := f.limit(ctx, "list")
	defer done()
	list, err := a.list(ctx, o)
	if err != nil {
		return nil, nil, cause(ctx, err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, nil, err
	}
	if m.GetResourceVersion() == "" { // it only looks like an empty list
		return nil, nil, errNoVersion
	}
	objects, err := meta.ExtractList(list)
	return objects, m, err
}

func (f *feed) selector() string {
	return fields.OneTermEqualSelector("spec.nodeName", f.node).String()
}

// follow watches once. It returns nil if the server ended the watch in time.
func (f *feed) follow(ctx context.Context, a api) error {
	last := maxWatch/2 + rand.N(maxWatch/2) //nolint:gosec // spreads load
	seconds := int64(last / time.Second)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	noHeaders := time.AfterFunc(answerLimit, func() { cancel(errNoAnswer) })
	overdue := f.overdue("watch")
	w, err := a.watch(ctx, metav1.ListOptions{ResourceVersion: f.at, FieldSelector: f.selector(), AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	overdue.Stop()
	noHeaders.Stop()
	if err != nil {
		return cause(ctx, err)
	}
	defer w.Stop()
	began, events := time.Now(), 0
	works, end := time.NewTimer(watchWorks), time.NewTimer(last+watchSlack)
	defer works.Stop()
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end.C:
			return errNoAnswer
		case <-works.C:
			f.works()
		case e, open := <-w.ResultChan():
			switch {
			case !open && events == 0 && time.Since(began) < minWatch:
				return errShortWatch
			case !open:
				return nil
			}
			if err := f.event(e); err != nil {
				return err
			}
			events++
			f.works()
		}
	}
}

// event applies one event of a watch.
func (f *feed) event(e watch.Event) error {
	if e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return err
	}
	if m.GetResourceVersion() == "" {
		return errNoVersion
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		err = f.target.apply(e.Object, false)
	case watch.Deleted:
		err = f.target.apply(e.Object, true)
	case watch.Bookmark:
		f.target.confirm()
	default:
		err = errors.New("an event of an unknown type")
	}
	if err == nil {
		f.at = m.GetResourceVersion()
	}
	return err
}

func (f *feed) works() {
	f.broken, f.trusted = false, true
	f.health.Succeeded(f.target.count())
}

// failed reports a failure, unless the next attempt probably repairs it.
func (f *feed) failed(err *callError) {
	switch {
	case f.resource.group != "" && apierrors.IsNotFound(err.err):
		f.absent = true // try the other versions
		return
	case apierrors.IsResourceExpired(err.err), apierrors.IsGone(err.err), apierrors.HasStatusCause(err.err, metav1.CauseTypeResourceVersionTooLarge):
		f.at = "" // it does not have our resource version
		return
	case isTooLarge(err.err) && f.at != "":
		f.at = "" // now in pages, even on an old API server
		return
	case apierrors.IsForbidden(err.err) && f.trusted:
		f.trusted = false // an API server that has just started refuses everything until it has read its roles
		return
	}
	f.broken = f.broken || err.verb == "watch"
	f.health.Failed(reasonOf(err.err), f.resource.explain(err.verb, err.err))
}

// limit bounds a call. The caller must call done when it has returned.
func (f *feed) limit(ctx context.Context, verb string) (limited context.Context, done func()) {
	limited, cancel := context.WithTimeoutCause(ctx, answerLimit, errNoAnswer)
	overdue := f.overdue(verb)
	return limited, func() { overdue.Stop(); cancel() }
}

// overdue reports a call that ignores its context.
func (f *feed) overdue(verb string) *time.Timer {
	return time.AfterFunc(answerLimit+watchSlack, func() {
		f.health.Failed(reasonOf(errNoAnswer), f.resource.explain(verb, errNoAnswer))
	})
}

// cause returns why ctx ended if that made the call fail.
func cause(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errNoAnswer) {
		return errNoAnswer
	}
	return err
}
