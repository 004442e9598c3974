package kube

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/kube/kubetest/apitest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// claimObject is a ResourceClaim as an API server has it, allocated to a device.
func claimObject(namespace, name, device string, admin bool) object {
	result := object{"request": "gpus", "driver": nvidiaDriver, "pool": "node-1", "device": device}
	if admin {
		result["adminAccess"] = true
	}
	return object{"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1", "metadata": object{"namespace": namespace, "name": name},
		"status": object{"allocation": object{"devices": object{"results": []any{result}}}}}
}

// TestClaims: each claim that the kubelet lists is read once, by its name. One that may not be read counts as a user,
// is reported once, and is found when the right has been granted.
func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Pipe(t, "node-1")
		objects := map[string]object{
			"ml/train": claimObject("ml", "train", "gpu-0", false),
			"op/all":   claimObject("op", "all", "gpu-0", true), "op/another": claimObject("op", "another", "gpu-0", true),
		}
		var mu sync.Mutex
		var asked []string
		granted := false
		s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
			path, found := strings.CutPrefix(r.URL.Path, "/apis/resource.k8s.io/v1/namespaces/")
			if !found {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			name := strings.Replace(path, "/resourceclaims/", "/", 1)
			asked = append(asked, name)
			if strings.HasPrefix(name, "op/") && !granted {
				apitest.Refuse(w, http.StatusForbidden, "Forbidden", "resourceclaims is forbidden")
			} else {
				apitest.Reply(w, http.StatusOK, objects[name])
			}
			return true
		})
		took := func() string {
			mu.Lock()
			defer mu.Unlock()
			out := strings.Join(asked, " ")
			asked = nil
			return out
		}
		allocations := atomic.Pointer[Allocations]{}
		allocations.Store(&Allocations{})
		core, logs := observer.New(zap.WarnLevel)
		c := NewAPIServer(APIOptions{Node: "node-1", Allocations: allocations.Load, Log: zap.New(core)})
		c.config = s.Config
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Run(ctx)
		gpu := func(namespace, name string) Claim {
			return Claim{namespace, name, DeviceName{nvidiaDriver, "node-1", "gpu-0"}}
		}
		user, looker := gpu("ml", "train"), gpu("op", "all")
		give := func(version uint64, claims ...Claim) {
			a := &Allocations{Version: version}
			for _, claim := range claims {
				a.Pods = append(a.Pods, Pod{PodName{claim.Namespace, "pod"}, []Container{{Name: "main", Claims: []Claim{claim}}}})
			}
			allocations.Store(a)
		}
		synctest.Wait()
		if m := c.Snapshot(); m.Uses(user) || !m.ClaimsTime.IsZero() {
			t.Errorf("before the kubelet has answered: %v, %v", m.Claims, m.ClaimsTime)
		}
		give(1, user, looker, gpu("op", "another"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if m := c.Snapshot(); !m.Uses(user) || !m.Uses(looker) || m.ClaimsTime.IsZero() {
			t.Errorf("a claim that may not be read does not count: %v", m.Claims)
		}
		time.Sleep(5 * claimRetry)
		if got := took(); got != strings.Join([]string{"ml/train", "op/all", "op/all", "op/all"}, " ") {
			t.Errorf("asked for %s: want each claim that was read once, and one of a namespace that is refused less and less often", got)
		}
		mu.Lock()
		granted = true
		mu.Unlock()
		time.Sleep(claimRest)
		synctest.Wait()
		if m := c.Snapshot(); !m.Uses(user) || m.Uses(looker) {
			t.Errorf("a claim with admin access counts: %v", m.Claims)
		}
		if n := logs.Len(); n != 1 {
			t.Errorf("%d warnings, want one", n)
		}
		took()
		time.Sleep(10 * claimRetry)
		give(2, looker)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if m, got := c.Snapshot(), took(); m.Uses(looker) || m.Uses(user) || got != "" {
			t.Errorf("one claim is gone: %v, asked for %q", m.Claims, got)
		}
	})
}
