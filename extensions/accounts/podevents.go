package accounts

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/accounts/report"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/kube"
)

const (
	podEventsAnHour = 360 // and at most podEventsBurst at once
	podEventsBurst  = 60
	maxWaiting      = 256             // events
	podEventGap     = 5 * time.Second // between attempts, doubling up to
	maxPodEventGap  = time.Minute
	podEventLimit   = 10 * time.Second // for an attempt
)

// PodEvents writes the report of each pod that has ended as an event to the pod. An API server that does not answer costs events,
// and nothing else.
type PodEvents struct {
	events  *kube.Events
	log     *zap.Logger
	waiting chan *report.Report
	since   int64         // ns; pods that left before get none
	dropped atomic.Uint64 // events
	failing bool          // Run's
}

func newPodEvents(c *exporter.Core) (*PodEvents, error) {
	api, err := kube.Config("warpgauge/" + c.Version)
	if err != nil {
		return nil, err
	}
	api.Timeout = podEventLimit
	to, err := kube.NewEvents(api, cmp.Or(config.NodeName(c.Lookup), c.Hostname), podEventsAnHour, podEventsBurst)
	return &PodEvents{events: to, log: c.Log.Named("accounts"), waiting: make(chan *report.Report, maxWaiting), since: time.Now().UnixNano()}, err
}

// tellPods queues the reports of pods whose last rows are counted. The lock must be held.
func tellPods(l *Ledger) {
	p := l.o.PodEvents
	if p == nil || !l.complete { // owners that are unknown for a moment have not ended
		return
	}
	ended, other := map[string][]*account{}, map[string]bool{}
	for _, a := range l.accounts {
		switch id := a.owner.ID(); {
		case a.owner.Kind != report.KindPod:
		case a.left == 0 || a.board.until < a.left:
			other[id] = true
		case !a.told && a.left >= p.since:
			ended[id] = append(ended[id], a)
		}
	}
	for id, of := range ended {
		if other[id] {
			continue
		}
		for _, a := range of {
			a.told = true
		}
		r := reportsOf(l.copies(func(a *account) bool { return a.owner.ID() == id }), l.o.Node, true)[0]
		select {
		case p.waiting <- r:
		default:
			p.dropped.Add(1)
		}
	}
}

// Run writes events until ctx ends.
func (p *PodEvents) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-p.waiting:
			p.write(ctx, r)
		}
	}
}

// write writes an event as soon as the limit and the API server allow.
func (p *PodEvents) write(ctx context.Context, r *report.Report) {
	e := &kube.Event{
		Kind: "Pod", Namespace: r.Namespace, Name: r.Pod, UID: r.UID, Type: "Normal", Reason: "GPUReport", Message: r.Line(), Time: *r.Left,
	}
	for wait := podEventGap; ctx.Err() == nil; {
		if p.events.Limit.Tokens() >= 1 {
			again, err := p.events.Create(ctx, e)
			switch failing := err != nil; {
			case failing && !p.failing:
				p.log.Warn("cannot write events of pods that have ended", zap.String("namespace", r.Namespace), zap.Error(err))
			case !failing && p.failing:
				p.log.Info("events of pods are written again")
			}
			if p.failing = err != nil; !again {
				if err != nil {
					p.dropped.Add(1)
				}
				return
			}
			wait = min(2*wait, maxPodEventGap)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
