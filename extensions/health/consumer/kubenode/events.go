package kubenode

import (
	"fmt"
	"maps"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"warpgauge/pkg/events"
)

// Rate and burst of events.
const (
	eventsAnHour = 60
	eventsBurst  = 20
)

// announcer creates an event for each change of a device between ok, degraded and failed. It keeps the
// newest event of each device until it is written. Unknown is not a change, because a release or a
// driver restart is not news.
type announcer struct {
	node    string
	start   time.Time
	last    map[string]string // state and reason by device
	waiting map[string]*unstructured.Unstructured
	limit   *rate.Limiter
}

func newAnnouncer(node string, start time.Time) announcer {
	return announcer{node: node, start: start, last: map[string]string{}, waiting: map[string]*unstructured.Unstructured{}, limit: rate.NewLimiter(rate.Every(time.Hour/eventsAnHour), eventsBurst)}
}

// observe processes a snapshot. It skips faults that are older than this process: their events were written before.
func (e *announcer) observe(s *events.Snapshot) {
	present := make(map[string]bool, len(s.Verdicts))
	for i := range s.Verdicts {
		v := &s.Verdicts[i]
		present[v.Device.ID] = true
		before, known := e.last[v.Device.ID]
		after := v.State.String() + " " + v.Reason
		if v.State == events.Unknown || known && after == before {
			continue
		}
		e.last[v.Device.ID] = after
		if known || v.State != events.OK && v.Since.After(e.start) {
			e.waiting[v.Device.ID] = e.event(v)
		}
	}
	gone := func(id string) bool { return !present[id] }
	maps.DeleteFunc(e.last, func(id, _ string) bool { return gone(id) })
	maps.DeleteFunc(e.waiting, func(id string, _ *unstructured.Unstructured) bool { return gone(id) })
}

// event uses the node's name as uid, like the kubelet, so that kubectl describe node finds the
// event.
func (e *announcer) event(v *events.Verdict) *unstructured.Unstructured {
	kind, reason := "Warning", "GPUFailed"
	switch v.State {
	case events.Degraded:
		reason = "GPUDegraded"
	case events.OK:
		kind, reason = "Normal", "GPURecovered"
	}
	type object = map[string]any
	at := v.Since.UTC().Format(time.RFC3339)
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "v1", "kind": "Event",
		"metadata":           object{"namespace": metav1.NamespaceDefault, "generateName": e.node + "."},
		"involvedObject":     object{"apiVersion": "v1", "kind": "Node", "name": e.node, "uid": e.node},
		"reason":             reason,
		"message":            fmt.Sprintf("%s (%s)", brief(v), v.Device.ID),
		"source":             object{"component": component, "host": e.node},
		"firstTimestamp":     at,
		"lastTimestamp":      at,
		"count":              int64(1),
		"type":               kind,
		"reportingComponent": component,
		"reportingInstance":  e.node,
	}}
}
