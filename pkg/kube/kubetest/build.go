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
	for _, r := range has {
		r.give(c)
	}
	return c
}

// Resource is a resource of a container: Devices or a Claim.
type Resource interface {
	give(to *v1.ContainerResources)
}

// DevicesOf is one entry of devices. Two of the same resource make two entries.
type DevicesOf struct {
	Resource string
	IDs      []string
}

// Devices returns one entry with devices of a resource.
func Devices(resource string, ids ...string) DevicesOf {
	return DevicesOf{Resource: resource, IDs: ids}
}

func (d DevicesOf) give(to *v1.ContainerResources) {
	to.Devices = append(to.Devices, &v1.ContainerDevices{ResourceName: d.Resource, DeviceIds: d.IDs})
}

// Claimed is a resource claim with its devices.
type Claimed struct {
	Namespace, Name string
	Devices         []ClaimedDevice
}

// ClaimedDevice is one device of a claim.
type ClaimedDevice struct{ Driver, Pool, Device string }

// Claim returns a resource claim with its devices.
func Claim(namespace, name string, devices ...ClaimedDevice) Claimed {
	return Claimed{Namespace: namespace, Name: name, Devices: devices}
}

func (c Claimed) give(to *v1.ContainerResources) {
	d := &v1.DynamicResource{ClaimNamespace: c.Namespace, ClaimName: c.Name}
	for _, dev := range c.Devices {
		d.ClaimResources = append(d.ClaimResources, &v1.ClaimResource{DriverName: dev.Driver, PoolName: dev.Pool, DeviceName: dev.Device})
	}
	to.DynamicResources = append(to.DynamicResources, d)
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
			Devices("nvidia.com/gpu", fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000::%d", i%8, i/8)).give(main)
		}
		pods = append(pods, Pod(fmt.Sprintf("team-%d", i%10), fmt.Sprintf("worker-%05d-abcde", i), main, Container("istio-proxy")))
	}
	return pods
}
