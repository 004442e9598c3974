package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/collectors/fake"
	"warpgauge/etc"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/tree"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	kubelet "warpgauge/pkg/kube/kubetest"
	"warpgauge/pkg/kube/kubetest/apitest"
)

// ownersCSV asks for what users of a shared device may have, for one
// reading that they have not, and for a label.
const ownersCSV = `DCGM_FI_DEV_GPU_UTIL, gauge, Utilisation.
DCGM_FI_DEV_FB_USED, gauge, Memory in use.
DCGM_FI_DEV_FB_TOTAL, gauge, Memory.
DCGM_FI_DRIVER_VERSION, label, Driver
`

// simulatedDevices are those that the fake collector shows.
func simulatedDevices(t *testing.T, profile string, n int) (gpus, instances []collector.Device) {
	t.Helper()
	factory, err := fake.Factory(fake.Options{Profile: profile, Devices: n})
	must(t, err)
	list, _, err := field.Parse(strings.NewReader(string(etc.DefaultCounters())), field.ParseOptions{})
	must(t, err)
	c := factory()
	sources := testkit.Get(c.Open(context.Background(), list))(t)
	for _, s := range sources {
		for _, d := range s.Devices() {
			switch d.Level {
			case field.GPU:
				gpus = append(gpus, d)
			case field.Instance:
				instances = append(instances, d)
			}
		}
	}
	must(t, c.Close())
	return gpus, instances
}

const (
	nvidiaGPU = "nvidia.com/gpu"
	testNode  = "node-1"
)

// whole are four GPUs: one for a container, one for two containers of a pod, one for two pods, one for none.
func whole(gpus []collector.Device) []*v1.PodResources {
	one := func(i int) kubelet.Resource { return kubelet.Devices(nvidiaGPU, gpus[i].UUID) }
	return []*v1.PodResources{
		kubelet.Pod("ml", "train-0", kubelet.Container("main", one(0)), kubelet.Container("logs")),
		kubelet.Pod("ml", "train-1", kubelet.Container("main", one(1)), kubelet.Container("eval", one(1))),
		kubelet.Pod("web", "chat-7", kubelet.Container("server", one(2))),
		kubelet.Pod("web", "chat-8", kubelet.Container("server", one(2))),
		kubelet.Pod("kube-system", "dns"),
	}
}

// shares are the same with shares of time-sliced GPUs.
func shares(gpus []collector.Device) []*v1.PodResources {
	share := func(i int, replicas ...string) kubelet.Resource {
		var ids []string
		for _, r := range replicas {
			ids = append(ids, gpus[i].UUID+"::"+r)
		}
		return kubelet.Devices("nvidia.com/gpu.shared", ids...)
	}
	return []*v1.PodResources{
		kubelet.Pod("ml", "train-0", kubelet.Container("main", share(0, "0"))),
		kubelet.Pod("ml", "train-1", kubelet.Container("main", share(1, "0", "1")), kubelet.Container("eval", share(1, "3"))),
		kubelet.Pod("web", "chat-7", kubelet.Container("server", share(2, "2"))),
		kubelet.Pod("web", "chat-8", kubelet.Container("server", share(2, "10"))),
	}
}

// claim is one device of a resource claim.
func claim(name, driver, device string) kubelet.Resource {
	return kubelet.Claim("ml", name, kubelet.ClaimedDevice{Driver: driver, Pool: testNode, Device: device})
}

// alone is a pod of one container, which has the devices.
func alone(namespace, name string, devices ...kubelet.Resource) *v1.PodResources {
	return kubelet.Pod(namespace, name, kubelet.Container("main", devices...))
}

// TestOwnersOnThePage prints one page per way in which devices are given to pods and
// jobs: names, labels and who the device's owners are; the values of a simulation are
// not compared here. The API server tells labels and uids of pods, and which devices claims
// are for. Rewrite with -update.
func TestOwnersOnThePage(t *testing.T) {
	gpus, _ := simulatedDevices(t, "dgx-h100", 4)
	_, instances := simulatedDevices(t, "dgx-a100-mig", 1)
	amd, _ := simulatedDevices(t, "mi300x", 2)
	csv := tempFile(t, "counters.csv", ownersCSV)
	jobs := tree.Write(t, map[string]string{"0": "4711\n4712\n", "3": "4713\n"})
	const nvidia = "gpu.nvidia.com"
	virtual := []string{"--kubernetes-virtual-gpus", "--process-values=false"}
	with := func(flags ...[]string) []string { return slices.Concat(flags...) }
	mig := node("dgx-a100-mig", 1)
	migPods := []*v1.PodResources{
		alone("ml", "train-0", kubelet.Devices("nvidia.com/mig-3g.20gb", instances[0].Instance.UUID)),
		kubelet.Pod("web", "chat-7", kubelet.Container("server", kubelet.Devices("nvidia.com/mig-1g.5gb", instances[2].Instance.UUID+"::0"))),
		kubelet.Pod("web", "chat-8", kubelet.Container("server", kubelet.Devices("nvidia.com/mig-1g.5gb", instances[2].Instance.UUID+"::1"))),
	}
	for _, c := range []struct {
		name   string
		args   []string
		pods   []*v1.PodResources
		api    []apitest.Object // pods
		slices []apitest.Object
	}{
		{"plain", h100(4), whole(gpus), nil, nil},
		{"old-names", with(h100(4), []string{"-o"}), whole(gpus), nil, nil},
		{"shared", h100(4), shares(gpus), nil, nil},
		{"virtual", with(h100(4), virtual), shares(gpus), nil, nil},
		{"device-names", with(h100(2), virtual, []string{"--kubernetes-gpu-id-type=device-name"}), []*v1.PodResources{
			alone("ml", "train-0", kubelet.Devices(nvidiaGPU, "nvidia0")),
			kubelet.Pod("web", "chat-7", kubelet.Container("server", kubelet.Devices(nvidiaGPU, "nvidia1/vgpu0"))),
			kubelet.Pod("web", "chat-8", kubelet.Container("server", kubelet.Devices(nvidiaGPU, "nvidia1/vgpu1"))),
		}, nil, nil},
		{"mig", mig, migPods, nil, nil},
		{"mig-virtual", with(mig, virtual), migPods, nil, nil},
		{"amd", node("mi300x", 2), []*v1.PodResources{alone("ml", "train-0", kubelet.Devices("amd.com/gpu", strings.ToLower(amd[1].PCIBusID[4:])))}, nil, nil},
		{"further-resource", with(h100(1), []string{"--nvidia-resource-names=nvidia.com/h100"}), []*v1.PodResources{alone("ml", "train-0", kubelet.Devices("nvidia.com/h100", gpus[0].UUID))}, nil, nil},
		{"jobs", with(h100(4), []string{"--hpc-job-mapping-dir=" + jobs}), whole(gpus), nil, nil},
		{
			"labels", with(h100(4), []string{"--kubernetes-enable-pod-labels", "--kubernetes-enable-pod-uid", "--kubernetes-pod-label-allowlist-regex=^app,team,^pod$"}),
			whole(gpus),
			[]apitest.Object{
				apitest.Pod("ml", "train-0", "0a-1", map[string]string{"app.kubernetes.io/name": "trainer", "app": "x", "team": "vision", "secret": "no", "pod": "not this one"}),
				apitest.Pod("ml", "train-1", "0a-2", nil),
				apitest.Pod("web", "chat-7", "0a-3", map[string]string{"team": "chat"}),
			}, nil,
		},
		{
			"virtual-labels", with(h100(4), virtual, []string{"-o", "--kubernetes-enable-pod-labels", "--kubernetes-enable-pod-uid"}),
			shares(gpus),
			[]apitest.Object{
				apitest.Pod("ml", "train-1", "0a-2", map[string]string{"team": "vision"}),
				apitest.Pod("web", "chat-7", "0a-3", map[string]string{"team": "chat"}),
				apitest.Pod("web", "chat-8", "0a-4", map[string]string{"team": "chat"}),
			}, nil,
		},
		{
			"dra", with(h100(4), []string{"--kubernetes-enable-dra"}),
			[]*v1.PodResources{
				alone("ml", "train-0", claim("one-gpu", nvidia, "gpu-0")),
				alone("ml", "train-1", claim("shared-gpu", nvidia, "gpu-1")),
				alone("ml", "train-2", claim("shared-gpu", nvidia, "gpu-1")),
				alone("ml", "nic", claim("nic", "nic.example.com", "nic-0")),
				alone("ml", "unknown", claim("later", nvidia, "gpu-9")),
			}, nil,
			[]apitest.Object{apitest.Slice(nvidia, testNode, map[string]apitest.Attributes{
				"gpu-0": {"type": "gpu", "uuid": gpus[0].UUID}, "gpu-1": {"type": "gpu", "uuid": gpus[1].UUID},
				"gpu-2": {"type": "gpu", "uuid": gpus[2].UUID}, "gpu-3": {"type": "gpu", "uuid": gpus[3].UUID},
			})},
		},
		{
			"dra-mig-virtual", with(mig, virtual, []string{"--kubernetes-enable-dra"}),
			[]*v1.PodResources{
				alone("ml", "train-0", claim("large", nvidia, "gpu-0-mig-3g20gb-9-0")),
				kubelet.Pod("web", "chat-7", kubelet.Container("server", claim("small", nvidia, "gpu-0-mig-1g5gb-19-6"))),
				kubelet.Pod("web", "chat-8", kubelet.Container("server", claim("small", nvidia, "gpu-0-mig-1g5gb-19-6"))),
			}, nil,
			[]apitest.Object{apitest.Slice(nvidia, testNode, map[string]apitest.Attributes{
				"gpu-0-mig-3g20gb-9-0": {"type": "mig", "uuid": instances[0].Instance.UUID, "parentUUID": instances[0].UUID, "profile": "3g.20gb"},
				"gpu-0-mig-1g5gb-19-6": {"type": "mig", "uuid": instances[2].Instance.UUID, "parentUUID": instances[2].UUID, "profile": "1g.5gb"},
			})},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, api := kubelet.Start(t), apitest.Start(t, testNode)
			k.Set(c.pods...)
			api.Pods(c.api...)
			api.Slices(c.slices...)
			t.Setenv("KUBECONFIG", api.Kubeconfig())
			checkGolden(t, filepath.Join("owners", c.name+".prom"), onceOwners(t, append([]string{"-k", "--pod-resources-kubelet-socket=" + k.Socket(), "-f", csv}, c.args...)...))
			// The API server is not asked for what is not needed.
			for path, wanted := range map[string]bool{
				"/api/v1/pods": c.api != nil, "/apis/resource.k8s.io/v1/resourceslices": c.slices != nil,
			} {
				testkit.Equal(t, path+" was asked for", wanted, api.Requests(path) > 0)
			}
		})
	}
}

// TestDevicesTellTheirUsers looks at what warpgauge devices says, and at what it says of those who do not answer.
func TestDevicesTellTheirUsers(t *testing.T) {
	gpus, _ := simulatedDevices(t, "dgx-h100", 2)
	k, jobs := kubelet.Start(t), filepath.Dir(tempFile(t, "0", "4711\n"))
	var shares []string
	for i := range 6 {
		shares = append(shares, fmt.Sprintf("%s::%d", gpus[1].UUID, i))
	}
	k.Set(alone("ml", "train-0", kubelet.Devices(nvidiaGPU, gpus[0].UUID)), alone("web", "chat", kubelet.Devices("nvidia.com/gpu.shared", shares...)),
		alone("web", "lost", kubelet.Devices(nvidiaGPU, "GPU-00000000-0000-0000-0000-000000000000")))
	args := append(simulated(h100(2)...), "devices", "-k", "--pod-resources-kubelet-socket="+k.Socket(), "--hpc-job-mapping-dir="+jobs,
		"--kubernetes-enable-pod-uid", "--kubernetes-enable-dra")
	some := execute(t, nil, args...)
	some.Want(t, 0,
		"REASON  USED BY\n", "pod ml/train-0, container main (nvidia.com/gpu)\n", " job 4711\n",
		"pod web/chat, container main (share 2, nvidia.com/gpu.shared)\n", "and 3 more (--all lists them)\n",
		"not a device of this machine: nvidia.com/gpu GPU-00000000-0000-0000-0000-000000000000 of pod web/lost (device)\n",
		"mapping pod_metadata fails (no_node_name): ", "NODE_NAME", "mapping resource_slices fails")
	testkit.Lacks(t, "mappings that work are complained of", some.Out, "pod_resources", "hpc_jobs")
	execute(t, nil, append(args, "--all")...).Want(t, 0, "(share 5, nvidia.com/gpu.shared)\n")
	k.On(kubelet.Silence())
	execute(t, nil, append(args, "--timeout=500ms")...).Want(t, 0, "USED BY\n", "mapping pod_resources: no answer within 500ms\n", "job 4711")
}

func h100(n int) []string { return node("dgx-h100", n) }

func node(profile string, n int) []string {
	return []string{"--fake-profile=" + profile, fmt.Sprintf("--fake-devices=%d", n)}
}

// onceOwners is the part of a page that concerns devices and owners, without the values of devices.
func onceOwners(t *testing.T, args ...string) []byte {
	t.Helper()
	o := execute(t, environment{"NODE_NAME": testNode}, simulated(append([]string{"once", "--exporter-metrics=full"}, args...)...)...)
	o.Want(t, 0)
	var out strings.Builder
	for line := range strings.Lines(o.Out) {
		switch series, _, _ := strings.Cut(line, "} "); {
		case strings.HasPrefix(line, "DCGM_"):
			fmt.Fprintf(&out, "%s}\n", series)
		case strings.HasPrefix(line, "warpgauge_device_owner"), strings.HasPrefix(line, "warpgauge_owner_unmatched"):
			out.WriteString(line)
		}
	}
	return []byte(out.String())
}
