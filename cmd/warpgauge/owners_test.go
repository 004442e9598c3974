package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/pkg/config"
	"warpgauge/pkg/cri"
	"warpgauge/pkg/eventually"
	"warpgauge/pkg/mapping"
	"warpgauge/pkg/owner"
	kubelet "warpgauge/pkg/podresources/podresourcestest"
	"warpgauge/pkg/process"
	"warpgauge/pkg/view"
)

// ownersOf returns what a command line makes, without running it.
func ownersOf(t *testing.T, env environment, args ...string) (*owners, []string) {
	t.Helper()
	a := &app{lookup: env.lookup, flags: config.NewSet(env.lookup)}
	root := a.root()
	root.Action, root.Commands = nil, nil
	must(t, root.Run(t.Context(), append([]string{"warpgauge", "--enable-fake", "--enable-dcgm=false", "--enable-nvml=false", "--enable-rocm=false"}, args...)))
	cfg, err := a.config()
	must(t, err)
	all, err := collectors(cfg, zap.NewNop())
	must(t, err)
	list, _, err := newCounters(cfg).first(zap.NewNop())
	must(t, err)
	reg := prometheus.NewRegistry()
	o := a.newOwners(cfg, a.newEngine(cfg, all, list, nil, zap.NewNop()), reg, zap.NewNop())
	if o == nil {
		return nil, nil
	}
	var asked []string
	for _, h := range o.health {
		asked = append(asked, h.Name())
	}
	return o, asked
}

// Nobody is asked for what nobody wants to know.
func TestWhoIsAsked(t *testing.T) {
	f := func(args []string, want ...string) {
		t.Helper()
		if _, got := ownersOf(t, nil, args...); !slices.Equal(got, want) {
			t.Errorf("%q asks %q, want %q", args, got, want)
		}
	}
	f(nil)
	f([]string{"--kubernetes-virtual-gpus", "--kubernetes-enable-dra", "--kubernetes-enable-pod-uid", "--process-values", "--container-runtime-socket=/x"})
	f([]string{"--hpc-job-mapping-dir=/jobs"}, mapping.HPCJobs)
	f([]string{"-k"}, mapping.PodResources)
	f([]string{"-k", "--kubernetes-enable-pod-labels"}, mapping.PodResources, mapping.PodMetadata)
	f([]string{"-k", "--kubernetes-enable-pod-uid"}, mapping.PodResources, mapping.PodMetadata)
	f([]string{"-k", "--kubernetes-enable-dra"}, mapping.PodResources, mapping.ResourceSlices)
	f([]string{"-k", "--kubernetes-virtual-gpus"}, mapping.PodResources, mapping.PodMetadata, mapping.Processes)
	f([]string{"-k", "--kubernetes-virtual-gpus", "--process-values=false"}, mapping.PodResources)
	f([]string{"-k", "--process-values", "--container-runtime-socket=/x"}, mapping.PodResources, mapping.ContainerRuntime, mapping.Processes)
	f([]string{"-k", "--hpc-job-mapping-dir=/jobs", "--kubernetes-enable-dra", "--kubernetes-enable-pod-uid"},
		mapping.HPCJobs, mapping.PodResources, mapping.PodMetadata, mapping.ResourceSlices)
}

// A client that ends, for whatever reason, ends nothing else.
func TestAMappingThatEndsIsNotTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		o := &owners{log: zap.New(core)}
		run := o.lasting(client{name: "pods", run: func(context.Context) error { return errors.New("broken") }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- run(ctx) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("the stage has ended with %v", err)
		default:
		}
		if n := logs.FilterMessage("pods has ended, its last answer is kept").Len(); n != 1 {
			t.Errorf("%d lines of its end, want 1", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// asked counts wishes.
type asked int

// Suspect implements suspect.
func (a *asked) Suspect() { *a++ }

func TestSuspicion(t *testing.T) {
	var (
		board      view.Board
		lost       []owner.Unmatched
		users      process.Snapshot
		containers cri.Snapshot
		k, r       asked
	)
	s := suspicion{
		kubelet: &k, runtime: &r, board: &board,
		unknown:    func() []owner.Unmatched { return lost },
		processes:  func() *process.Snapshot { return &users },
		containers: func() *cri.Snapshot { return &containers },
	}
	f := func(what string, kubelet, runtime asked) {
		t.Helper()
		k, r = 0, 0
		s.look()
		if k != kubelet || r != runtime {
			t.Errorf("%s: the kubelet was asked %d times and the runtime %d times, want %d and %d", what, k, r, kubelet, runtime)
		}
		k, r = 0, 0
		s.look()
		if k != 0 || r != 0 {
			t.Errorf("%s, and nothing new: the kubelet was asked %d times and the runtime %d times", what, k, r)
		}
	}
	f("nothing yet", 0, 0)
	board.Store(&view.View{Version: 1})
	f("other devices", 1, 0)
	lost = []owner.Unmatched{{Pod: "a", ID: "GPU-1"}}
	f("an id that is none", 1, 0)
	lost = append(lost, owner.Unmatched{Pod: "b", ID: "GPU-2"})
	f("another", 1, 0)
	lost = lost[1:]
	f("one of them was found", 0, 0)
	users = process.Snapshot{Devices: map[string]process.DeviceUse{"GPU-1": {Users: []process.User{
		{PodUID: "u", ContainerID: "c"}, {}, {Job: "7"},
	}}}}
	f("a container that nobody knows", 1, 1)
	containers = cri.Snapshot{Containers: map[string]cri.Container{"c": {Pod: "a"}}}
	f("it is known", 0, 0)
	users.Devices["GPU-2"] = process.DeviceUse{Users: []process.User{{PodUID: "u", ContainerID: "d"}}}
	f("another container of the pod", 1, 1)

	s.runtime, s.containers = nil, nil
	f("nobody to ask for containers", 1, 0)
}

func TestOwnPod(t *testing.T) {
	in := environment{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
	f := func(env environment, namespace, name string, want bool) {
		t.Helper()
		if got := (&app{lookup: env.lookup}).self().is(namespace, name); got != want {
			t.Errorf("with %v pod %s/%s is this one: %v, want %v", env, namespace, name, got, want)
		}
	}
	named := environment{"POD_NAME": "exporter-x", "POD_NAMESPACE": "gpu", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
	f(named, "gpu", "exporter-x", true)
	f(named, "other", "exporter-x", false)
	f(named, "gpu", "exporter-y", false)
	f(environment{"POD_NAME": "exporter-x"}, "gpu", "exporter-x", false) // not in a cluster
	f(in, "gpu", "exporter-x", false)
	f(in, "gpu", "", false)
}

// Dumps tell who uses what, and why that may not be known.
func TestDumpOfOwners(t *testing.T) {
	k := kubelet.Start(t)
	gpus, _ := simulatedDevices(t, "dgx-h100", 1)
	k.Set(kubelet.Pod("ml", "train-0", kubelet.Container("main", kubelet.Devices(nvidiaGPU, gpus[0].UUID))))
	o, _ := ownersOf(t, nil, "-k", "--pod-resources-kubelet-socket="+k.Socket(), "--kubernetes-enable-pod-uid")
	v := &view.View{Sources: []*view.Source{{Devices: gpus}}}
	o.suspicion.board.Store(v)
	stop := o.start(t.Context())
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	o.settle(ctx)
	d := o.dump(v)
	if users := d.Devices[gpus[0].ID]; len(d.Devices) != 1 || len(users) != 1 || users[0] != "pod ml/train-0, container main (nvidia.com/gpu)" {
		t.Errorf("users %v", d.Devices)
	}
	if len(d.Mappings) != 2 || d.Mappings[0].Failing != "" || d.Mappings[0].Name != mapping.PodResources || d.Mappings[1].Failing != "no_node_name" || d.Mappings[1].Error == "" {
		t.Errorf("mappings %+v", d.Mappings)
	}
	if (*owners)(nil).dump(v) != nil {
		t.Error("owners are dumped that nobody asks for")
	}
}

// One who does not answer is waited for no longer than is allowed.
func TestSettleHasAnEnd(t *testing.T) {
	k := kubelet.Start(t)
	k.On(kubelet.List, kubelet.Silence())
	o, _ := ownersOf(t, nil, "-k", "--pod-resources-kubelet-socket="+k.Socket(), "--hpc-job-mapping-dir="+filepath.Join(t.TempDir(), "none"))
	stop := o.start(t.Context())
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	o.settle(ctx)
	if ctx.Err() == nil || o.settled() {
		t.Error("it is said to be settled although the kubelet is silent")
	}
}
