package sampler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Release lets the collector of that name go, or all where it is empty: its
// sources leave the Board at once, no further library call begins, and when the
// last has returned the collector is closed. Release returns when nothing of it
// is held any more. If ctx ends first, the error names what still hangs, and the
// release goes on in the background. Nothing is opened before Resume; a Reload
// meanwhile is heeded then.
func (s *Sampler) Release(ctx context.Context, name string) error {
	keepers, err := s.named(name)
	if err != nil {
		return err
	}
	waits := make([]<-chan error, len(keepers))
	for i, k := range keepers { // all of them before the first is waited for
		waits[i] = k.rest(RestReleased)
	}
	errs := make([]error, len(keepers))
	for i, k := range keepers {
		select {
		case errs[i] = <-waits[i]:
		case <-ctx.Done():
			errs[i] = fmt.Errorf("release collector %q: %w: %s", k.name, ctx.Err(), k.holding())
		}
	}
	return errors.Join(errs...)
}

// Resume ends a release: the collector of that name, or all, is opened again.
func (s *Sampler) Resume(name string) error {
	keepers, err := s.named(name)
	for _, k := range keepers {
		k.rouse(RestReleased)
	}
	return err
}

// Standby puts the collector of that name to rest, as Release does, because
// another serves its devices, or ends that. It and a release are two reasons to
// rest: the collector is opened again when neither is left.
func (s *Sampler) Standby(ctx context.Context, name string, rest bool) error {
	keepers, err := s.named(name)
	if err != nil {
		return err
	}
	for _, k := range keepers {
		if !rest {
			k.rouse(RestStandby)
			continue
		}
		select {
		case err = <-k.rest(RestStandby):
		case <-ctx.Done():
			err = fmt.Errorf("put collector %q on standby: %w: %s", k.name, ctx.Err(), k.holding())
		}
	}
	return err
}

// Rest is why a collector rests; there may be several reasons.
type Rest uint8

// The reasons.
const (
	RestReleased Rest = 1 << iota // somebody wants its library and driver free
	RestStandby                   // another collector serves its devices
)

// Why says so. What a person has asked for comes first.
func (r Rest) Why() (Cause, string) {
	if r&RestReleased != 0 {
		return CauseReleased, "released: nothing is sampled until it is resumed"
	}
	return CauseStandby, "standing by: another collector serves its devices"
}

func (r Rest) problem() *problem {
	cause, reason := r.Why()
	return &problem{cause: cause, reason: reason}
}

func (s *Sampler) named(name string) ([]*keeper, error) {
	if name == "" {
		return s.keepers, nil
	}
	for _, k := range s.keepers {
		if k.name == name {
			return []*keeper{k}, nil
		}
	}
	return nil, fmt.Errorf("no collector %q", name)
}

// rest adds a reason to rest. The channel tells when nothing is held.
func (k *keeper) rest(why Rest) <-chan error {
	done := make(chan error, 1)
	k.wishMu.Lock()
	k.letGo |= why
	k.releases = append(k.releases, done)
	k.wishMu.Unlock()
	poke(k.wake)
	return done
}

// rouse takes one back.
func (k *keeper) rouse(why Rest) {
	k.wishMu.Lock()
	k.letGo &^= why
	k.wishMu.Unlock()
	poke(k.wake)
}

// answerReleases tells those who wait for a release.
func (k *keeper) answerReleases(err error) {
	k.wishMu.Lock()
	defer k.wishMu.Unlock()
	for _, done := range k.releases {
		done <- err
	}
	k.releases = nil
}

var errOvertaken = errors.New("resumed before it was released")

// onWish looks at what is wanted now.
func (k *keeper) onWish() {
	k.wishMu.Lock()
	letGo, version := k.letGo, k.version
	var overtaken []chan error // taken with letGo: a release that comes now is not among them
	if letGo == 0 {
		overtaken, k.releases = k.releases, nil
	}
	k.wishMu.Unlock()
	for _, done := range overtaken {
		done <- errOvertaken
	}
	switch {
	case letGo != 0 && !k.released:
		k.released, k.dirty = true, false
		k.retry.Stop()
		k.problem.Store(letGo.problem())
		if p := k.pending; p != nil {
			k.pending, k.ready = nil, nil
			p.retire()
			k.retired = append(k.retired, p)
		}
		k.retire(nil)
		k.log.Info("collector is let go", zap.String("cause", string(letGo.problem().cause)))
	case letGo != 0:
		k.problem.Store(letGo.problem()) // another reason than before, maybe
	case k.released:
		k.released, k.dirty = false, true
		k.held.Store(nil)
		k.pause = firstRetry
		k.problem.Store(&problem{cause: CauseOpening, reason: "being opened again after a release"})
		k.log.Info("collector is resumed")
	case version > k.asked:
		k.dirty = true
	}
	if k.released {
		k.answer(version, nil) // there is nothing to serve; it is heeded at the end of the release
	}
}

// settleRelease answers when nothing is held any more.
func (k *keeper) settleRelease() {
	k.retired = slices.DeleteFunc(k.retired, (*binding).isClosed)
	held := slices.Clone(k.retired)
	k.held.Store(&held)
	if len(held) == 0 && k.opened == nil && k.rescan == nil {
		k.answerReleases(nil)
	}
}

// retire takes what is in service out of it, for next or, if that is nil, for
// nothing.
func (k *keeper) retire(next *binding) {
	old := k.calls.swap(&k.current, next)
	switch {
	case next != nil:
		k.former.Store(nil)
	case old != nil:
		k.former.Store(old)
	}
	if old == nil {
		return
	}
	if next == nil {
		k.publish()
	}
	old.retire()
	k.retired = append(slices.DeleteFunc(k.retired, (*binding).isClosed), old)
}

// onOutdated reacts to a library that no longer fits the driver. Whoever can
// replace this process is told in Status. Otherwise what is open is closed, and
// opened again with the usual pauses.
func (k *keeper) onOutdated(b *binding, err error) {
	if b != k.current.Load() || k.released {
		return // said of what is closed
	}
	p := &problem{cause: CauseOutdated, reason: err.Error()}
	if old := k.problem.Swap(p); old == nil || old.cause != p.cause {
		k.log.Warn("collector no longer fits the driver", zap.Error(err))
	}
	if k.o.Replaceable {
		return
	}
	k.retire(nil)
	k.retry.Reset(k.pause)
	k.pause = min(k.pause*2, k.o.RetryMax)
}

// parted tells the devices that were in service before there was nothing. Any
// goroutine.
func (k *keeper) parted(cause Cause, reason string, now time.Time) (out []DeviceStatus) {
	b := k.former.Load()
	if b == nil || cause == CauseNothing || cause == CauseStandby {
		return nil
	}
	for _, w := range b.workers {
		for i := range w.view.Devices {
			st := w.device(i, now)
			if w.hung(now) {
				out = append(out, st) // it is still held
				continue
			}
			st.State, st.Cause, st.Reason = Stalled, cause, reason
			if cause == CauseReleased {
				st.State = Released
			}
			out = append(out, st)
		}
	}
	return out
}

// holding says what a release waits for. Any goroutine.
func (k *keeper) holding() string {
	var ids []string
	if held := k.held.Load(); held != nil {
		for _, b := range *held {
			ids = append(ids, b.hungDevices()...)
		}
	}
	if len(ids) == 0 {
		return "its library has not been closed yet"
	}
	return "library calls for " + strings.Join(ids, ", ") + " have not returned"
}
