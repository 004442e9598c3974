package podmeta

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watchAPI opens a watch that ends by itself: a server has patience to send
// headers, and slack to end the watch when it said it would, however dead the
// connection is.
func (f *feed) watchAPI(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	headers := time.AfterFunc(patience, func() { cancel(errNoAnswer) })
	late := f.overdue("watch")
	w, err := f.api.watch(ctx, o)
	late()
	headers.Stop()
	if err != nil {
		err = causeOf(ctx, err)
		if !ended(ctx) {
			f.watchFailed(err)
		}
		cancel(nil)
		return nil, err
	}
	last := longestWatch
	if o.TimeoutSeconds != nil {
		last = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	s := &stream{inner: w, events: make(chan watch.Event), done: make(chan struct{})}
	s.end = time.AfterFunc(last+slack, func() { cancel(errNoAnswer) })
	s.cancel = func() { cancel(nil) }
	f.streams.Go(func() { s.pass(f) })
	return s, nil
}

// stream passes the events of a watch on, and tells its feed how it goes: the
// reflector keeps to itself why a watch ended.
type stream struct {
	inner  watch.Interface
	events chan watch.Event
	done   chan struct{}
	end    *time.Timer
	cancel func()
	once   sync.Once
}

var _ watch.Interface = (*stream)(nil)

func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// Stop implements watch.Interface. It may be called more than once.
func (s *stream) Stop() {
	s.once.Do(func() {
		close(s.done)
		s.end.Stop()
		s.cancel()
		s.inner.Stop()
	})
}

func (s *stream) pass(f *feed) {
	defer close(s.events)
	stands := time.NewTimer(settled)
	defer stands.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-stands.C:
			f.watchWorks()
		case e, ok := <-s.inner.ResultChan():
			if !ok {
				return
			}
			if e.Type == watch.Error {
				f.watchFailed(apierrors.FromObject(e.Object))
			}
			select {
			case <-s.done:
				return
			case s.events <- e:
			}
			if e.Type != watch.Error {
				f.watchWorks()
			}
		}
	}
}
