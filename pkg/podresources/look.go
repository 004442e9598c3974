package podresources

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"
)

// look asks the kubelet and publishes what it says. It returns how long to wait
// before the next look.
func (c *Client) look(ctx context.Context) time.Duration {
	a, f := c.list(ctx)
	if ctx.Err() != nil {
		return 0 // Run ends; that is no failure
	}
	if f != nil {
		c.health.Failed(f.reason, f.err)
		return c.wait(f)
	}
	c.tellSkipped(a.skipped)
	now, last := time.Now(), c.Snapshot()
	if c.fresh {
		c.fresh = false
		c.trust.restarted(now)
	}
	held := c.trust.missing(last.Pods, a, now)
	pods, confirmed := a.pods, now
	if len(held) > 0 {
		pods, confirmed = slices.Concat(held, a.pods), last.Time
		slices.SortFunc(pods, comparePods) // no pod is in both
	}
	c.publish(pods, last.Allocatable, confirmed)
	if len(held) > 0 {
		f = fail(ReasonRecovering, "list pods at %q: the kubelet has restarted and lists %d pods, without %d that had devices and keep them for now (if this lasts: does the kubelet reach the API server?)", c.o.Socket, len(a.listed), len(held))
		c.health.Failed(f.reason, f.err)
	} else {
		c.health.Succeeded(containers(pods))
	}
	c.publish(pods, c.able(ctx), confirmed) // who has which does not wait for this
	return c.wait(f)
}

// wait is how long to wait after a look that ended so.
func (c *Client) wait(f *failure) time.Duration {
	switch {
	case f != nil && f.reason == ReasonRateLimited:
		// Who else waits for the limit should not come at the same time.
		return c.o.gap + rand.N(c.o.gap) //nolint:gosec // nothing secret depends on it
	case c.again:
		c.again = false
		return c.o.gap
	}
	return c.o.Period
}

// list asks for pods, over a new connection where there is none or where it has
// ended.
func (c *Client) list(ctx context.Context) (*answer, *failure) {
	if c.kubelet != nil && c.kubelet.stale() {
		c.hangUp()
	}
	for kept := c.kubelet != nil; ; kept = false {
		if f := c.connect(ctx); f != nil {
			return nil, f
		}
		a, f := call(ctx, c.o.Timeout, c.kubelet.list)
		if f == nil || f.reason != ReasonTimeout {
			c.silent = 0
		}
		if f == nil {
			return a, nil
		}
		switch f.reason {
		case ReasonTimeout:
			if c.silent++; c.silent%patience == 0 {
				c.hangUp()
			}
		case ReasonClosed, ReasonNotGRPC:
			c.hangUp()
			if kept && f.reason == ReasonClosed {
				continue // the kubelet has restarted meanwhile, and may be there
			}
		}
		return nil, f
	}
}

// connect makes the connection where there is none.
func (c *Client) connect(ctx context.Context) *failure {
	if c.kubelet != nil {
		return nil
	}
	k, f := c.o.dial(ctx)
	if f != nil {
		return f
	}
	c.kubelet, c.fresh, c.ableDue = k, true, time.Time{}
	return nil
}

func (c *Client) hangUp() {
	if c.kubelet != nil {
		c.kubelet.close()
		c.kubelet = nil
	}
}

// able is what could be handed out: asked for if that is due, else as before. What
// goes wrong here takes nothing from the mapping, so it is a line in the log only.
func (c *Client) able(ctx context.Context) []Devices {
	last := c.Snapshot()
	if time.Now().Before(c.ableDue) {
		return last.Allocatable
	}
	a, f := call(ctx, c.o.Timeout, c.kubelet.able)
	if ctx.Err() != nil {
		return last.Allocatable
	}
	c.tellUnable(f)
	now := time.Now()
	if f == nil {
		c.ableDue = now.Add(c.o.AllocatablePeriod)
		return c.trust.able(last.Allocatable, a.allocatable, now)
	}
	switch f.reason {
	case ReasonUnimplemented:
		c.ableDue = now.Add(c.o.AllocatablePeriod)
		return nil
	case ReasonError, ReasonTooLarge, ReasonMalformed: // kubelets before 1.23 have it switched off and say so in words
		c.ableDue = now.Add(c.o.AllocatablePeriod)
	}
	return last.Allocatable
}

// publish shows a Snapshot. One with the content of the last has its Version.
func (c *Client) publish(pods []Pod, allocatable []Devices, confirmed time.Time) {
	last := c.Snapshot()
	if last.Version > 0 && equalPods(last.Pods, pods) && equalDevices(last.Allocatable, allocatable) {
		c.shown.Store(&Snapshot{Version: last.Version, Time: confirmed, Pods: last.Pods, Allocatable: last.Allocatable})
		return
	}
	c.shown.Store(&Snapshot{Version: last.Version + 1, Time: confirmed, Pods: pods, Allocatable: allocatable})
	c.o.OnChange()
}

func (c *Client) tellSkipped(s skipped) {
	if s.parts > 0 {
		c.health.Counted(ReasonSkipped, s.parts)
	}
	switch {
	case s.parts > 0 && c.skipped == 0:
		c.log.Warn("parts of the kubelet's list cannot be used and are left out", zap.Int("parts", s.parts), zap.String("first", s.first))
	case s.parts == 0 && c.skipped > 0:
		c.log.Info("all of the kubelet's list can be used again")
	}
	c.skipped = s.parts
}

func (c *Client) tellUnable(f *failure) {
	was := c.unable
	switch {
	case f == nil:
		if c.unable = ""; was != "" {
			c.log.Info("the kubelet tells again which devices it can hand out")
		}
	case f.reason != was:
		c.unable = f.reason
		c.log.Info("the kubelet does not tell which devices it can hand out; who has which is not affected", zap.String("reason", f.reason), zap.Error(f.err))
	}
}

// call makes a call with a deadline.
func call(ctx context.Context, timeout time.Duration, method func(context.Context) (*answer, *failure)) (*answer, *failure) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return method(ctx)
}

// containers is how many containers have devices.
func containers(pods []Pod) (n int) {
	for _, p := range pods {
		n += len(p.Containers)
	}
	return n
}
