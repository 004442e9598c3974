// Package kube reads Kubernetes' information about the devices of a node: which pod has which device (the kubelet's
// pod-resources socket), UIDs and labels of pods and the devices of ResourceSlices (the API server), and the names of
// running containers (the container runtime's socket).
//
// Each client has one goroutine, its Run, and publishes immutable snapshots behind an atomic pointer. Reading a
// snapshot never waits. After a failure the last good snapshot stays, and a Health reports since when and why. Package
// owner joins the snapshots.
package kube

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// PodName identifies a pod on a node.
type PodName struct{ Namespace, Name string }

// Compare orders pods by namespace and name.
func (p PodName) Compare(q PodName) int {
	return cmp.Or(cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name))
}

// failure says why a server gave no answer: a reason for metrics and an error for the log.
type failure struct {
	reason string
	err    error
}

func fail(reason, format string, args ...any) *failure {
	return &failure{reason: reason, err: fmt.Errorf(format, args...)}
}

// poller calls a function at the times that the function chooses, and earlier after PollSoon.
type poller struct {
	soon chan struct{}
	gap  time.Duration // minimum time between two calls
}

func newPoller() poller { return poller{soon: make(chan struct{}, 1), gap: time.Second} }

// PollSoon makes the poller call soon because something may have changed, and once more after that: a pod is listed
// before it has its devices. It never blocks.
func (p *poller) PollSoon() {
	select {
	case p.soon <- struct{}{}:
	default: // a call is already pending
	}
}

// run calls poll until ctx ends. poll returns the time to wait.
func (p *poller) run(ctx context.Context, poll func(context.Context) time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	requested := false
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.soon:
			requested = true
			timer.Reset(max(0, p.gap-time.Since(last)))
		case <-timer.C:
			wait := poll(ctx)
			last = time.Now()
			if requested {
				requested, wait = false, min(wait, p.gap)
			}
			timer.Reset(wait)
		}
	}
}

// clip shortens another program's text for the log.
func clip(s string) string {
	const most = 300 // bytes
	if len(s) <= most {
		return strings.ToValidUTF8(s, "�")
	}
	return strings.ToValidUTF8(s[:most], "") + "…" // without an incomplete rune
}
