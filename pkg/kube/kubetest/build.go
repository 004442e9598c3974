package kubetest

import (
	"fmt"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Pod returns a pod as the kubelet lists it, with or without devices.
func Pod(namespace, name string, containers ...*v1.ContainerResources) *v1.PodResources {
	return &v1.PodResources{Namespace: namespace, Name: name, Containers: containers}
}

// Container returns a container with the given resources.
func Container(name string, has ...Resource) *v1.ContainerResources {
	c := &v1.ContainerResources{Name: name}
	for _, give := range has {
		give(c)
	}
	return c
}

// Resource gives a container a resource.
type Resource func(to *v1.ContainerResources)

// Devices is one entry with devices of a resource. Two of the same resource make two entries.
func Devices(resource string, ids ...string) Resource {
	return func(to *v1.ContainerResources) {
		to.Devices = append(to.Devices, &v1.ContainerDevices{ResourceName: resource, DeviceIds: ids})
	}
}

// ClaimedDevice is one device of a claim.
type ClaimedDevice struct{ Driver, Pool, Device string }

// Claim is a resource claim with a device.
func Claim(namespace, name string, d ClaimedDevice) Resource {
	return func(to *v1.ContainerResources) {
		to.DynamicResources = append(to.DynamicResources, &v1.DynamicResource{ClaimNamespace: namespace, ClaimName: name,
			ClaimResources: []*v1.ClaimResource{{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Device}}})
	}
}

// Many returns n pods of a dense node, each with a sidecar, exclusive CPUs and memory. The first withGPU pods have one
// shared GPU each: the ID GPU-<k>::<replica> of nvidia.com/gpu, over 8 GPUs.
func Many(n, withGPU int) []*v1.PodResources {
	pods := make([]*v1.PodResources, 0, n)
	for i := range n {
		main := Container("main")
		main.CpuIds = []int64{int64(2 * i), int64(2*i + 1)}
		main.Memory = []*v1.ContainerMemory{{MemoryType: "memory", Size: 1 << 30, Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: int64(i % 2)}}}}}
		if i < withGPU {
			Devices("nvidia.com/gpu", fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000::%d", i%8, i/8))(main)
		}
		pods = append(pods, Pod(fmt.Sprintf("team-%d", i%10), fmt.Sprintf("worker-%05d-abcde", i), main, Container("istio-proxy")))
	}
	return pods
}
