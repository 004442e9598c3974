package exporter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/fake"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/kube"
	kubelet "warpgauge/pkg/kube/kubetest"
	"warpgauge/pkg/owner"
)

// ownersOf returns the Owners of a command line, not running, and their mappings.
func ownersOf(t *testing.T, args ...string) (o *Owners, asked []string) {
	t.Helper()
	a, cfg := newProgram(t, fake.Options{Profile: "dgx-h100", Devices: 1}, args...)
	p := testkit.Get(a.NewPipeline(cfg, parse(t, "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"), zap.NewNop()))(t)
	if p.FindOwners(); p.Owners == nil {
		return nil, nil
	}
	for _, h := range p.Owners.Health {
		asked = append(asked, h.State().Name)
	}
	return p.Owners, asked
}

// Only clients that the configuration needs are made.
func TestClientsOfAConfiguration(t *testing.T) {
	f := func(args []string, want ...string) {
		t.Helper()
		_, got := ownersOf(t, args...)
		testkit.ErrorIf(t, !slices.Equal(got, want), "%q asks %q, want %q", args, got, want)
	}
	f(nil)
	f([]string{"--kubernetes-virtual-gpus", "--kubernetes-enable-dra", "--kubernetes-enable-pod-uid", "--process-values"})
	f([]string{"--hpc-job-mapping-dir=/jobs"}, owner.MappingJobs)
	f([]string{"-k"}, kube.MappingPodResources)
	f([]string{"-k", "--kubernetes-enable-pod-labels"}, kube.MappingPodResources, kube.MappingPodMetadata)
	f([]string{"-k", "--kubernetes-enable-pod-uid"}, kube.MappingPodResources, kube.MappingPodMetadata)
	f([]string{"-k", "--kubernetes-enable-dra"}, kube.MappingPodResources, kube.MappingResourceSlices)
	f([]string{"-k", "--kubernetes-virtual-gpus"}, kube.MappingPodResources, kube.MappingPodMetadata, owner.MappingProcesses)
	f([]string{"-k", "--kubernetes-virtual-gpus", "--process-values=false"}, kube.MappingPodResources)
	f([]string{"-k", "--hpc-job-mapping-dir=/jobs", "--kubernetes-enable-dra", "--kubernetes-enable-pod-uid"},
		owner.MappingJobs, kube.MappingPodResources, kube.MappingPodMetadata, kube.MappingResourceSlices)
}

// A client that ends, for any reason, ends nothing else.
func TestAMappingThatEndsIsNotTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		o := &Owners{log: zap.New(core), clients: []client{{name: "pods", run: func(context.Context) error { return errors.New("broken") }}}}
		run := o.stages()[0].Run
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- run(ctx) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("the stage has ended with %v", err)
		default:
		}
		testkit.Equal(t, "lines of its end", 1, logs.FilterMessage("pods has ended, its last answer is kept").Len())
		cancel()
		must(t, <-done)
	})
}

func TestOwnPod(t *testing.T) {
	f := func(want kube.PodName, env map[string]string) {
		t.Helper()
		got := ownPod(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		testkit.ErrorIf(t, got != want, "with %v this pod is %v, want %v", env, got, want)
	}
	host := testkit.Get(os.Hostname())(t)
	f(kube.PodName{Namespace: "gpu", Name: "x"}, map[string]string{"POD_NAME": "x", "POD_NAMESPACE": "gpu", "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
	f(kube.PodName{Namespace: "gpu", Name: host}, map[string]string{"POD_NAMESPACE": "gpu", "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
	f(kube.PodName{}, map[string]string{"POD_NAME": "x"}) // not in a cluster
}

func TestProblemsOfMappings(t *testing.T) {
	k := kubelet.Start(t)
	o, _ := ownersOf(t, "-k", "--pod-resources-kubelet-socket="+k.Socket(), "--kubernetes-enable-pod-uid")
	stop := o.start(t.Context())
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	o.wait(ctx)
	var got strings.Builder
	if o.WriteProblems(&got, time.Second); !strings.HasPrefix(got.String(), "mapping pod_metadata fails (no_node_name): ") || strings.Count(got.String(), "\n") != 1 {
		t.Errorf("mappings %q", got.String())
	}
}

// A server that does not answer delays the start no longer than allowed.
func TestWaitHasAnEnd(t *testing.T) {
	k := kubelet.Start(t)
	k.On(kubelet.Silence())
	o, _ := ownersOf(t, "-k", "--pod-resources-kubelet-socket="+k.Socket(), "--hpc-job-mapping-dir="+filepath.Join(t.TempDir(), "none"))
	stop := o.start(t.Context())
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	o.wait(ctx)
	testkit.ErrorIf(t, ctx.Err() == nil || o.complete(), "it counts as complete although the kubelet is silent")
}
