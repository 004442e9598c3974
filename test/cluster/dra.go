package main

import (
	"context"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// draDriver gives simulated GPUs by dynamic resource allocation, under the names that
// NVIDIA's driver uses.
type draDriver struct{ node *node }

const draDriverName = "gpu.nvidia.com"

func (n *node) startDRA(devices map[string]string) {
	dir := "/var/lib/kubelet/plugins/" + draDriverName
	must(os.MkdirAll(dir, 0o750))
	helper := get(kubeletplugin.Start(n.ctx, draDriver{n}, kubeletplugin.DriverName(draDriverName),
		kubeletplugin.KubeClient(n.client), kubeletplugin.NodeName(nodeName)))
	var slice resourceslice.Slice
	for name, uuid := range devices {
		kind := "gpu"
		slice.Devices = append(slice.Devices, resourceapi.Device{
			Name:       name,
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"uuid": {StringValue: &uuid}, "type": {StringValue: &kind}},
		})
	}
	must(helper.PublishResources(n.ctx, resourceslice.DriverResources{
		Pools: map[string]resourceslice.Pool{nodeName: {Slices: []resourceslice.Slice{slice}}},
	}))
}

func (d draDriver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		var result kubeletplugin.PrepareResult
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver == draDriverName {
				result.Devices = append(result.Devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device})
			}
		}
		out[c.UID] = result
	}
	return out, nil
}

func (d draDriver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		out[c.UID] = nil
	}
	return out, nil
}

func (d draDriver) HandleError(_ context.Context, err error, message string) {
	d.node.report.note("DRA driver: %s: %v", message, err)
}
