package accounts

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
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
		var mu sync.Mutex // of the next line
		answer, asked, written := http.StatusCreated, 0, ""
		api.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			var e corev1.Event
			err, o := json.NewDecoder(r.Body).Decode(&e), &e.InvolvedObject
			testkit.ErrorIf(t, err != nil || e.Source.Host != "node1" || e.LastTimestamp.Unix() < start.Unix(), "%v: %+v", err, e)
			asked, written = asked+1, fmt.Sprint(r.Method, r.URL.Path, " ", o.Kind, " ", o.Namespace, "/", o.Name, " ", o.UID, " ", e.Type, " ", e.Reason, ": ", e.Message)
			apitest.Reply(w, answer, apitest.Object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": answer})
			return true
		})
		core, log := observer.New(zap.InfoLevel)
		p := &PodEvents{log: zap.New(core), waiting: make(chan *report.Report, 2)}
		p.events = testkit.Get(kube.NewEvents(testkit.Get(api.Config())(t), "node1", podEventsAnHour, 1))(t)
		n.ledger.o.PodEvents = p
		requests := func(when string, least, most, next int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			testkit.Between(t, when+": requests", least, most, asked)
			asked, answer = 0, next
		}
		after := func(seconds int) {
			for range seconds {
				*n.cell("GPU-0", field.TotalEnergy) += 36_000
				n.tick()
			}
			n.ledger.publish(n.now)
			synctest.Wait()
		}
		none := func(when string, seconds int) { t.Helper(); after(seconds); requests(when, 0, 0, http.StatusCreated) }
		end := func(names ...string) {
			n.use(0, "GPU-0")
			for _, name := range names {
				n.users["GPU-0"] = append(n.users["GPU-0"], owner.Owner{Namespace: "ml", Pod: name})
			}
			after(1)
			n.use(0, "GPU-0")
			after(3)
		}
		defer testkit.Start(t, p.Run)()
		*n.cell("GPU-0", field.GPUUtilization), *n.cell("GPU-1", field.GPUUtilization) = 50, 50
		p.since = n.now.Add(2 * time.Second).UnixNano()
		end("old")
		n.use(0, "GPU-0", owner.Owner{Namespace: "ml", Pod: "a"})
		none("it left before, and the uid of the next one is not known yet", 3)
		a := owner.Owner{Namespace: "ml", Pod: "a", PodUID: "2"}
		n.use(0, "GPU-0", a, owner.Owner{Namespace: "ml", Pod: "a", PodUID: "2", Container: "c"})
		n.use(0, "GPU-1", a)
		none("it works", 100)
		n.use(0, "GPU-0")
		none("it has another board", 9)
		n.unknown, n.id = true, n.id+1
		none("owners are unknown", 9)
		n.unknown, n.id = false, n.id+1
		none("they are known again", 3)
		n.use(0, "GPU-1")
		none("its last rows wait", 1)
		after(9)
		testkit.Equal(t, "the event", "POST/api/v1/namespaces/ml/events Pod ml/a 2 Normal GPUReport: Kernels ran without computing or moving memory 50 % of the time; energy 1.03 Wh, GPU time 3 min 35 s", written)
		after(9)
		requests("it has ended", 1, 1, http.StatusInternalServerError)
		for i := range 4 { // one is tried, two wait
			end(fmt.Sprint("b", i))
		}
		time.Sleep(10 * time.Minute)
		requests("ten minutes of failures", 10, 15, http.StatusForbidden)
		testkit.Equal(t, "lines in the log", 1, log.Len())
		time.Sleep(time.Minute)
		requests("refusals", 3, 3, http.StatusCreated)
		testkit.Equal(t, "dropped: one too many, three refused", uint64(4), p.dropped.Load())
		end("c", "d")
		requests("at once", 1, 1, http.StatusCreated)
		time.Sleep(time.Hour / podEventsAnHour)
		requests("at the limit's rate", 1, 1, http.StatusCreated)
		testkit.Equal(t, "lines in the log", 2, log.Len())
	})
}
