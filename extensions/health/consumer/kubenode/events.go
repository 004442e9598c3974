package kubenode

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"warpgauge/pkg/events"
	"warpgauge/pkg/kube"
)

// addEvents creates an event for each change of a device between ok, degraded and failed. Unknown is not a change, because
// a release or a driver restart is not news. It skips faults that are older than this process: their events were written
// before.
func (w *Writer) addEvents(s *events.Snapshot) {
	present := make(map[string]bool, len(s.Verdicts))
	for i := range s.Verdicts {
		v := &s.Verdicts[i]
		present[v.Device.ID] = true
		before, known := w.last[v.Device.ID]
		after := fmt.Sprint(v.State, v.Reason, v.Action)
		if v.State == events.Unknown || v.Device.Parent != "" || known && after == before { // a part is as its GPU
			continue
		}
		w.last[v.Device.ID] = after
		if known || v.State != events.OK && v.Since.After(w.start) {
			w.waiting[v.Device.ID] = event(v, w.o.Node)
		}
	}
	maps.DeleteFunc(w.last, func(id, _ string) bool { return !present[id] })
	maps.DeleteFunc(w.waiting, func(id string, _ *kube.Event) bool { return !present[id] })
}

// writeEvents writes the waiting events, as many as the limit allows.
func (w *Writer) writeEvents(ctx context.Context) bool {
	for _, id := range slices.Sorted(maps.Keys(w.waiting)) {
		if w.events.Limit.Tokens() < 1 {
			return false
		}
		if _, err := w.events.Create(ctx, w.waiting[id]); !w.report("event", err) {
			return false
		}
		delete(w.waiting, id)
	}
	return true
}

// event uses the node's name as uid, like the kubelet, so that kubectl describe node finds the event.
func event(v *events.Verdict, node string) *kube.Event {
	kind, reason := "Normal", "GPURecovered"
	if i := slices.IndexFunc(levels, func(l level) bool { return l.is(v) }); i >= 0 {
		kind, reason = "Warning", levels[i].reason
	}
	return &kube.Event{
		Kind: "Node", Name: node, UID: node, Type: kind, Reason: reason, Message: fmt.Sprintf("%s (%s)", brief(v), v.Device.ID), Time: v.Since,
	}
}
