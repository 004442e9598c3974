package adapter

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// kubelet lists pods, as the kubelet does, on a socket.
type kubelet struct {
	v1.UnimplementedPodResourcesListerServer
	pods []*v1.PodResources
}

func (k *kubelet) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	return &v1.ListPodResourcesResponse{PodResources: k.pods}, nil
}

func startKubelet(t *testing.T, pods []*v1.PodResources) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "k.sock")
	listener, err := net.Listen("unix", socket)
	must(t, err)
	server := grpc.NewServer()
	v1.RegisterPodResourcesListerServer(server, &kubelet{pods: pods})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		must(t, <-ended)
	})
	return socket
}

// pod returns a pod with one container that has these GPUs.
func pod(namespace, name string, gpus ...string) *v1.PodResources {
	return &v1.PodResources{Namespace: namespace, Name: name, Containers: []*v1.ContainerResources{{
		Name: "main", Devices: []*v1.ContainerDevices{{ResourceName: "nvidia.com/gpu", DeviceIds: gpus}},
	}}}
}
