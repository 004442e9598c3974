package kube

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/kube/kubetest/apitest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestAnnotations: each change is written once, a failure is logged once and tried again,
// and what is empty is removed.
func TestAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Pipe(t, "node-1")
		var mu sync.Mutex
		var bodies []string
		code := http.StatusOK
		s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			body, _ := io.ReadAll(r.Body)
			if r.Method != http.MethodPatch || r.URL.Path != "/api/v1/namespaces/gpu/pods/exporter-x" || r.Header.Get("Content-Type") != "application/merge-patch+json" {
				t.Errorf("%s %s, %s", r.Method, r.URL, r.Header.Get("Content-Type"))
			}
			bodies = append(bodies, string(body))
			if code != http.StatusOK {
				apitest.Refuse(w, code, "Forbidden", "pods is forbidden")
				return true
			}
			apitest.Reply(w, http.StatusOK, apitest.Pod("gpu", "exporter-x", "u", nil))
			return true
		})
		asked := func() []string {
			mu.Lock()
			defer mu.Unlock()
			out := bodies
			bodies = nil
			return out
		}
		want := map[string]string{"warpgauge/list-hash": "a", "warpgauge/list-error": ""}
		core, logs := observer.New(zap.WarnLevel)
		a := NewAnnotations(PodName{"gpu", "exporter-x"}, func() map[string]string {
			mu.Lock()
			defer mu.Unlock()
			return want
		}, "test", zap.New(core))
		a.api.config = s.Config
		change := func(answer int, hash, problem string) {
			mu.Lock()
			defer mu.Unlock()
			code, want = answer, map[string]string{"warpgauge/list-hash": hash, "warpgauge/list-error": problem}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		check := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if diff := cmp.Diff(want, asked()); diff != "" {
				t.Errorf("patches (-want +got):\n%s", diff)
			}
		}
		check(time.Hour, `{"metadata":{"annotations":{"warpgauge/list-error":null,"warpgauge/list-hash":"a"}}}`)
		change(http.StatusOK, "b", strings.Repeat("x", 1000))
		check(annotationInterval, `{"metadata":{"annotations":{"warpgauge/list-error":"`+strings.Repeat("x", 300)+`…","warpgauge/list-hash":"b"}}}`)
		change(http.StatusForbidden, "c", "")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := len(asked()); n < 100 || n > 24*6+10 {
			t.Errorf("%d attempts in a day, want one in about ten minutes", n)
		}
		if all := logs.TakeAll(); len(all) != 1 || !strings.Contains(all[0].ContextMap()["error"].(string), `grant the verb patch on pods to this service account by a Role in namespace "gpu"`) {
			t.Errorf("log: %v", all)
		}
		change(http.StatusOK, "d", "")
		check(annotationRetry, `{"metadata":{"annotations":{"warpgauge/list-error":null,"warpgauge/list-hash":"d"}}}`)
		s.SetDown(true)
		change(http.StatusOK, "e", "")
		check(time.Hour)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
