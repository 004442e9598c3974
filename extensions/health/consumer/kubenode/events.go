package kubenode

import (
	"fmt"
	"maps"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	last    map[string]content // by device
	waiting map[string]*corev1.Event
	limit   *rate.Limiter
}

// content is the content of a device's last event.
type content struct {
	state  events.State
	reason string
}

func newAnnouncer(node string, start time.Time) announcer {
	return announcer{node: node, start: start, last: map[string]content{}, waiting: map[string]*corev1.Event{}, limit: rate.NewLimiter(rate.Every(time.Hour/eventsAnHour), eventsBurst)}
}

// observe processes a snapshot. It skips faults that are older than this process: their events were written before.
func (e *announcer) observe(s *events.Snapshot) {
	present := make(map[string]bool, len(s.Verdicts))
	for i := range s.Verdicts {
		v := &s.Verdicts[i]
		present[v.Device.ID] = true
		before, known := e.last[v.Device.ID]
		after := content{v.State, v.Reason}
		if v.State == events.Unknown || known && after == before {
			continue
		}
		e.last[v.Device.ID] = after
		if known || v.State != events.OK && v.Since.After(e.start) {
			e.waiting[v.Device.ID] = e.event(v)
		}
	}
	gone := func(id string) bool { return !present[id] }
	maps.DeleteFunc(e.last, func(id string, _ content) bool { return gone(id) })
	maps.DeleteFunc(e.waiting, func(id string, _ *corev1.Event) bool { return gone(id) })
}

// event uses the node's name as uid, like the kubelet, so that kubectl describe node finds the
// event.
func (e *announcer) event(v *events.Verdict) *corev1.Event {
	kind, reason := corev1.EventTypeWarning, "GPUFailed"
	switch v.State {
	case events.Degraded:
		reason = "GPUDegraded"
	case events.OK:
		kind, reason = corev1.EventTypeNormal, "GPURecovered"
	}
	at := metav1.NewTime(v.Since)
	return &corev1.Event{
		TypeMeta:            metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:          metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: e.node + "."},
		InvolvedObject:      corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.node, UID: types.UID(e.node)},
		Reason:              reason,
		Message:             fmt.Sprintf("%s (%s)", brief(v), v.Device.ID),
		Source:              corev1.EventSource{Component: component, Host: e.node},
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               1,
		Type:                kind,
		ReportingController: component,
		ReportingInstance:   e.node,
	}
}
