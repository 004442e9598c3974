package kube

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/kube/kubetest/apitest"
)

// namespaced answers requests for namespaced objects. A request reads "METHOD namespace/resource/name body".
type namespaced struct {
	mu     sync.Mutex
	asked  []string
	answer func(request string) (code int, o object) // a code other than 200 refuses
}

func startNamespaced(t *testing.T) (*apiServer, *namespaced) {
	s, n := apitest.Pipe(t, "node-1"), &namespaced{}
	s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
		_, path, found := strings.Cut(r.URL.Path, "v1/namespaces/")
		if !found {
			return false
		}
		body, _ := io.ReadAll(r.Body)
		n.mu.Lock()
		defer n.mu.Unlock()
		request := strings.TrimSpace(r.Method + " " + path + " " + string(body))
		n.asked = append(n.asked, request)
		if code, o := n.answer(request); code != http.StatusOK {
			apitest.Refuse(w, code, http.StatusText(code), "later")
		} else {
			apitest.Reply(w, code, o)
		}
		return true
	})
	return s, n
}

// took returns the requests since the last call.
func (n *namespaced) took() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.asked
	n.asked = nil
	return out
}

// set runs change while no request is answered.
func (n *namespaced) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// TestReadConfigMap: each refusal names the remedy, and the next attempt succeeds after the permission is granted.
func TestReadConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := startNamespaced(t)
		c := NewAPIServer(APIOptions{})
		c.config = s.Config
		f := func(want string, code int, data object) {
			t.Helper()
			n.answer = func(string) (int, object) { return code, object{"data": data} }
			csv, err := c.readConfigMap(t.Context(), "gpus", "fields")
			text := string(csv)
			if err != nil {
				text = err.Error()
			}
			asked := n.took()
			testkit.ErrorIf(t, !strings.Contains(text, want) || len(asked) != 1 || asked[0] != "GET gpus/configmaps/fields", "%q lacks %q; asked %q", text, want, asked)
		}
		f(`read ConfigMap gpus:fields: grant the verb get on it to this service account by a Role in namespace "gpus"`, http.StatusForbidden, nil)
		f("there is none", http.StatusNotFound, nil)
		f("later", http.StatusServiceUnavailable, nil)
		f(`no key "metrics"`, http.StatusOK, nil)
		f("DCGM_FI_DEV_GPU_TEMP, gauge", http.StatusOK, object{"metrics": "DCGM_FI_DEV_GPU_TEMP, gauge, T.\n"})
	})
}

// TestClaims: the client reads each claim that the kubelet lists once, by name. A claim without read permission counts
// as a user, is reported once, and is read after the permission is granted.
func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := startNamespaced(t)
		refused := http.StatusForbidden
		n.answer = func(request string) (int, object) {
			admin := strings.Contains(request, " op/")
			result := object{"request": "gpus", "driver": nvidiaDriver, "pool": "node-1", "device": "gpu-0", "adminAccess": admin}
			claim := object{"status": object{"allocation": object{"devices": object{"results": []any{result}}}}}
			if admin {
				return refused, claim
			}
			return http.StatusOK, claim
		}
		kubelet := NewKubelet(KubeletOptions{})
		core, logs := observer.New(zap.WarnLevel)
		c := NewAPIServer(APIOptions{Node: "node-1", Kubelet: kubelet, Log: zap.New(core)})
		c.config = s.Config
		testkit.Start(t, c.Run)
		claim := func(namespace, name string) Claim {
			return Claim{namespace, name, DeviceName{nvidiaDriver, "node-1", "gpu-0"}}
		}
		user, looker := claim("ml", "train"), claim("op", "all")
		give := func(version uint64, claims ...Claim) {
			kubelet.shown.Store(&Allocations{Version: version, Pods: []Pod{{PodName{"x", "pod"}, []Container{{Name: "main", Claims: claims}}}}})
		}
		check := func(what string, after time.Duration, uses, looks bool, asked ...string) {
			t.Helper()
			time.Sleep(after)
			got := n.took()
			m := c.Snapshot()
			testkit.ErrorIf(t, m.Uses(user) != uses || m.Uses(looker) != looks || m.ClaimsTime.IsZero() == uses && looks, "%s: %v at %v", what, m.Claims, m.ClaimsTime)
			for i := range asked {
				asked[i] = "GET " + strings.Replace(asked[i], "/", "/resourceclaims/", 1)
			}
			testkit.Equal(t, fmt.Sprintf("%s: asked", what), asked, got)
		}
		check("before the kubelet has answered", 0, false, false)
		give(1, user, looker, claim("op", "another"))
		// After a refusal the client retries one claim of the namespace.
		check("a claim that may not be read counts", 5*claimRetry/2, true, true, "ml/train", "op/all", "op/all", "op/all")
		n.set(func() { refused = http.StatusOK })
		check("granted", claimRetry, true, false, "op/all", "op/another")
		check("nothing is read again", 10*claimRetry, true, false)
		give(2, looker)
		check("one claim is gone", 2*time.Second, false, false)
		testkit.Equal(t, "warnings", 1, logs.Len())
	})
}
