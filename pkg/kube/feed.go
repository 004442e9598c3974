package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// A kube-apiserver answers a list for one node within milliseconds, sends the headers of a watch at once, and a
// bookmark about once a minute.
const (
	answerLimit = 30 * time.Second // for a list, for a watch's headers
	watchWorks  = 10 * time.Second // a watch that stays open for this long works
	maxWatch    = 10 * time.Minute // a watch lasts between half of this and all of it
	watchSlack  = 30 * time.Second // for a server to end a watch at the requested time
	minWatch    = time.Second      // a watch that ends earlier without an event has failed
	firstDelay  = time.Second      // pause after a failure, doubling up to
	lastDelay   = time.Minute
	longDelay   = 5 * time.Minute // while the resource is not served, which an upgrade may repair, or is too large
	healthy     = 2 * time.Minute // after an attempt that lasted this long the pauses start over
)

// feed mirrors one resource: it lists, then watches, and lists again when the watch fails. Unlike client-go's reflector it
// limits every call, reports every failure to a Health, and follows the resource to another API version after an upgrade.
type feed struct {
	resource resource
	s        *APIServer
	health   *Health

	mirror  mirror
	entries int    // as published
	verb    string // of the current call, for messages
	version string // of the API, in use
	at      string // resource version of the newest list or event; empty: the newest available
	broken  bool   // watches fail, so a list alone is not a success
	trusted bool   // a watch has worked since the last refusal
}

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
		if time.Since(began) >= healthy {
			failures = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay(failures, err)):
		}
	}
}

// delay returns the pause after consecutive failures. Half of it is random, because all nodes of a cluster lose the API
// server at the same time.
func delay(failures int, err error) time.Duration {
	d := min(lastDelay, firstDelay<<min(failures, 10))
	if (errors.Is(err, errNotServed) || isTooLarge(err)) && failures > 3 {
		d = longDelay
	}
	return d/2 + rand.N(d) //nolint:gosec // spreads load
}

// listAndWatch lists once and watches until that fails.
func (f *feed) listAndWatch(ctx context.Context) error {
	f.verb = "read"
	c, err := f.s.dial(qps, burst)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoConfig, err)
	}
	defer c.close()
	f.verb = "list"
	for err = f.list(ctx, c); err == nil; err = f.follow(ctx, c) {
		f.verb = "watch"
	}
	return err
}

// list reads the whole list. After an error the previous objects stay.
func (f *feed) list(ctx context.Context, c *client) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, errNoAnswer)
	defer cancel()
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []apiObject
	}
	version, err := f.resource.inAnyVersion(func(version string) error {
		return read(ctx, f.request(c, version, "List"), &list)
	})
	switch {
	case err != nil:
		return cause(ctx, err)
	case list.Metadata.ResourceVersion == "": // not an empty list: the answer only looks like one
		return errNoVersion
	}
	if f.version != version && f.version != "" {
		f.s.log.Info("switched API version", zap.String("resource", f.resource.name), zap.String("version", version))
	}
	f.version = version
	next := mirror{kind: f.mirror.kind, objects: map[PodName]*apiObject{}}
	for i := range list.Items {
		if err := next.put(&list.Items[i], false); err != nil {
			return err
		}
	}
	f.mirror, f.at = next, list.Metadata.ResourceVersion
	f.publish()
	if !f.broken {
		f.health.Succeeded(f.entries)
	}
	return nil
}

// request returns a request for this node's objects, starting at a resource version. For pods it requests only metadata.
func (f *feed) request(c *client, version, suffix string) *rest.Request {
	root, selector := "/apis/"+f.resource.group, fields.OneTermEqualSelector("spec.nodeName", f.s.o.Node)
	accept := "application/json"
	if f.resource.group == "" {
		root = "/api"
		selector = fields.AndSelectors(selector, fields.OneTermNotEqualSelector("status.phase", "Succeeded"), fields.OneTermNotEqualSelector("status.phase", "Failed"))
		accept += ";as=PartialObjectMetadata" + suffix + ";g=meta.k8s.io;v=v1"
	}
	return c.Get().AbsPath(root, version, f.resource.name).SetHeader("Accept", accept).
		Param("fieldSelector", selector.String()).Param("resourceVersion", f.at)
}

// publish publishes the current objects.
func (f *feed) publish() {
	f.s.publish(func(next *Metadata) (changed bool) {
		f.entries, changed = f.mirror.kind.store(f.mirror.objects, next)
		return changed
	})
}

// event is an event of a watch, or the error that ended it.
type event struct {
	Type   watch.EventType
	Object json.RawMessage
	err    error
}

// follow watches once. It returns nil if the server ended the watch in time.
func (f *feed) follow(ctx context.Context, c *client) error {
	last := maxWatch/2 + rand.N(maxWatch/2) //nolint:gosec // spreads load
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	noHeaders := time.AfterFunc(answerLimit, func() { cancel(errNoAnswer) })
	stream, err := f.request(c, f.version, "").Param("watch", "true").Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", strconv.Itoa(int(last/time.Second))).Stream(ctx)
	noHeaders.Stop()
	if err != nil {
		return cause(ctx, err)
	}
	defer func() { _ = stream.Close() }()
	events := make(chan event)
	go readEvents(ctx, stream, events)
	began, count := time.Now(), 0
	works, end := time.After(watchWorks), time.After(last+watchSlack)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end:
			return errNoAnswer
		case <-works:
			f.works()
		case e, open := <-events:
			switch {
			case !open && count == 0 && time.Since(began) < minWatch:
				return errShortWatch
			case !open:
				return nil
			}
			if err := f.apply(e); err != nil {
				return err
			}
			count++
			f.works()
		}
	}
}

// readEvents sends the events of a stream until it ends, which closes the channel.
func readEvents(ctx context.Context, stream io.Reader, to chan<- event) {
	defer close(to)
	limited := &io.LimitedReader{R: stream}
	in := json.NewDecoder(limited)
	for {
		limited.N = maxAnswer
		var e event
		switch e.err = in.Decode(&e); {
		case limited.N <= 0:
			e.err = errTooMany
		case e.err != nil && (isNetwork(e.err) || utilnet.IsProbableEOF(e.err)):
			return
		}
		select {
		case to <- e:
		case <-ctx.Done():
			return
		}
		if e.err != nil {
			return
		}
	}
}

// apply applies one event of a watch.
func (f *feed) apply(e event) error {
	var o apiObject
	switch {
	case e.err != nil:
		return e.err
	case e.Type == watch.Error:
		s := &apierrors.StatusError{}
		return errors.Join(decode(e.Object, &s.ErrStatus), s)
	}
	err := decode(e.Object, &o)
	switch {
	case err != nil:
	case o.Metadata.ResourceVersion == "":
		err = errNoVersion
	case e.Type == watch.Added, e.Type == watch.Modified, e.Type == watch.Deleted:
		err = f.mirror.put(&o, e.Type == watch.Deleted)
	case e.Type != watch.Bookmark: // whose content is unchanged
		err = errors.New("an event of an unknown type")
	}
	if err == nil {
		f.at = o.Metadata.ResourceVersion
		f.publish()
	}
	return err
}

// decode reads JSON into v. It ignores members of unexpected types.
func decode(text []byte, v any) error {
	var member *json.UnmarshalTypeError
	if err := json.Unmarshal(text, v); !errors.As(err, &member) {
		return err
	}
	return nil
}

func (f *feed) works() {
	f.broken, f.trusted = false, true
	f.health.Succeeded(f.entries)
}

// failed reports a failure, unless the next attempt probably repairs it.
func (f *feed) failed(err error) {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		f.at = "" // the server no longer has our resource version
		return
	case f.trusted && (apierrors.IsForbidden(err) || f.resource.group != "" && apierrors.IsNotFound(err)):
		f.trusted = false // it has just started and not read its roles yet, or an upgrade changed the served versions
		return
	}
	f.broken = f.broken || f.verb == "watch"
	f.health.Failed(reasonOf(err), f.resource.explain(f.verb, err))
}

// cause returns why ctx ended if that made the call fail.
func cause(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errNoAnswer) {
		return errNoAnswer
	}
	return err
}
