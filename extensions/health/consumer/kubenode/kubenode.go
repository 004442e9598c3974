// Package kubenode writes the health of this node's devices to its Kubernetes Node: a condition in node-problem-detector's
// form, labels, and an event for each change of a device. docs/health-consumers.md explains them.
//
// It needs the right to patch nodes/status of its own node, and to create events in the namespace default, where node
// events belong; for labels get and update on nodes, which AMD's operator grants to its exporter's account. It needs no list
// or watch: it does not use a patch's answer, and a strategic merge patch keeps other writers' conditions.
package kubenode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
)

const (
	heartbeat = 5 * time.Minute // same as node-problem-detector's
	gap       = 5 * time.Second // between two writes; changes within it are written together
	maxGap    = time.Minute     // after failures
	callLimit = 10 * time.Second
	lastLimit = 2 * time.Second // for the last write at exit
	component = "warpgauge"     // manager of fields

	eventsAnHour = 60 // Kubernetes events, and at most eventsBurst at once
	eventsBurst  = 20
)

// Options of New.
type Options struct {
	Board             *events.Board
	Node              string // name in Kubernetes
	Condition, Events bool   // what to write
	// Labels returns the Node labels that describe its devices; nil: write no labels. They have a LabelPrefix and a
	// LabelSuffix, which no other label has.
	Labels                   func(*events.Snapshot) map[string]string
	LabelPrefix, LabelSuffix string
	Config                   *rest.Config
	Log                      *zap.Logger
}

// Writer writes to one Node.
type Writer struct {
	o      Options
	log    *zap.Logger
	nodes  dynamic.ResourceInterface
	events *kube.Events
	start  time.Time

	written nodeCondition     // last written condition
	labels  map[string]string // last written labels; nil: none yet
	refused map[string]bool   // writes whose last attempt failed, so that each failure is logged once

	last    map[string]string      // state and reason by device
	waiting map[string]*kube.Event // the newest event by device, until it is written
}

// New returns a Writer. Only Run writes.
func New(o Options) (*Writer, error) {
	if o.Node == "" {
		return nil, errors.New("set NODE_NAME to the name of this node in Kubernetes: its health is to be written there")
	}
	config := rest.CopyConfig(o.Config)
	config.Timeout = callLimit
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	created, err := kube.NewEvents(config, o.Node, eventsAnHour, eventsBurst)
	return &Writer{
		nodes: client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}), events: created,
		o: o, log: o.Log.Named("node_health"), start: time.Now(), refused: map[string]bool{}, last: map[string]string{}, waiting: map[string]*kube.Event{},
	}, err
}

// Run writes changes until ctx ends, and then the state Unknown.
func (w *Writer) Run(ctx context.Context) error {
	version, wait := uint64(0), gap
	for next := w.next(ctx, version); ctx.Err() == nil; next = w.next(ctx, version) {
		if w.write(ctx, next) {
			version, wait = next.Version, gap
		} else {
			wait = min(2*wait, maxGap)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	w.writeStopped(ctx)
	return nil
}

// next waits for a change or the next heartbeat and returns the current snapshot.
func (w *Writer) next(ctx context.Context, version uint64) *events.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, w.untilHeartbeat())
	defer cancel()
	_, _ = w.o.Board.After(ctx, version) // an error means that the heartbeat is due, or the end
	return w.o.Board.Load()
}

func (w *Writer) untilHeartbeat() time.Duration {
	if w.written.Type == "" {
		return heartbeat
	}
	return max(0, time.Until(w.written.LastHeartbeatTime.Add(heartbeat)))
}

// write writes the changes of a snapshot and the heartbeat. It reports success.
func (w *Writer) write(ctx context.Context, s *events.Snapshot) bool {
	done := true
	if w.o.Condition {
		done = w.writeCondition(ctx, s)
	}
	if w.o.Events {
		w.addEvents(s)
		done = w.writeEvents(ctx) && done
	}
	if w.o.Labels != nil && s.Version > 0 {
		done = w.writeLabels(ctx, w.o.Labels(s)) && done
	}
	return done
}

func (w *Writer) writeCondition(ctx context.Context, s *events.Snapshot) bool {
	if s.Version == 0 || len(s.Verdicts) == 0 && w.written.Type == "" {
		return true // a node without devices has no condition
	}
	c := condition(s)
	if c.Status == w.written.Status {
		c.LastTransitionTime = w.written.LastTransitionTime
		if c.Reason == w.written.Reason && c.Message == w.written.Message && w.untilHeartbeat() > 0 {
			return true
		}
	}
	return w.patch(ctx, c)
}

// writeStopped writes at exit that nothing updates the condition any more.
func (w *Writer) writeStopped(ctx context.Context) {
	if w.written.Type == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLimit)
	defer cancel()
	w.patch(ctx, nodeCondition{Condition: metav1.Condition{
		Type: ConditionType, Status: metav1.ConditionUnknown, Reason: "ExporterStopped", Message: "warpgauge has stopped",
		LastTransitionTime: metav1.Now(),
	}})
}

func (w *Writer) patch(ctx context.Context, c nodeCondition) bool {
	c.LastHeartbeatTime = metav1.Now()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []nodeCondition{c}}})
	if err == nil {
		_, err = w.nodes.Patch(ctx, w.o.Node, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: component}, "status")
	}
	if !w.report("condition", err) {
		return false
	}
	w.written = c
	return true
}

// writeLabels updates the Node if its labels differ from wanted. The labels stay when the exporter
// stops: a failed device has not recovered then.
func (w *Writer) writeLabels(ctx context.Context, wanted map[string]string) bool {
	if w.labels != nil && maps.Equal(wanted, w.labels) {
		return true
	}
	node, err := w.nodes.Get(ctx, w.o.Node, metav1.GetOptions{})
	if err == nil {
		others := node.GetLabels() // a copy
		maps.DeleteFunc(others, func(name, _ string) bool {
			return strings.HasPrefix(name, w.o.LabelPrefix) && strings.HasSuffix(name, w.o.LabelSuffix)
		})
		next := maps.Clone(wanted)
		maps.Copy(next, others)
		if !maps.Equal(node.GetLabels(), next) {
			node.SetLabels(next)
			_, err = w.nodes.Update(ctx, node, metav1.UpdateOptions{FieldManager: component})
		}
	}
	if !w.report("labels", err) {
		return false
	}
	w.labels = wanted
	return true
}

// report logs the first failure of a series, and its end.
func (w *Writer) report(what string, err error) bool {
	switch {
	case err != nil && !w.refused[what]:
		w.log.Warn("cannot write the health of the node's devices", zap.String("what", what), zap.String("node", w.o.Node), zap.Error(err))
	case err == nil && w.refused[what]:
		w.log.Info("writing the health of the node's devices again", zap.String("what", what))
	}
	w.refused[what] = err != nil
	return err == nil
}

// ConditionType is the type of the condition.
const ConditionType = "GPUProblem"

// nodeCondition is corev1.NodeCondition. Package corev1 would make each process 4 MB larger.
type nodeCondition struct {
	metav1.Condition  `json:",inline"`
	LastHeartbeatTime metav1.Time `json:"lastHeartbeatTime"`
}

// level is a value of the condition, whose reason events have too.
type level struct {
	is     func(*events.Verdict) bool
	status metav1.ConditionStatus
	reason string
}

// levels lists the condition's values, worst first. Its status must not be False while a state is unknown.
var levels = []level{
	{func(v *events.Verdict) bool { return v.State == events.Failed }, metav1.ConditionTrue, "GPUFailed"},
	{(*events.Verdict).OutOfService, metav1.ConditionTrue, "GPUOutOfService"},
	{func(v *events.Verdict) bool { return v.State == events.Unknown }, metav1.ConditionUnknown, "GPUStateUnknown"},
	{func(v *events.Verdict) bool { return v.State == events.Degraded }, metav1.ConditionFalse, "GPUDegraded"},
}

// condition returns the node's condition. Its last transition is the latest change of any device.
func condition(s *events.Snapshot) (c nodeCondition) {
	c.Type, c.LastTransitionTime = ConditionType, metav1.NewTime(s.Time)
	if len(s.Verdicts) == 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NoGPUFound", "no device is found any more"
		return c
	}
	latest := slices.MaxFunc(s.Verdicts, func(a, b events.Verdict) int { return a.Since.Compare(b.Since) })
	c.LastTransitionTime = metav1.NewTime(latest.Since)
	for _, l := range levels {
		if of := slices.DeleteFunc(slices.Clone(s.Verdicts), func(v events.Verdict) bool { return !l.is(&v) || v.Device.Parent != "" }); len(of) > 0 {
			c.Status, c.Reason, c.Message = l.status, l.reason, describe(of)
			return c
		}
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, "NoGPUProblem", fmt.Sprintf("devices that are ok: %d", len(s.Verdicts))
	return c
}

// longestMessage is the length at which others cut a condition's message, in bytes.
const longestMessage = 1024

// describe lists devices with their problems, as many as fit into a message.
func describe(of []events.Verdict) string {
	text := brief(&of[0])
	for i := 1; i < len(of); i++ {
		part, more := "; "+brief(&of[i]), fmt.Sprintf("; %d more", len(of)-i)
		if len(text)+len(part)+len(more) > longestMessage {
			return text + more
		}
		text += part
	}
	return strings.ToValidUTF8(text[:min(len(text), longestMessage)], "")
}

// brief names the device, its problem and the recommended action.
func brief(v *events.Verdict) string {
	name := v.Device.Level.String() + " " + v.Device.ID
	if v.Device.Level == field.GPU && v.Device.GPU != "" {
		name = "GPU " + v.Device.GPU
	}
	if v.State == events.OK {
		return name + " is ok"
	}
	return fmt.Sprintf("%s is %s: %s (%s), recommended: %s", name, v.State, v.Text, v.Reason, v.Action)
}
