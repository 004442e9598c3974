package kube

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
)

// Event is an event about an object, in the object's namespace or in default.
type Event struct {
	Kind, Namespace, Name, UID string // of the object
	Type, Reason, Message      string
	Time                       time.Time
}

// Events creates the events of a node. Only one goroutine at a time may use it.
type Events struct {
	Limit *rate.Limiter // of events; a failure does not count
	api   *client
	node  string
}

// NewEvents returns Events. It does not contact the API server.
func NewEvents(config *rest.Config, node string, perHour, burst int) (*Events, error) {
	api, err := newClient(rest.CopyConfig(config))
	return &Events{rate.NewLimiter(rate.Every(time.Hour/time.Duration(perHour)), burst), api, node}, err
}

// Create creates an event. again reports that it failed for a cause that passes by itself.
func (e *Events) Create(ctx context.Context, v *Event) (again bool, err error) {
	type object = map[string]any
	namespace, at, component := cmp.Or(v.Namespace, "default"), v.Time.UTC().Format(time.RFC3339), "warpgauge"
	err = e.api.create(ctx, "api/v1/namespaces/"+namespace+"/events", object{
		"apiVersion": "v1", "kind": "Event", "metadata": object{"namespace": namespace, "generateName": v.Name + "."},
		"involvedObject": object{"apiVersion": "v1", "kind": v.Kind, "namespace": v.Namespace, "name": v.Name, "uid": v.UID},
		"type":           v.Type, "reason": v.Reason, "message": v.Message, "count": 1, "firstTimestamp": at, "lastTimestamp": at,
		"source": object{"component": component, "host": e.node}, "reportingComponent": component, "reportingInstance": e.node,
	}, &struct{}{})
	if err == nil {
		e.Limit.Allow()
	}
	return err != nil && reasonOf(err) == ReasonUnreachable, err
}
