package main

import (
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	kubelets "warpgauge/pkg/kube/kubetest"
)

// nodes returns the nodes of the pictures: three of Kubernetes, one of a batch system. The profiles script their GPUs; pods
// and jobs match: on dgx-1 one pod trains on four GPUs, two answer requests, and the notebooks share a GPU.
func nodes() []*node {
	return []*node{
		{
			name: "dgx-1", profile: "dgx-h100", seed: 1, flags: []string{"--kubernetes-virtual-gpus"},
			pods: []*v1.PodResources{
				kubelets.Pod("research", "train-llm-0", kubelets.Container("main", kubelets.Devices("nvidia.com/gpu", "nvidia0", "nvidia1", "nvidia2", "nvidia3"))),
				kubelets.Pod("serving", "chat-0", kubelets.Container("server", kubelets.Devices("nvidia.com/gpu", "nvidia4"))),
				kubelets.Pod("serving", "chat-1", kubelets.Container("server", kubelets.Devices("nvidia.com/gpu", "nvidia5"))),
				kubelets.Pod("notebooks", "notebook-ada", kubelets.Container("jupyter", kubelets.Devices("nvidia.com/gpu.shared", "nvidia6/vgpu0"))),
				kubelets.Pod("notebooks", "notebook-max", kubelets.Container("jupyter", kubelets.Devices("nvidia.com/gpu.shared", "nvidia6/vgpu1"))),
			},
		},
		{
			name: "dgx-2", profile: "dgx-h100", seed: 2,
			script: "faults:\n- {at: 7m, device: 5, kind: xid, xid: 79}\n- {at: 7m1s, device: 5, kind: lost}\n",
			jobs:   map[int]string{0: "4711", 1: "4711", 2: "4711", 3: "4711", 4: "4712", 5: "4712", 6: "4713"},
		},
		{
			name: "a100-1", profile: "dgx-a100-mig", seed: 3,
			pods: []*v1.PodResources{
				kubelets.Pod("serving", "rank-0", kubelets.Container("server", kubelets.Devices("nvidia.com/mig-3g.20gb", "nvidia0/gi1"))),
				kubelets.Pod("serving", "rank-1", kubelets.Container("server", kubelets.Devices("nvidia.com/mig-3g.20gb", "nvidia1/gi1"))),
				kubelets.Pod("research", "probe-0", kubelets.Container("main", kubelets.Devices("nvidia.com/mig-1g.5gb", "nvidia2/gi7"))),
				kubelets.Pod("research", "tune-0", kubelets.Container("main", kubelets.Devices("nvidia.com/gpu", "nvidia4", "nvidia5"))),
			},
		},
		{
			name: "mi300x-1", profile: "mi300x", fields: "etc/amd-counters.csv", seed: 4,
			pods: []*v1.PodResources{
				kubelets.Pod("research", "train-moe-0", kubelets.Container("main", kubelets.Devices("amd.com/gpu", "0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0"))),
				kubelets.Pod("serving", "chat-amd-0", kubelets.Container("server", kubelets.Devices("amd.com/gpu", "0000:9d:00.0", "0000:c3:00.0"))),
			},
		},
	}
}
