// Package kubenode writes the health of this node's devices to its Node in Kubernetes: a
// condition, an event for each change of a device, and labels. It reads the health.Board and
// owns nothing of the Node but that condition, and labels with a prefix of theirs.
//
// The condition has node-problem-detector's form: type GPUProblem, True if a device has
// failed, False if none has, Unknown if that cannot be said, because nothing is known of a
// device or the exporter has stopped. Degraded is False, with a reason of its own. It stays
// as False after a fault is over, with a heartbeat every five minutes.
//
// What it needs: patch on nodes/status of its own node, and create on events in the
// namespace default, in which events of nodes are. No get, list or watch: the answer of a
// patch is not used, and a strategic merge patch leaves other writers' conditions alone. For
// labels it needs get and update on nodes, which AMD's operator gives to its exporter's account.
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

	"warpgauge/pkg/verdict"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"warpgauge/pkg/field"
)

const (
	heartbeat = 5 * time.Minute // of the condition; node-problem-detector's is the same
	gap       = 5 * time.Second // between two rounds of writing; what changes in it is written once
	maxGap    = time.Minute     // after failures
	callLimit = 10 * time.Second
	lastLimit = 2 * time.Second // of the write when the exporter stops
	component = "warpgauge"     // who writes, in Kubernetes' words
)

// Options of New.
type Options struct {
	Board             *verdict.Board
	Node              string // its name in Kubernetes
	Condition, Events bool   // which of the two is written
	Labels            Labels
	Config            *rest.Config
	Log               *zap.Logger
}

// Labels of a Node that say something of its devices.
type Labels struct {
	Of             func(*verdict.Snapshot) map[string]string // nil: none are written
	Prefix, Suffix string                                    // what labels with both are these
}

// Writer writes to one Node.
type Writer struct {
	o      Options
	log    *zap.Logger
	client dynamic.Interface
	events events

	written corev1.NodeCondition // the last one
	labels  map[string]string    // the last ones; nil: not written yet
	refused map[string]bool      // which writes failed the last time: logged once
}

// New returns a Writer that does nothing before Run.
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
	return &Writer{o: o, log: o.Log.Named("node_health"), client: client, events: newEvents(o.Node, time.Now()), refused: map[string]bool{}}, nil
}

// Run writes changes until ctx ends, and then the state unknown.
func (w *Writer) Run(ctx context.Context) error {
	version, wait := uint64(0), gap
	for {
		next := w.next(ctx, version)
		select {
		case <-ctx.Done():
			w.writeStopped(ctx)
			return nil
		default:
		}
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
}

// next waits for a change, at most until a heartbeat is due, and returns what holds then.
func (w *Writer) next(ctx context.Context, version uint64) *verdict.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, w.untilHeartbeat())
	defer cancel()
	if s, err := w.o.Board.After(ctx, version); err == nil {
		return s
	}
	return w.o.Board.Load()
}

func (w *Writer) untilHeartbeat() time.Duration {
	if w.written.Type == "" {
		return heartbeat
	}
	return max(0, time.Until(w.written.LastHeartbeatTime.Add(heartbeat)))
}

// write reports whether all was written that is new in a snapshot, or is due.
func (w *Writer) write(ctx context.Context, s *verdict.Snapshot) bool {
	done := true
	if w.o.Condition {
		done = w.writeCondition(ctx, s)
	}
	if w.o.Events {
		w.events.observe(s)
		done = w.writeEvents(ctx) && done
	}
	if w.o.Labels.Of != nil && s.Version > 0 {
		done = w.writeLabels(ctx, w.o.Labels.Of(s)) && done
	}
	return done
}

func (w *Writer) writeCondition(ctx context.Context, s *verdict.Snapshot) bool {
	if s.Version == 0 || len(s.Verdicts) == 0 && w.written.Type == "" {
		return true // a node that has no devices has no condition
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

// writeStopped writes at the end that what the condition says is no longer kept up to date.
func (w *Writer) writeStopped(ctx context.Context) {
	if w.written.Type == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLimit)
	defer cancel()
	w.patch(ctx, corev1.NodeCondition{
		Type: ConditionType, Status: corev1.ConditionUnknown, Reason: "ExporterStopped", Message: "warpgauge has stopped",
		LastTransitionTime: metav1.Now(),
	})
}

func (w *Writer) patch(ctx context.Context, c corev1.NodeCondition) bool {
	c.LastHeartbeatTime = metav1.Now()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{c}}})
	if err == nil {
		_, err = w.nodes().Patch(ctx, w.o.Node, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: component}, "status")
	}
	if !w.report("condition", err) {
		return false
	}
	w.written = c
	return true
}

func (w *Writer) nodes() dynamic.ResourceInterface {
	return w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
}

// writeLabels leaves a Node alone whose labels are those that are wanted. They stay when the
// exporter stops: a device that has failed has not become better.
func (w *Writer) writeLabels(ctx context.Context, wanted map[string]string) bool {
	if w.labels != nil && maps.Equal(wanted, w.labels) {
		return true
	}
	node, err := w.nodes().Get(ctx, w.o.Node, metav1.GetOptions{})
	if err == nil {
		is := node.GetLabels()
		next := maps.Clone(wanted)
		for name, value := range is {
			if !strings.HasPrefix(name, w.o.Labels.Prefix) || !strings.HasSuffix(name, w.o.Labels.Suffix) {
				next[name] = value
			}
		}
		if !maps.Equal(is, next) {
			node.SetLabels(next)
			_, err = w.nodes().Update(ctx, node, metav1.UpdateOptions{FieldManager: component})
		}
	}
	if !w.report("labels", err) {
		return false
	}
	w.labels = wanted
	return true
}

func (w *Writer) writeEvents(ctx context.Context) bool {
	for _, id := range slices.Sorted(maps.Keys(w.events.waiting)) {
		if w.events.limit.Tokens() < 1 {
			return false
		}
		e := w.events.waiting[id]
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e)
		if err == nil {
			_, err = w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace(e.Namespace).
				Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{FieldManager: component})
		}
		if !w.report("event", err) {
			return false
		}
		delete(w.events.waiting, id)
		w.events.limit.Allow()
	}
	return true
}

// report logs the first of several failures and the end of them.
func (w *Writer) report(what string, err error) bool {
	switch {
	case err != nil && !w.refused[what]:
		w.log.Warn("the health of the node's devices cannot be written", zap.String("what", what), zap.String("node", w.o.Node), zap.Error(err))
	case err == nil && w.refused[what]:
		w.log.Info("the health of the node's devices is written again", zap.String("what", what))
	}
	w.refused[what] = err != nil
	return err == nil
}

// ConditionType is the type of the condition.
const ConditionType = "GPUProblem"

// levels has the values of a condition, the worst first. Unknown stands above Degraded, because a
// condition must not say False if it is not known.
var levels = []struct {
	state  verdict.State
	status corev1.ConditionStatus
	reason string
}{
	{verdict.Failed, corev1.ConditionTrue, "GPUFailed"},
	{verdict.Unknown, corev1.ConditionUnknown, "GPUStateUnknown"},
	{verdict.Degraded, corev1.ConditionFalse, "GPUDegraded"},
}

// condition returns the node's condition. Its last transition is the latest change of a
// device.
func condition(s *verdict.Snapshot) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: ConditionType, Status: corev1.ConditionFalse, Reason: "NoGPUProblem", Message: fmt.Sprintf("devices that are ok: %d", len(s.Verdicts))}
	var since time.Time
	by := map[verdict.State][]*verdict.Verdict{}
	for i := range s.Verdicts {
		v := &s.Verdicts[i]
		by[v.State] = append(by[v.State], v)
		if v.Since.After(since) {
			since = v.Since
		}
	}
	if len(s.Verdicts) == 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NoGPUFound", "no device is found any more"
	}
	if since.IsZero() {
		since = s.Time
	}
	for _, l := range levels {
		if of := by[l.state]; len(of) > 0 {
			c.Status, c.Reason, c.Message = l.status, l.reason, describe(of)
			break
		}
	}
	c.LastTransitionTime = metav1.NewTime(since)
	return c
}

// longestMessage is how much of a condition's message others keep, in bytes.
const longestMessage = 1024

// describe names devices with their problems, as many as a message holds.
func describe(of []*verdict.Verdict) string {
	text := ""
	for i, v := range of {
		part := brief(v)
		more := fmt.Sprintf("; %d more", len(of)-i)
		if i > 0 && len(text)+len("; ")+len(part)+len(more) > longestMessage {
			return text + more
		}
		if i > 0 {
			text += "; "
		}
		text += part
	}
	return strings.ToValidUTF8(text[:min(len(text), longestMessage)], "")
}

// brief names the device, its problem and the recommended action.
func brief(v *verdict.Verdict) string {
	name := v.Device.Level.String() + " " + v.Device.ID
	if v.Device.Level == field.GPU && v.Device.GPU != "" {
		name = "GPU " + v.Device.GPU
	}
	if v.State == verdict.OK {
		return name + " is ok"
	}
	return fmt.Sprintf("%s is %s: %s (%s), recommended: %s", name, v.State, v.Text, v.Reason, v.Action)
}
