package accounts

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"

	"warpgauge/extensions/accounts/report"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/kube/kubetest/apitest"
	"warpgauge/pkg/owner"
)

// TestPodEvents: a pod gets one event when its last row on any board is counted, unless it left before the exporter started. An API server
// that fails is told once, and its events wait; one that refuses, or too many that wait, cost events.
func TestPodEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, api := newNode(2, time.Second), apitest.Pipe(t, "node1")
		var answer, asked atomic.Int64
		var written atomic.Value
		api.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
			var e corev1.Event
			err, o := json.NewDecoder(r.Body).Decode(&e), &e.InvolvedObject
			testkit.ErrorIf(t, err != nil || e.Source.Host != "node1" || e.LastTimestamp.Unix() < start.Unix(), "%v: %+v", err, e)
			asked.Add(1)
			written.Store(fmt.Sprint(r.Method, r.URL.Path, " ", o.Kind, " ", o.Namespace, "/", o.Name, " ", o.UID, " ", e.Type, " ", e.Reason, ": ", e.Message))
			apitest.Reply(w, int(answer.Load()), apitest.Object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": answer.Load()})
			return true
		})
		core, log := observer.New(zap.InfoLevel)
		to := testkit.Get(kube.NewEvents(testkit.Get(api.Config())(t), "node1", podEventsAnHour, 1))(t)
		p := &PodEvents{events: to, log: zap.New(core), waiting: make(chan *report.Report, 2)}
		n.ledger.o.PodEvents = p
		after := func(seconds int, what string, least, most int64) {
			t.Helper()
			for range seconds {
				*n.cell("GPU-0", field.TotalEnergy) += 36_000
				n.tick()
			}
			n.ledger.publish(n.now)
			synctest.Wait()
			testkit.Between(t, what+": requests", least, most, asked.Swap(0))
		}
		pod := func(name string) owner.Owner { return owner.Owner{Namespace: "ml", Pod: name, PodUID: "u-" + name} }
		end := func(requests int64, pods ...owner.Owner) {
			t.Helper()
			n.use(0, "GPU-0", pods...)
			n.tick()
			n.use(0, "GPU-0")
			after(3, "the end of "+pods[0].Pod, requests, requests)
		}
		defer testkit.Start(t, p.Run)()
		*n.cell("GPU-0", field.GPUUtilization), *n.cell("GPU-1", field.GPUUtilization) = 50, 50
		p.since = n.now.Add(2 * time.Second).UnixNano()
		answer.Store(http.StatusCreated)
		end(0, pod("old"))
		n.use(0, "GPU-0", pod("a"))
		n.use(0, "GPU-1", pod("a"))
		after(100, "it works", 0, 0)
		n.use(0, "GPU-0")
		after(9, "it has another board", 0, 0)
		n.unknown, n.id = true, n.id+1
		after(9, "owners are unknown", 0, 0)
		n.unknown, n.id = false, n.id+1
		after(3, "they are known again", 0, 0)
		n.use(0, "GPU-1")
		after(1, "its last rows wait", 0, 0)
		after(9, "it has ended", 1, 1)
		testkit.Equal(t, "the event", "POST/api/v1/namespaces/ml/events Pod ml/a u-a Normal GPUReport: Kernels ran without computing or moving memory 50 % of the time; energy 1 Wh, GPU time 3 min 32 s", written.Load())
		after(9, "it was told", 0, 0)
		answer.Store(http.StatusInternalServerError)
		for i := range 4 { // one is to be tried, two wait
			end(0, pod(fmt.Sprint("b", i)))
		}
		time.Sleep(10 * time.Minute)
		after(0, "ten minutes of failures", 10, 15)
		testkit.Equal(t, "lines in the log", 1, log.Len())
		answer.Store(http.StatusForbidden)
		time.Sleep(time.Minute)
		after(0, "refusals", 3, 3)
		testkit.Equal(t, "dropped: one too many, three refused", uint64(4), p.dropped.Load())
		answer.Store(http.StatusCreated)
		end(1, pod("c"), pod("d"))
		time.Sleep(time.Hour / podEventsAnHour)
		after(0, "the limit's rate", 1, 1)
		testkit.Equal(t, "lines in the log", 2, log.Len())
	})
}
