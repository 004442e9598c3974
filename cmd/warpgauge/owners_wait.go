package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"warpgauge/pkg/collector"
)

// start runs the clients until stop, for commands that look once. Nil has nothing
// to run.
func (o *owners) start(ctx context.Context) (stop func()) {
	if o == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	longest := time.Duration(0)
	for _, c := range o.clients {
		running.Go(func() { _ = o.lasting(c)(ctx) })
		longest = max(longest, c.grace)
	}
	return func() {
		cancel()
		done := make(chan struct{})
		go func() { running.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(longest): // what hangs ends with the process
		}
	}
}

// settle waits until each mapping has come or has failed, and joins what is there.
func (o *owners) settle(ctx context.Context) {
	if o == nil {
		return
	}
	tick := time.NewTicker(statusPoll)
	defer tick.Stop()
	for !o.settled() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	o.keeper.Refresh(time.Now())
}

func (o *owners) settled() bool {
	for _, h := range o.health {
		if !h.Tried() {
			return false
		}
	}
	for _, c := range o.clients {
		if c.settled != nil && !c.settled() {
			return false
		}
	}
	return true
}

// describe says in words who uses a device; nil has nothing to say.
func (o *owners) describe(d *collector.Device) []string {
	if o == nil {
		return nil
	}
	return o.keeper.Describe(d)
}

// writeProblems says which mapping is missing, and why, and what the kubelet names
// that is not here.
func (o *owners) writeProblems(w io.Writer, waited time.Duration) {
	if o == nil {
		return
	}
	for _, h := range o.health {
		switch err := h.Problem(); {
		case err != nil:
			fmt.Fprintf(w, "mapping %s fails (%s): %v\n", h.Name(), h.Failing(), err) //nolint:errcheck // nobody reads it
		case !h.Tried():
			fmt.Fprintf(w, "mapping %s: no answer within %v\n", h.Name(), waited) //nolint:errcheck // as above
		}
	}
	for _, u := range o.keeper.Unmatched() {
		fmt.Fprintf(w, "not a device of this machine: %s %s of pod %s/%s (%s)\n", u.Resource, u.ID, u.Namespace, u.Pod, u.Reason) //nolint:errcheck // as above
	}
}
