package podmeta

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// listAPI lists within a limit.
func (f *feed) listAPI(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	f.calling <- struct{}{}
	defer func() { <-f.calling }()
	limited, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	defer f.overdue("list")()
	list, err := f.api.list(limited, o)
	if err == nil {
		err = whole(list)
	}
	if err = causeOf(limited, err); err == nil {
		return list, nil
	}
	if ctx.Err() == nil {
		f.failed("list", err)
	}
	return nil, err
}

// whole keeps an answer that merely looks like an empty list from emptying the store.
func whole(list runtime.Object) error {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	if m.GetResourceVersion() == "" {
		return errNoVersion
	}
	return nil
}

// tooOld says that a list or watch cannot start from where the last one ended,
// which is no failure: there is a newer one.
func tooOld(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// watchAPI opens a watch that ends by itself: a server has patience to send
// headers, and slack to end the watch when it said it would, however dead the
// connection is.
func (f *feed) watchAPI(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	limited, cancel := context.WithCancelCause(ctx)
	headers := time.AfterFunc(patience, func() { cancel(errNoAnswer) })
	late := f.overdue("watch")
	w, err := f.api.watch(limited, o)
	late()
	headers.Stop()
	if err != nil {
		err = causeOf(limited, err)
		if ctx.Err() == nil {
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
	f.streams.Go(func() { s.pass(ctx, limited, f) })
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

// stopped says that whatever comes now is because nobody reads any more.
func (s *stream) stopped() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// pass ends when the watch does, or when it is stopped. limited is ctx with the
// limits of this watch.
func (s *stream) pass(ctx, limited context.Context, f *feed) {
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
			if e.Type == watch.Error && ctx.Err() == nil && !s.stopped() {
				f.watchFailed(causeOf(limited, apierrors.FromObject(e.Object)))
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

// overdue tells of a call that does not even heed its context, until what it returns is called.
func (f *feed) overdue(verb string) (returned func() bool) {
	return time.AfterFunc(patience+slack, func() { f.failed(verb, errNoAnswer) }).Stop
}

// causeOf says why ctx ended, where that is why a call failed.
func causeOf(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
		return errNoAnswer
	}
	return err
}
