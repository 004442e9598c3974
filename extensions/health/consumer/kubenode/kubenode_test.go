package kubenode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
)

const node = "node-1"

// apiServer simulates the part of the Kubernetes API that the Writer may use. Any other request fails the test.
type apiServer struct {
	t *testing.T

	mu         sync.Mutex
	answer     int // status code for every request; 0: normal answers
	requests   int
	conditions []corev1.NodeCondition // of the Node, merged by type
	events     []corev1.Event
	labels     map[string]string // of the Node
	version    int               // of the Node, which an update must name
	changed    func()            // called after each answer to a get, unless nil
}

func newAPIServer(t *testing.T) *apiServer {
	return &apiServer{t: t, conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True"}}}
}

func (s *apiServer) config() *rest.Config { return &rest.Config{Host: "http://api.test", Transport: s} }

// RoundTrip answers without a connection, so that the Writer can run in a synctest bubble.
func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch what := r.Method + " " + r.URL.Path; {
	case s.answer != 0:
		w.WriteHeader(s.answer)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Message: "no leave", Code: int32(s.answer)}
	case what == "PATCH /api/v1/nodes/"+node+"/status":
		answer = s.patch(r)
	case what == "POST /api/v1/namespaces/default/events":
		var e corev1.Event
		err := json.NewDecoder(r.Body).Decode(&e)
		testkit.ErrorIf(s.t, err != nil, "event: %v", err)
		s.events = append(s.events, e)
		answer = e
	case r.URL.Path == "/api/v1/nodes/"+node && s.labels != nil && (r.Method == http.MethodGet || r.Method == http.MethodPut):
		n := corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: node, ResourceVersion: fmt.Sprint(s.version), Labels: s.labels}}
		if r.Method == http.MethodPut {
			var put corev1.Node
			err := json.NewDecoder(r.Body).Decode(&put)
			testkit.ErrorIf(s.t, err != nil, "node: %v", err)
			if put.ResourceVersion != n.ResourceVersion {
				w.WriteHeader(http.StatusConflict)
				answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonConflict, Code: http.StatusConflict}
				break
			}
			s.version++
			s.labels, n = put.Labels, put
		}
		answer = n
		if s.changed != nil && r.Method == http.MethodGet {
			s.changed()
		}
	default:
		s.t.Errorf("asked for more than it may: %s", what)
		w.WriteHeader(http.StatusForbidden)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// patch merges conditions by type.
func (s *apiServer) patch(r *http.Request) any {
	testkit.Equal(s.t, "content type", "application/strategic-merge-patch+json", r.Header.Get("Content-Type"))
	var body struct {
		Status struct {
			Conditions []corev1.NodeCondition `json:"conditions"`
		} `json:"status"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(&body)
	testkit.ErrorIf(s.t, err != nil, "the patch has more than conditions: %v", err)
	for _, c := range body.Status.Conditions {
		s.conditions = append(slices.DeleteFunc(s.conditions, func(old corev1.NodeCondition) bool { return old.Type == c.Type }), c)
	}
	return map[string]any{"kind": "Node", "apiVersion": "v1", "metadata": map[string]any{"name": node}}
}

func (s *apiServer) set(answer int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// condition returns our condition, or the zero value if there is none.
func (s *apiServer) condition() corev1.NodeCondition {
	s.mu.Lock()
	defer s.mu.Unlock()
	testkit.ErrorIf(s.t, s.conditions[0].Type != "Ready" || len(s.conditions) > 2, "conditions of others have changed: %v", s.conditions)
	return append(s.conditions, corev1.NodeCondition{})[1]
}

// short returns status and reason of the condition.
func (s *apiServer) short() string {
	c := s.condition()
	return fmt.Sprint(c.Status, " ", c.Reason)
}

// told returns the events since its last call.
func (s *apiServer) told() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.InvolvedObject != (corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: node}) || e.Source.Component != "warpgauge" || e.FirstTimestamp.IsZero() {
			s.t.Errorf("event %+v", e)
		}
		out = append(out, fmt.Sprint(e.Type, " ", e.Reason, ": ", e.Message))
	}
	s.events = nil
	return out
}

// board is a node with GPUs whose states the test sets.
type board struct {
	events.Board
	verdicts []events.Verdict
	version  uint64
}

func newBoard(gpus int) *board {
	b := &board{}
	for i := range gpus {
		id := fmt.Sprint(i)
		b.verdicts = append(b.verdicts, events.Verdict{Device: collector.Device{ID: "GPU-" + id, GPU: id, Level: field.GPU}, Action: events.ActionNone, Since: time.Now()})
	}
	b.store()
	return b
}

func (b *board) store() {
	b.version++
	b.Store(&events.Snapshot{Version: b.version, Time: time.Now(), Verdicts: slices.Clone(b.verdicts)})
}

func (b *board) set(gpu int, s events.State, reason string, a events.Action) {
	v := &b.verdicts[gpu]
	v.State, v.Reason, v.Text, v.Action, v.Since = s, reason, strings.ReplaceAll(reason, "_", " "), a, time.Now()
	b.store()
}

// run starts a Writer. stop ends it.
func run(t *testing.T, o Options) (stop func(), log *observer.ObservedLogs) {
	t.Helper()
	core, log := observer.New(zap.InfoLevel)
	o.Log = zap.New(core)
	w := testkit.Get(New(o))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	synctest.Wait()
	return func() {
		t.Helper()
		cancel()
		testkit.Must(t, <-ended)
	}, log
}

// TestLabels: the labels match the devices, other labels stay, and no request is sent while nothing
// changes.
func TestLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newAPIServer(t), newBoard(2)
		s.labels = map[string]string{"zone": "a", "amd.gpu.7.state": "unhealthy", "amd.gpu.7.other": "x"}
		of := func(s *events.Snapshot) map[string]string {
			out := map[string]string{}
			for _, v := range s.Verdicts {
				if v.State == events.Failed {
					out["amd.gpu."+v.Device.GPU+".state"] = "unhealthy"
				}
			}
			return out
		}
		stop, log := run(t, Options{Board: &b.Board, Node: node, Config: s.config(), Labels: of, LabelPrefix: "amd.gpu.", LabelSuffix: ".state"})
		others := func(more ...string) map[string]string {
			out := map[string]string{"zone": "a", "amd.gpu.7.other": "x"}
			for _, name := range more {
				out[name] = "unhealthy"
			}
			return out
		}
		testkit.Equal(t, "of a GPU that is no longer there", others(), s.labels)
		after := func() {
			t.Helper()
			synctest.Wait()
			time.Sleep(gap)
			synctest.Wait()
		}
		b.set(1, events.Failed, "xid_79", events.ActionReboot)
		after()
		testkit.Equal(t, "failed", others("amd.gpu.1.state"), s.labels)
		asked := s.requests
		b.set(0, events.Degraded, "hot", events.ActionNone)
		time.Sleep(time.Hour)
		synctest.Wait()
		testkit.Equal(t, "requests while no label changes", asked, s.requests)

		s.changed = func() { s.version++; s.changed = nil } // another writer updates the node first
		b.set(0, events.Failed, "xid_48", events.ActionReset)
		after()
		time.Sleep(maxGap)
		synctest.Wait()
		testkit.Equal(t, "written in the end", others("amd.gpu.0.state", "amd.gpu.1.state"), s.labels)
		testkit.Equal(t, "the log", 2, len(log.TakeAll()))
		b.set(0, events.OK, "", events.ActionNone)
		b.set(1, events.OK, "", events.ActionNone)
		after()
		testkit.Equal(t, "well again", others(), s.labels)
		stop()
	})
}

func TestConditionAndEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newAPIServer(t), newBoard(4)
		begin := time.Now()
		stop, log := run(t, Options{Board: &b.Board, Node: node, Condition: true, Events: true, Config: s.config()})
		c := s.condition()
		testkit.Equal(t, "all well", "False NoGPUProblem", s.short())
		testkit.Equal(t, "its transition", begin.UTC().Truncate(time.Second), c.LastTransitionTime.Time.UTC())

		time.Sleep(time.Hour)
		synctest.Wait()
		testkit.Equal(t, "the heartbeat's age", true, time.Since(s.condition().LastHeartbeatTime.Time) <= heartbeat)
		testkit.Equal(t, "its transition an hour later", c.LastTransitionTime, s.condition().LastTransitionTime)
		asked := s.requests
		b.store()
		time.Sleep(gap)
		synctest.Wait()
		testkit.Equal(t, "requests for a snapshot without changes", asked, s.requests)

		step := func(when string, gpu int, state events.State, reason string, a events.Action, condition string, created ...string) {
			t.Helper()
			b.set(gpu, state, reason, a)
			synctest.Wait()
			time.Sleep(gap)
			synctest.Wait()
			testkit.Equal(t, when, condition, s.short())
			testkit.Equal(t, when+": events", created, s.told())
		}
		b.verdicts = append(b.verdicts, events.Verdict{Device: collector.Device{ID: "MIG-0", GPU: "2", Parent: "GPU-2"}})
		b.set(4, events.Failed, "xid_79", events.ActionReboot) // a part is as its GPU and is not named
		step("failed", 2, events.Failed, "xid_79", events.ActionReboot, "True GPUFailed",
			"Warning GPUFailed: GPU 2 is failed: xid 79 (xid_79), recommended: reboot (GPU-2)")
		testkit.Equal(t, "the message", "GPU 2 is failed: xid 79 (xid_79), recommended: reboot", s.condition().Message)
		failed := s.condition().LastTransitionTime
		step("degraded, another", 1, events.Degraded, "corrected_errors", events.ActionNone, "True GPUFailed",
			"Warning GPUDegraded: GPU 1 is degraded: corrected errors (corrected_errors), recommended: none (GPU-1)")
		testkit.Equal(t, "the transition of a condition that stays", failed, s.condition().LastTransitionTime)
		step("released", 2, events.Unknown, "released", events.ActionNone, "Unknown GPUStateUnknown")
		step("failed as before", 2, events.Failed, "xid_79", events.ActionReboot, "True GPUFailed")
		step("recovered", 2, events.OK, "", events.ActionNone, "False GPUDegraded", "Normal GPURecovered: GPU 2 is ok (GPU-2)")
		step("degraded, to be drained", 1, events.Degraded, "nvlink_errors", events.ActionDrain, "True GPUOutOfService",
			"Warning GPUOutOfService: GPU 1 is degraded: nvlink errors (nvlink_errors), recommended: drain (GPU-1)")
		step("both", 1, events.OK, "", events.ActionNone, "False NoGPUProblem", "Normal GPURecovered: GPU 1 is ok (GPU-1)")
		testkit.Equal(t, "the log", 0, log.Len())
		stop()
		testkit.Equal(t, "after the end", "Unknown ExporterStopped", s.short())
	})
}

// TestOldFault: a restarted exporter does not repeat its events.
func TestOldFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newAPIServer(t), newBoard(2)
		b.set(1, events.Failed, "xid_79", events.ActionReboot)
		since := metav1.NewTime(b.verdicts[1].Since.Truncate(time.Second))
		time.Sleep(time.Hour)
		stop, _ := run(t, Options{Board: &b.Board, Node: node, Condition: true, Events: true, Config: s.config()})
		defer stop()
		testkit.Equal(t, "the condition", "True GPUFailed", s.short())
		testkit.Equal(t, "its transition", since.UTC(), s.condition().LastTransitionTime.Time.UTC())
		testkit.Equal(t, "events", []string(nil), s.told())
		time.Sleep(gap)
		b.set(1, events.OK, "", events.ActionNone)
		synctest.Wait()
		testkit.Equal(t, "events of the recovery", []string{"Normal GPURecovered: GPU 1 is ok (GPU-1)"}, s.told())
		b.verdicts = append(b.verdicts, newBoard(4).verdicts[2:]...)
		b.set(2, events.Failed, "xid_48", events.ActionReset)
		time.Sleep(gap)
		synctest.Wait()
		testkit.Equal(t, "events of two GPUs that were not there", []string{"Warning GPUFailed: GPU 2 is failed: xid 48 (xid_48), recommended: reset_gpu (GPU-2)"}, s.told())
	})
}

// TestNoLeave: without rights or an API server, the Writer retries at growing intervals and logs
// once. When it succeeds, it writes the current state.
func TestNoLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newAPIServer(t), newBoard(2)
		s.set(http.StatusForbidden)
		stop, log := run(t, Options{Board: &b.Board, Node: node, Condition: true, Events: true, Config: s.config()})
		b.set(0, events.Failed, "xid_79", events.ActionReboot)
		time.Sleep(10 * time.Minute)
		b.set(0, events.OK, "", events.ActionNone)
		b.set(1, events.Degraded, "hot", events.ActionNone)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if most := 2 * (20 + 5); s.requests > most {
			t.Errorf("%d requests in 20 minutes, at most %d", s.requests, most)
		}
		testkit.Equal(t, "lines in the log", 2, log.Len()) // one per kind
		s.set(0)
		time.Sleep(maxGap)
		synctest.Wait()
		testkit.Equal(t, "the condition", "False GPUDegraded", s.short())
		testkit.Equal(t, "events", []string{
			"Normal GPURecovered: GPU 0 is ok (GPU-0)", "Warning GPUDegraded: GPU 1 is degraded: hot (hot), recommended: none (GPU-1)",
		}, s.told())
		testkit.Equal(t, "lines in the log, with those of the recovery", 4, log.Len())
		s.set(http.StatusInternalServerError)
		stop()
	})
}

// TestFlapping: frequent changes do not overload the API server.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newAPIServer(t), newBoard(8)
		stop, _ := run(t, Options{Board: &b.Board, Node: node, Condition: true, Events: true, Config: s.config()})
		const hours = 2
		for i := range hours * 3600 {
			b.set(i%8, events.State(i/8%4), fmt.Sprint("reason_", i), events.ActionNone)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		events := len(s.told())
		if most := eventsBurst + hours*eventsAnHour; events > most || events < hours*eventsAnHour {
			t.Errorf("%d events in %d hours, at most %d", events, hours, most)
		}
		if writes, most := s.requests-events, hours*3600/int(gap/time.Second)+1; writes > most {
			t.Errorf("the condition was written %d times in %d hours, at most %d", writes, hours, most)
		}
		stop()
	})
}

// TestDevicesGone: devices that disappear are not healthy, and a node that never had any has no condition.
func TestDevicesGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newAPIServer(t), newBoard(0)
		stop, _ := run(t, Options{Board: &b.Board, Node: node, Condition: true, Events: true, Config: s.config()})
		time.Sleep(time.Hour)
		stop()
		testkit.Equal(t, "the condition without devices", " ", s.short())
		b = newBoard(50)
		for i := range b.verdicts {
			b.set(i, events.Failed, "missing", events.ActionReboot)
		}
		stop, _ = run(t, Options{Board: &b.Board, Node: node, Condition: true, Config: s.config()})
		m := s.condition().Message
		if rest := fmt.Sprintf("; %d more", 50-strings.Count(m, "GPU ")); !strings.HasSuffix(m, rest) || len(m) > longestMessage || len(m) < longestMessage-80 {
			t.Errorf("the message of 50 devices has %d bytes: %q", len(m), m)
		}
		time.Sleep(gap)
		b.verdicts = nil
		b.store()
		synctest.Wait()
		testkit.Equal(t, "the condition", "Unknown NoGPUFound", s.short())
		testkit.Equal(t, "events", []string(nil), s.told())
		stop()
	})
	if _, err := New(Options{Board: &events.Board{}, Config: &rest.Config{}, Log: zap.NewNop()}); err == nil || !strings.Contains(err.Error(), "NODE_NAME") {
		t.Errorf("without a node's name: %v", err)
	}
}
